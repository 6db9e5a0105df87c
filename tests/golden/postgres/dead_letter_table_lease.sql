-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "full_jobs"
    USING unnest($1::bigint[], $2::timestamptz[], $3::jsonb[]) AS _given(id, token, headers)
    WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
    RETURNING "full_jobs"."id" AS _id, _given.headers AS _kept_0, "full_jobs"."payload" AS _kept_1, "full_jobs"."account" AS _kept_2
),
_moved AS (
    INSERT INTO "dead_jobs" ("again_at", "tries", "notes", "body", "account", "state")
    SELECT $4, 0, _kept_0, _kept_1, _kept_2, $5 FROM _gone
)
SELECT _id FROM _gone;
