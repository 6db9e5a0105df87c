-- sqlqueue: move to another table
INSERT INTO "noted_dead_jobs" ("payload", "note", "number", "noted_at", "more", "token")
SELECT "noted_jobs"."payload", COALESCE("noted_jobs"."note", ?1), COALESCE("noted_jobs"."number", ?2), COALESCE("noted_jobs"."noted_at", ?3), COALESCE("noted_jobs"."more", ?4), COALESCE("noted_jobs"."token", ?5) FROM "noted_jobs"
WHERE "noted_jobs"."id" = ?6 AND "noted_jobs"."locked_until" = ?7;

-- sqlqueue: move to another table
DELETE FROM "noted_jobs"
WHERE "noted_jobs"."id" = ?1 AND "noted_jobs"."locked_until" = ?2
RETURNING "noted_jobs"."id";
