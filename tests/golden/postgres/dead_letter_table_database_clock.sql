-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "counted_jobs"
    WHERE "counted_jobs"."id" = $1
    RETURNING "counted_jobs"."id" AS _id, "counted_jobs"."payload" AS _kept_0
),
_moved AS (
    INSERT INTO "dead_jobs" ("again_at", "tries", "notes", "body", "state")
    SELECT statement_timestamp(), 0, $2, _kept_0, $3 FROM _gone
)
SELECT _id FROM _gone;
