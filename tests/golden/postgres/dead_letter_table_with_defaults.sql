-- sqlqueue: move to another table
WITH _gone AS (
    DELETE FROM "noted_jobs"
    WHERE "noted_jobs"."id" = $1 AND "noted_jobs"."locked_until" = $2
    RETURNING "noted_jobs"."id" AS _id, "noted_jobs"."payload" AS _kept_0, COALESCE("noted_jobs"."note", $3) AS _kept_1, COALESCE("noted_jobs"."number", $4) AS _kept_2, COALESCE("noted_jobs"."noted_at", $5) AS _kept_3, COALESCE("noted_jobs"."more", $6) AS _kept_4, COALESCE("noted_jobs"."token", $7) AS _kept_5
),
_moved AS (
    INSERT INTO "noted_dead_jobs" ("payload", "note", "number", "noted_at", "more", "token")
    SELECT _kept_0, _kept_1, _kept_2, _kept_3, _kept_4, _kept_5 FROM _gone
)
SELECT _id FROM _gone;
