-- sqlqueue: claim by advisory lock
WITH _candidates AS MATERIALIZED (
    SELECT "full_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) AS number FROM "full_jobs"
    JOIN (
        WITH RECURSIVE _levels(priority) AS (
            SELECT * FROM (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" IS NOT NULL
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) AS _first_level
            UNION ALL
            SELECT (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" > _levels.priority
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) FROM _levels
            WHERE _levels.priority IS NOT NULL
        )
        SELECT _found.id AS id FROM _levels
        CROSS JOIN LATERAL (
            SELECT "full_jobs"."id" AS id FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $4
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
              AND "full_jobs"."priority" = _levels.priority
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 32
        ) AS _found
        LIMIT 32
    ) AS _waiting ON "full_jobs"."id" = _waiting.id
    ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3, c4, c5, c6, c7) AS (
    UPDATE "full_jobs"
    SET "attempt" = CASE WHEN "full_jobs"."attempt" > $7 + 1 THEN 1 WHEN "full_jobs"."attempt" > $7 THEN "full_jobs"."attempt" ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
    FROM (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."id" = (SELECT _locked.id FROM _locked) AND "full_jobs"."queue_name" = $4
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "full_jobs"."id" = _free.id
    RETURNING "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _taken.c5, _taken.c6, _taken.c7, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: claim by advisory lock, past those held
WITH _held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),_candidates AS MATERIALIZED (
    SELECT "full_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) AS number FROM "full_jobs"
    JOIN (
        WITH RECURSIVE _levels(priority) AS (
            SELECT * FROM (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" IS NOT NULL
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) AS _first_level
            UNION ALL
            SELECT (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" > _levels.priority
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) FROM _levels
            WHERE _levels.priority IS NOT NULL
        )
        SELECT _found.id AS id FROM _levels
        CROSS JOIN LATERAL (
            SELECT "full_jobs"."id" AS id FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $4
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
              AND "full_jobs"."priority" = _levels.priority
              AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) NOT IN (SELECT number FROM _held)
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 32
        ) AS _found
        LIMIT 32
    ) AS _waiting ON "full_jobs"."id" = _waiting.id
    ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
_taken(c0, c1, c2, c3, c4, c5, c6, c7) AS (
    UPDATE "full_jobs"
    SET "attempt" = CASE WHEN "full_jobs"."attempt" > $7 + 1 THEN 1 WHEN "full_jobs"."attempt" > $7 THEN "full_jobs"."attempt" ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
    FROM (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."id" = (SELECT _locked.id FROM _locked) AND "full_jobs"."queue_name" = $4
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _free
    WHERE "full_jobs"."id" = _free.id
    RETURNING "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at"
)
SELECT _taken.c0, _taken.c1, _taken.c2, _taken.c3, _taken.c4, _taken.c5, _taken.c6, _taken.c7, _locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = $1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = $1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) > $2 AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
                ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz)
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    WITH RECURSIVE _levels(priority) AS (
        SELECT * FROM (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" IS NOT NULL
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) AS _first_level
        UNION ALL
        SELECT (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" > _levels.priority
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) FROM _levels
        WHERE _levels.priority IS NOT NULL
    )
    SELECT _found.id AS id FROM _levels
    CROSS JOIN LATERAL (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."queue_name" = $1
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $2
          AND hashtextextended(CAST($3 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($4 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($5 AS text), 0) NOT IN (
        SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        )
          AND "full_jobs"."priority" = _levels.priority
        ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
        LIMIT 1
    ) AS _found
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: unlock
SELECT pg_advisory_unlock($1) AS unlocked;

-- sqlqueue: lock again
SELECT pg_try_advisory_lock($1) AS locked;

-- sqlqueue: find again
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1 AND "full_jobs"."queue_name" = $2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL
  AND "full_jobs"."attempt" = $3;

-- sqlqueue: is it unfinished
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1 AND "full_jobs"."queue_name" = $2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "full_jobs"
SET "done_at" = $1, "is_running" = FALSE
WHERE "full_jobs"."id" = $2
RETURNING "full_jobs"."id";

-- sqlqueue: retry
UPDATE "full_jobs"
SET "due_at" = $1, "is_running" = FALSE
WHERE "full_jobs"."id" = $2
RETURNING "full_jobs"."id";

-- sqlqueue: park
UPDATE "full_jobs"
SET "error" = $1, "attempt" = CASE WHEN "full_jobs"."attempt" >= $2 THEN $2 + 2 ELSE "full_jobs"."attempt" END, "is_running" = FALSE
WHERE "full_jobs"."id" = $3
RETURNING "full_jobs"."id";

-- sqlqueue: release
UPDATE "full_jobs"
SET "attempt" = "full_jobs"."attempt" - 1, "is_running" = FALSE
WHERE "full_jobs"."id" = $1
RETURNING "full_jobs"."id";
