-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "jobs"
    WHERE "jobs"."id" = $1 AND "jobs"."locked_until" = $2
    RETURNING "jobs"."id" AS _id, "jobs"."payload" AS _kept_0
),
_moved AS (
    INSERT INTO "token_dead_jobs" ("payload", "token")
    SELECT _kept_0, $3 FROM _gone
)
SELECT _id FROM _gone;
