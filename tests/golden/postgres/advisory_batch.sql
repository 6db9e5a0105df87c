-- sqlqueue: claim by advisory lock
WITH _candidates AS MATERIALIZED (
    SELECT "kept_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT (SELECT 50)
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE pg_try_advisory_lock(number)
    LIMIT $4
),
_taken(c0, c1, c2, c3, c4) AS (
    UPDATE "kept_jobs"
    SET "attempt" = CASE WHEN "kept_jobs"."attempt" > $5 + 1 THEN 1 WHEN "kept_jobs"."attempt" > $5 THEN "kept_jobs"."attempt" ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END
    FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."id" = ANY (ARRAY(SELECT _locked.id FROM _locked)) AND "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "kept_jobs"."id" = _free.id
    RETURNING "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, "kept_jobs"."attempt", "kept_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON _taken.c0 = _locked.id
ORDER BY _taken.c0 IS NULL;

-- sqlqueue: claim by advisory lock, onward
WITH _candidates AS MATERIALIZED (
    SELECT "kept_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND (COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id") >= (COALESCE($4, '-infinity'::timestamptz), $5)
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT (SELECT 50)
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3, c4) AS (
    UPDATE "kept_jobs"
    SET "attempt" = CASE WHEN "kept_jobs"."attempt" > $7 + 1 THEN 1 WHEN "kept_jobs"."attempt" > $7 THEN "kept_jobs"."attempt" ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END
    FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."id" = ANY (ARRAY(SELECT _locked.id FROM _locked)) AND "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "kept_jobs"."id" = _free.id
    RETURNING "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, "kept_jobs"."attempt", "kept_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON _taken.c0 = _locked.id
ORDER BY _taken.c0 IS NULL;

-- sqlqueue: claim by advisory lock, past those held
WITH _held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),_candidates AS MATERIALIZED (
    SELECT "kept_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) NOT IN (SELECT number FROM _held)
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT (SELECT 50)
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE pg_try_advisory_lock(number)
    LIMIT $4
),
_taken(c0, c1, c2, c3, c4) AS (
    UPDATE "kept_jobs"
    SET "attempt" = CASE WHEN "kept_jobs"."attempt" > $5 + 1 THEN 1 WHEN "kept_jobs"."attempt" > $5 THEN "kept_jobs"."attempt" ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END
    FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."id" = ANY (ARRAY(SELECT _locked.id FROM _locked)) AND "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "kept_jobs"."id" = _free.id
    RETURNING "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, "kept_jobs"."attempt", "kept_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON _taken.c0 = _locked.id
ORDER BY _taken.c0 IS NULL;

-- sqlqueue: claim by advisory lock, past those held, onward
WITH _held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),_candidates AS MATERIALIZED (
    SELECT "kept_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) AS number FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
      AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($2 AS text), 0) NOT IN (SELECT number FROM _held)
      AND (COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id") >= (COALESCE($4, '-infinity'::timestamptz), $5)
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT (SELECT 50)
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3, c4) AS (
    UPDATE "kept_jobs"
    SET "attempt" = CASE WHEN "kept_jobs"."attempt" > $7 + 1 THEN 1 WHEN "kept_jobs"."attempt" > $7 THEN "kept_jobs"."attempt" ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END
    FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."id" = ANY (ARRAY(SELECT _locked.id FROM _locked)) AND "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "kept_jobs"."id" = _free.id
    RETURNING "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, "kept_jobs"."attempt", "kept_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON _taken.c0 = _locked.id
ORDER BY _taken.c0 IS NULL;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "kept_jobs"
            WHERE "kept_jobs"."done_at" IS NULL
              AND "kept_jobs"."error" IS NULL
              AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz)
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $1
      AND hashtextextended(CAST($2 AS text) || COALESCE(CAST("kept_jobs"."id" AS text), '') || CAST($3 AS text), 0) NOT IN (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: unlock
SELECT pg_advisory_unlock(_given.number) AS unlocked
FROM unnest($1::bigint[]) AS _given(number);

-- sqlqueue: lock again
SELECT pg_try_advisory_lock($1) AS locked;

-- sqlqueue: find again
SELECT "kept_jobs"."id" FROM "kept_jobs"
WHERE "kept_jobs"."id" = $1 AND "kept_jobs"."done_at" IS NULL
  AND "kept_jobs"."error" IS NULL
  AND "kept_jobs"."attempt" = $2;

-- sqlqueue: is it unfinished
SELECT "kept_jobs"."id" FROM "kept_jobs"
WHERE "kept_jobs"."id" = $1 AND "kept_jobs"."done_at" IS NULL
  AND "kept_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "kept_jobs"
SET "done_at" = $1
FROM unnest($2::bigint[]) AS _given(id)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";

-- sqlqueue: retry
UPDATE "kept_jobs"
SET "due_at" = _given.due
FROM unnest($1::bigint[], $2::timestamptz[]) AS _given(id, due)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";

-- sqlqueue: park
UPDATE "kept_jobs"
SET "error" = _given.error, "attempt" = CASE WHEN "kept_jobs"."attempt" >= $1 THEN $1 + 2 ELSE "kept_jobs"."attempt" END
FROM unnest($2::bigint[], $3::text[]) AS _given(id, error)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";

-- sqlqueue: release
UPDATE "kept_jobs"
SET "attempt" = "kept_jobs"."attempt" - 1
FROM unnest($1::bigint[]) AS _given(id)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";
