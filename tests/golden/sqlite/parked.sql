-- sqlqueue: list the parked rows
SELECT "full_jobs"."id", "full_jobs"."attempt", "full_jobs"."error", "full_jobs"."id", "full_jobs"."queue_name", "full_jobs"."account", "full_jobs"."headers", "full_jobs"."payload" FROM "full_jobs"
WHERE "full_jobs"."queue_name" = ?1
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NOT NULL
ORDER BY "full_jobs"."id"
LIMIT ?2;

-- sqlqueue: requeue
UPDATE "full_jobs"
SET "error" = NULL, "attempt" = 0, "locked_until" = NULL, "is_running" = FALSE
WHERE "full_jobs"."id" = ?1 AND "full_jobs"."queue_name" = ?2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NOT NULL
RETURNING "full_jobs"."id";

-- sqlqueue: requeue all
UPDATE "full_jobs"
SET "error" = NULL, "attempt" = 0, "locked_until" = NULL, "is_running" = FALSE
WHERE "full_jobs"."queue_name" = ?1
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NOT NULL
RETURNING "full_jobs"."id";
