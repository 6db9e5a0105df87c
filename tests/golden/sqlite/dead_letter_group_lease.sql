-- sqlqueue: move to another group
UPDATE "full_jobs"
SET "queue_name" = ?1, "due_at" = NULL, "attempt" = 0, "locked_until" = NULL, "headers" = ?2, "is_running" = FALSE
WHERE "full_jobs"."id" = ?3 AND "full_jobs"."locked_until" = ?4
RETURNING "full_jobs"."id";
