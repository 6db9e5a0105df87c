-- sqlqueue: move to another table
INSERT INTO "token_dead_jobs" ("payload", "token")
SELECT "jobs"."payload", ?1 FROM "jobs"
WHERE "jobs"."id" = ?2 AND "jobs"."locked_until" = ?3;

-- sqlqueue: move to another table
DELETE FROM "jobs"
WHERE "jobs"."id" = ?1 AND "jobs"."locked_until" = ?2
RETURNING "jobs"."id";
