-- sqlqueue: find the newest record
SELECT "outbox"."id" AS newest FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND "outbox"."name"::text = ANY($1::text[])
ORDER BY "outbox"."id" DESC
LIMIT 1;

-- sqlqueue: the first unprocessed records
SELECT "outbox"."id", "outbox"."name"::text, "outbox"."payload", "outbox"."account"::text, "outbox"."headers", "outbox"."id" <= $1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND "outbox"."name"::text = ANY($2::text[])
ORDER BY "outbox"."id"
LIMIT $3;

-- sqlqueue: the next unprocessed records
SELECT "outbox"."id", "outbox"."name"::text, "outbox"."payload", "outbox"."account"::text, "outbox"."headers", "outbox"."id" <= $1 AS wanted FROM "outbox"
WHERE "outbox"."processed_at" IS NULL
  AND "outbox"."name"::text = ANY($2::text[])
  AND "outbox"."id" > $3
ORDER BY "outbox"."id"
LIMIT $4;
