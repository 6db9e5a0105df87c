-- sqlqueue: insert
INSERT INTO "outbox" ("name", "account", "headers", "payload", "processed_at")
VALUES (?1, ?2, ?3, ?4, ?5)
RETURNING "outbox"."id";

-- sqlqueue: find records
SELECT "outbox"."id" AS id, "outbox"."name" AS destination, CASE WHEN "outbox"."processed_at" IS NULL THEN 0 ELSE 1 END AS processed FROM "outbox"
WHERE "outbox"."id" = ?1;

-- sqlqueue: mark records
UPDATE "outbox"
SET "processed_at" = ?1
WHERE "outbox"."id" = ?2 AND "outbox"."processed_at" IS NULL
RETURNING "outbox"."id";

-- sqlqueue: find the newest record
SELECT "outbox"."id" AS newest FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
ORDER BY "outbox"."id" DESC
LIMIT 1;

-- sqlqueue: the first unprocessed records
SELECT "outbox"."id", "outbox"."name", "outbox"."payload", "outbox"."account", "outbox"."headers", "outbox"."id" <= ?1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
ORDER BY "outbox"."id"
LIMIT ?2;

-- sqlqueue: the next unprocessed records
SELECT "outbox"."id", "outbox"."name", "outbox"."payload", "outbox"."account", "outbox"."headers", "outbox"."id" <= ?1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND "outbox"."id" > ?2
ORDER BY "outbox"."id"
LIMIT ?3;

-- sqlqueue: prune records
WITH _old AS MATERIALIZED (
    SELECT "outbox"."id" AS id FROM "outbox"
    WHERE "outbox"."processed_at" <= ?1 AND (substr("outbox"."processed_at", -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', "outbox"."processed_at"), '') <= ?1)
    ORDER BY "outbox"."processed_at"
    LIMIT 1000
)
DELETE FROM "outbox"
WHERE "outbox"."id" IN (SELECT id FROM _old)
RETURNING "outbox"."id";

-- sqlqueue: prune records
WITH _old AS MATERIALIZED (
    SELECT "outbox"."id" AS id FROM "outbox"
    WHERE "outbox"."processed_at" >= substr(?1, 1, 10) || 'T' AND "outbox"."processed_at" < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "outbox"."processed_at") <= ?1
    ORDER BY "outbox"."processed_at"
    LIMIT 1000
)
DELETE FROM "outbox"
WHERE "outbox"."id" IN (SELECT id FROM _old)
RETURNING "outbox"."id";

-- sqlqueue: prune records
WITH _old AS MATERIALIZED (
    SELECT "outbox"."id" AS id FROM "outbox"
    WHERE "outbox"."processed_at" >= date(substr(?1, 1, 10), '+1 day') || 'T' AND "outbox"."processed_at" < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "outbox"."processed_at") <= ?1
    ORDER BY "outbox"."processed_at"
    LIMIT 1000
)
DELETE FROM "outbox"
WHERE "outbox"."id" IN (SELECT id FROM _old)
RETURNING "outbox"."id";
