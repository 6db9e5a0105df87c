-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "full_jobs"
    WHERE "full_jobs"."id" = $1
    RETURNING "full_jobs"."id" AS _id, "full_jobs"."payload" AS _kept_0, "full_jobs"."account" AS _kept_1
),
_moved AS (
    INSERT INTO "dead_jobs" ("again_at", "tries", "notes", "body", "account", "state")
    SELECT $2, 0, $3, _kept_0, _kept_1, $4 FROM _gone
)
SELECT _id FROM _gone;
