-- sqlqueue: claim by row lock
WITH _due AS MATERIALIZED (
    SELECT id FROM (
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
              AND "full_jobs"."priority" = _levels.priority
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS _found
        LIMIT 1
    ) AS _waiting
    LIMIT $3
)
SELECT "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, CASE WHEN "full_jobs"."attempt" >= $4 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "full_jobs"."priority", "full_jobs"."due_at" FROM "full_jobs"
JOIN _due ON "full_jobs"."id" = _due.id
FOR NO KEY UPDATE SKIP LOCKED;

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
          AND "full_jobs"."priority" = _levels.priority
        ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
        LIMIT 1 OFFSET $3
    ) AS _found
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: lock again
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1 AND "full_jobs"."queue_name" = $2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL
  AND CASE WHEN "full_jobs"."attempt" >= $3 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END = $4
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: is it unfinished
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1 AND "full_jobs"."queue_name" = $2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "full_jobs"
SET "done_at" = $1, "attempt" = $2
WHERE "full_jobs"."id" = $3
RETURNING "full_jobs"."id";

-- sqlqueue: retry
UPDATE "full_jobs"
SET "due_at" = $1, "attempt" = $2
WHERE "full_jobs"."id" = $3
RETURNING "full_jobs"."id";

-- sqlqueue: park
UPDATE "full_jobs"
SET "error" = $1, "attempt" = $2
WHERE "full_jobs"."id" = $3
RETURNING "full_jobs"."id";
