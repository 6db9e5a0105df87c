-- sqlqueue: claim by advisory lock
WITH _candidates AS MATERIALIZED (
    SELECT "counted_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT (SELECT 32)
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $4
),
_taken(c0, c1, c2, c3) AS (
    UPDATE "counted_jobs"
    SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
    FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE "counted_jobs"."id" = (SELECT _locked.id FROM _locked) AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "counted_jobs"."id" = _free.id
    RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: claim by advisory lock, onward
WITH _candidates AS MATERIALIZED (
    SELECT "counted_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND (COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id") >= (COALESCE($4, '-infinity'::timestamptz), $5)
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT (SELECT 32)
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3) AS (
    UPDATE "counted_jobs"
    SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
    FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE "counted_jobs"."id" = (SELECT _locked.id FROM _locked) AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "counted_jobs"."id" = _free.id
    RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: claim by advisory lock, past those held
WITH _held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),_candidates AS MATERIALIZED (
    SELECT "counted_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) NOT IN (SELECT number FROM _held)
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT (SELECT 32)
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $4
),
_taken(c0, c1, c2, c3) AS (
    UPDATE "counted_jobs"
    SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
    FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE "counted_jobs"."id" = (SELECT _locked.id FROM _locked) AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "counted_jobs"."id" = _free.id
    RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: claim by advisory lock, past those held, onward
WITH _held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),_candidates AS MATERIALIZED (
    SELECT "counted_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text), 0) NOT IN (SELECT number FROM _held)
      AND (COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id") >= (COALESCE($4, '-infinity'::timestamptz), $5)
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT (SELECT 32)
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3) AS (
    UPDATE "counted_jobs"
    SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
    FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE "counted_jobs"."id" = (SELECT _locked.id FROM _locked) AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "counted_jobs"."id" = _free.id
    RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz)
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
      AND hashtextextended(CAST($2 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($3 AS text), 0) NOT IN (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: unlock
SELECT pg_advisory_unlock($1) AS unlocked;

-- sqlqueue: lock again
SELECT pg_try_advisory_lock($1) AS locked;

-- sqlqueue: find again
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND "counted_jobs"."attempt" = $2;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = $1
WHERE "counted_jobs"."id" = $2
RETURNING "counted_jobs"."id";

-- sqlqueue: release
UPDATE "counted_jobs"
SET "attempt" = "counted_jobs"."attempt" - 1
WHERE "counted_jobs"."id" = $1
RETURNING "counted_jobs"."id";
