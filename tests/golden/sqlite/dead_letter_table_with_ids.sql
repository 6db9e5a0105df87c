-- sqlqueue: move to another table
INSERT INTO "kept_dead_jobs" ("id", "payload")
SELECT "jobs"."id", "jobs"."payload" FROM "jobs"
WHERE "jobs"."id" = ?1 AND "jobs"."locked_until" = ?2;

-- sqlqueue: move to another table
DELETE FROM "jobs"
WHERE "jobs"."id" = ?1 AND "jobs"."locked_until" = ?2
RETURNING "jobs"."id";
