-- sqlqueue: find the newest record
SELECT "outbox"."id" AS newest FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND quote("outbox"."name") IN (SELECT value FROM json_each(?1))
ORDER BY "outbox"."id" DESC
LIMIT 1;

-- sqlqueue: the first unprocessed records
SELECT "outbox"."id", "outbox"."name", "outbox"."payload", "outbox"."account", "outbox"."headers", "outbox"."id" <= ?1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND quote("outbox"."name") IN (SELECT value FROM json_each(?2))
ORDER BY "outbox"."id"
LIMIT ?3;

-- sqlqueue: the next unprocessed records
SELECT "outbox"."id", "outbox"."name", "outbox"."payload", "outbox"."account", "outbox"."headers", "outbox"."id" <= ?1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND quote("outbox"."name") IN (SELECT value FROM json_each(?2))
  AND "outbox"."id" > ?3
ORDER BY "outbox"."id"
LIMIT ?4;
