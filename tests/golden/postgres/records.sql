-- sqlqueue: insert
INSERT INTO "outbox" ("name", "account", "headers", "payload", "processed_at")
VALUES ($1, $2, $3, $4, $5)
RETURNING "outbox"."id";

-- sqlqueue: find records
SELECT "outbox"."id" AS id, "outbox"."name"::text AS destination, CASE WHEN "outbox"."processed_at" IS NULL THEN 0 ELSE 1 END AS processed FROM "outbox"
CROSS JOIN unnest($1::bigint[]) AS _given(id)
WHERE "outbox"."id" = _given.id;

-- sqlqueue: mark records
UPDATE "outbox"
SET "processed_at" = $1
FROM unnest($2::bigint[]) AS _given(id)
WHERE "outbox"."id" = _given.id AND "outbox"."processed_at" IS NULL
RETURNING "outbox"."id";

-- sqlqueue: find the newest record
SELECT "outbox"."id" AS newest FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
ORDER BY "outbox"."id" DESC
LIMIT 1;

-- sqlqueue: the first unprocessed records
SELECT "outbox"."id", "outbox"."name"::text, "outbox"."payload", "outbox"."account"::text, "outbox"."headers", "outbox"."id" <= $1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
ORDER BY "outbox"."id"
LIMIT $2;

-- sqlqueue: the next unprocessed records
SELECT "outbox"."id", "outbox"."name"::text, "outbox"."payload", "outbox"."account"::text, "outbox"."headers", "outbox"."id" <= $1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND "outbox"."id" > $2
ORDER BY "outbox"."id"
LIMIT $3;

-- sqlqueue: prune records
WITH _old AS MATERIALIZED (
    SELECT "outbox"."id" AS id FROM "outbox"
    WHERE "outbox"."processed_at" <= $1
    ORDER BY "outbox"."processed_at"
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM "outbox"
WHERE "outbox"."id" IN (SELECT id FROM _old)
RETURNING "outbox"."id";
