-- sqlqueue: claim by advisory lock
WITH candidates AS MATERIALIZED (
    SELECT "full_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) AS number FROM "full_jobs"
    JOIN (
        WITH RECURSIVE levels(priority) AS (
            SELECT * FROM (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" IS NOT NULL
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) AS first_level
            UNION ALL
            SELECT (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" > levels.priority
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) FROM levels
            WHERE levels.priority IS NOT NULL
        )
        SELECT found.id AS id FROM levels
        CROSS JOIN LATERAL (
            SELECT "full_jobs"."id" AS id FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $4
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
              AND "full_jobs"."priority" = levels.priority
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 32
        ) AS found
        LIMIT 32
    ) AS waiting ON "full_jobs"."id" = waiting.id
    ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
),
locked AS MATERIALIZED (
    SELECT id, number FROM candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
taken(c0, c1, c2, c3, c4, c5, c6, c7) AS (
    UPDATE "full_jobs"
    SET "attempt" = CASE WHEN "full_jobs"."attempt" > $7 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
    FROM (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."id" = (SELECT locked.id FROM locked) AND "full_jobs"."queue_name" = $4
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free
    WHERE "full_jobs"."id" = free.id
    RETURNING "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at"
)
SELECT taken.c0, taken.c1, taken.c2, taken.c3, taken.c4, taken.c5, taken.c6, taken.c7, locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN locked
LEFT JOIN taken ON TRUE;

-- sqlqueue: claim by advisory lock, past those held
WITH held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
),candidates AS MATERIALIZED (
    SELECT "full_jobs"."id" AS id, hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) AS number FROM "full_jobs"
    JOIN (
        WITH RECURSIVE levels(priority) AS (
            SELECT * FROM (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" IS NOT NULL
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) AS first_level
            UNION ALL
            SELECT (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $4
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" > levels.priority
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) FROM levels
            WHERE levels.priority IS NOT NULL
        )
        SELECT found.id AS id FROM levels
        CROSS JOIN LATERAL (
            SELECT "full_jobs"."id" AS id FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $4
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
              AND "full_jobs"."priority" = levels.priority
              AND hashtextextended(CAST($1 AS text) || COALESCE(CAST("full_jobs"."account" AS text), '') || CAST($2 AS text) || COALESCE(CAST("full_jobs"."id" AS text), '') || CAST($3 AS text), 0) NOT IN (SELECT number FROM held)
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 32
        ) AS found
        LIMIT 32
    ) AS waiting ON "full_jobs"."id" = waiting.id
    ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
),
locked AS MATERIALIZED (
    SELECT id, number FROM candidates
    WHERE pg_try_advisory_lock(number)
    LIMIT $6
),
taken(c0, c1, c2, c3, c4, c5, c6, c7) AS (
    UPDATE "full_jobs"
    SET "attempt" = CASE WHEN "full_jobs"."attempt" > $7 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
    FROM (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."id" = (SELECT locked.id FROM locked) AND "full_jobs"."queue_name" = $4
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) <= $5
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free
    WHERE "full_jobs"."id" = free.id
    RETURNING "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at"
)
SELECT taken.c0, taken.c1, taken.c2, taken.c3, taken.c4, taken.c5, taken.c6, taken.c7, locked.number FROM set_config('synchronous_commit', 'off', true)
CROSS JOIN locked
LEFT JOIN taken ON TRUE;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            WITH RECURSIVE levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = $1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = $1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM levels
                WHERE levels.priority IS NOT NULL
            )
            SELECT (
                SELECT COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = $1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = levels.priority
                  AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) > $2 AND COALESCE("full_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
                ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz)
                LIMIT 1
            ) AS ahead FROM levels
        ) AS range_0
    ) AS ranges
) AS due, TRUE AS hidden, (
    WITH RECURSIVE levels(priority) AS (
        SELECT * FROM (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" IS NOT NULL
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) AS first_level
        UNION ALL
        SELECT (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = $1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" > levels.priority
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) FROM levels
        WHERE levels.priority IS NOT NULL
    )
    SELECT found.id AS id FROM levels
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
          AND "full_jobs"."priority" = levels.priority
        ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
        LIMIT 1
    ) AS found
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: unlock
SELECT pg_advisory_unlock($1) AS unlocked;

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
SET "error" = $1, "attempt" = CASE WHEN "full_jobs"."attempt" >= $2 THEN "full_jobs"."attempt" + 1 ELSE "full_jobs"."attempt" END, "is_running" = FALSE
WHERE "full_jobs"."id" = $3
RETURNING "full_jobs"."id";

-- sqlqueue: release
UPDATE "full_jobs"
SET "attempt" = "full_jobs"."attempt" - 1, "is_running" = FALSE
WHERE "full_jobs"."id" = $1
RETURNING "full_jobs"."id";
