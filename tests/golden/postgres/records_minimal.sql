-- sqlqueue: insert
INSERT INTO "short_outbox" ("id", "name", "payload")
VALUES ($1, $2, $3)
RETURNING "short_outbox"."id";

-- sqlqueue: find records
SELECT "short_outbox"."id" AS id, "short_outbox"."name"::text AS destination, CASE WHEN TRUE THEN 0 ELSE 1 END AS processed FROM "short_outbox"
CROSS JOIN unnest($1::uuid[]) AS _given(id)
WHERE "short_outbox"."id" = _given.id;

-- sqlqueue: forget records
DELETE FROM "short_outbox"
USING unnest($1::uuid[]) AS _given(id)
WHERE "short_outbox"."id" = _given.id
RETURNING "short_outbox"."id";

-- sqlqueue: find the newest record
SELECT "short_outbox"."id" AS newest FROM "short_outbox"
WHERE TRUE
ORDER BY "short_outbox"."id" DESC
LIMIT 1;

-- sqlqueue: the first unprocessed records
SELECT "short_outbox"."id", "short_outbox"."name"::text, "short_outbox"."payload"::text, "short_outbox"."id" <= $1 AS wanted FROM "short_outbox"
WHERE TRUE
ORDER BY "short_outbox"."id"
LIMIT $2;

-- sqlqueue: the next unprocessed records
SELECT "short_outbox"."id", "short_outbox"."name"::text, "short_outbox"."payload"::text, "short_outbox"."id" <= $1 AS wanted FROM "short_outbox"
WHERE TRUE
  AND "short_outbox"."id" > $2
ORDER BY "short_outbox"."id"
LIMIT $3;
