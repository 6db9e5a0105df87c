-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "jobs"
    USING unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
    WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token
    RETURNING "jobs"."id" AS _id, "jobs"."id" AS _kept_0, "jobs"."payload" AS _kept_1
),
_moved AS (
    INSERT INTO "kept_dead_jobs" ("id", "payload")
    SELECT _kept_0, _kept_1 FROM _gone
)
SELECT _id FROM _gone;
