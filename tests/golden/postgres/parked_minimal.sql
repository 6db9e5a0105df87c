-- sqlqueue: list the parked rows
SELECT "raw_jobs"."id", NULL, "raw_jobs"."error", "raw_jobs"."id", "raw_jobs"."headers", "raw_jobs"."payload" FROM "raw_jobs"
WHERE "raw_jobs"."error" IS NOT NULL
ORDER BY "raw_jobs"."id"
LIMIT $1;

-- sqlqueue: requeue
UPDATE "raw_jobs"
SET "error" = NULL, "locked_until" = NULL
FROM unnest($1::bigint[]) AS _given(id)
WHERE "raw_jobs"."id" = _given.id AND "raw_jobs"."error" IS NOT NULL
RETURNING "raw_jobs"."id";

-- sqlqueue: requeue all
UPDATE "raw_jobs"
SET "error" = NULL, "locked_until" = NULL
WHERE "raw_jobs"."error" IS NOT NULL
RETURNING "raw_jobs"."id";
