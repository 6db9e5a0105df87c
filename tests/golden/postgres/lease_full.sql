-- sqlqueue: claim by lease
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
              AND ("full_jobs"."locked_until" IS NULL OR "full_jobs"."locked_until" <= $3)
            ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
            LIMIT 16
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS _found
        LIMIT 16
    ) AS _waiting
    LIMIT $4
)
UPDATE "full_jobs"
SET "locked_until" = $5, "attempt" = CASE WHEN "full_jobs"."locked_until" IS NULL AND "full_jobs"."attempt" >= $6 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
FROM _due
WHERE "full_jobs"."id" = _due.id
RETURNING "full_jobs"."id", "full_jobs"."queue_name"::text, "full_jobs"."account"::text, "full_jobs"."headers", "full_jobs"."payload"::text, "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at";

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
          AND ("full_jobs"."locked_until" IS NULL OR "full_jobs"."locked_until" <= $3)
          AND "full_jobs"."priority" = _levels.priority
        ORDER BY COALESCE("full_jobs"."due_at", '-infinity'::timestamptz), "full_jobs"."id"
        LIMIT 1
    ) AS _found
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "full_jobs"
SET "locked_until" = $1
FROM (
    SELECT "full_jobs"."id" AS id FROM "full_jobs"
    CROSS JOIN unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
    WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "full_jobs"."id" = _free.id
RETURNING "full_jobs"."id";

-- sqlqueue: is it still held
SELECT "full_jobs"."id" FROM "full_jobs"
CROSS JOIN unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = $1 AND "full_jobs"."queue_name" = $2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "full_jobs"
SET "done_at" = $1, "locked_until" = NULL, "is_running" = FALSE
FROM unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
RETURNING "full_jobs"."id";

-- sqlqueue: retry
UPDATE "full_jobs"
SET "due_at" = _given.due, "locked_until" = NULL, "is_running" = FALSE
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, due)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
RETURNING "full_jobs"."id";

-- sqlqueue: park
UPDATE "full_jobs"
SET "error" = _given.error, "locked_until" = NULL, "is_running" = FALSE
FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS _given(id, token, error)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
RETURNING "full_jobs"."id";

-- sqlqueue: release
UPDATE "full_jobs"
SET "locked_until" = _given.until, "attempt" = "full_jobs"."attempt" - 1, "is_running" = FALSE
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, until)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
RETURNING "full_jobs"."id";
