-- sqlqueue: move to another table
INSERT INTO "dead_jobs" ("again_at", "tries", "notes", "body", "account", "state")
SELECT ?1, 0, ?2, "full_jobs"."payload", "full_jobs"."account", ?3 FROM "full_jobs"
WHERE "full_jobs"."id" = ?4;

-- sqlqueue: move to another table
DELETE FROM "full_jobs"
WHERE "full_jobs"."id" = ?1
RETURNING "full_jobs"."id";
