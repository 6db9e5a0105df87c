-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        WITH RECURSIVE _levels(priority) AS (
            SELECT * FROM (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" IS NOT NULL
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) AS _first_level
            UNION ALL
            SELECT (
                SELECT "full_jobs"."priority" FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" > _levels.priority
                ORDER BY "full_jobs"."priority"
                LIMIT 1
            ) FROM _levels
            WHERE _levels.priority IS NOT NULL
        )
        SELECT "full_jobs"."id" AS id FROM _levels
        CROSS JOIN "full_jobs"
        WHERE "full_jobs"."id" IN (
            SELECT id FROM (
                SELECT * FROM (
                    SELECT "full_jobs"."id" AS id, COALESCE("full_jobs"."due_at", '') AS key_0 FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND COALESCE("full_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("full_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')), '') <= ?2)
                      AND "full_jobs"."priority" = _levels.priority
                      AND ("full_jobs"."locked_until" IS NULL OR ("full_jobs"."locked_until" IS NOT NULL AND CASE
                      WHEN substr("full_jobs"."locked_until", 11, 1) = 'T' OR substr("full_jobs"."locked_until", -1) = 'Z' OR substr("full_jobs"."locked_until", -6, 1) IN ('+', '-')
                      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "full_jobs"."locked_until"), "full_jobs"."locked_until") ELSE "full_jobs"."locked_until" END <= ?3))
                    ORDER BY COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
                    LIMIT 16
                ) AS _range_0
                UNION ALL
                SELECT * FROM (
                    SELECT "full_jobs"."id" AS id, COALESCE("full_jobs"."due_at", '') AS key_0 FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND COALESCE("full_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("full_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) <= ?2
                      AND "full_jobs"."priority" = _levels.priority
                      AND ("full_jobs"."locked_until" IS NULL OR ("full_jobs"."locked_until" IS NOT NULL AND CASE
                      WHEN substr("full_jobs"."locked_until", 11, 1) = 'T' OR substr("full_jobs"."locked_until", -1) = 'Z' OR substr("full_jobs"."locked_until", -6, 1) IN ('+', '-')
                      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "full_jobs"."locked_until"), "full_jobs"."locked_until") ELSE "full_jobs"."locked_until" END <= ?3))
                    ORDER BY COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
                    LIMIT 16
                ) AS _range_1
                UNION ALL
                SELECT * FROM (
                    SELECT "full_jobs"."id" AS id, COALESCE("full_jobs"."due_at", '') AS key_0 FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND COALESCE("full_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("full_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) <= ?2
                      AND "full_jobs"."priority" = _levels.priority
                      AND ("full_jobs"."locked_until" IS NULL OR ("full_jobs"."locked_until" IS NOT NULL AND CASE
                      WHEN substr("full_jobs"."locked_until", 11, 1) = 'T' OR substr("full_jobs"."locked_until", -1) = 'Z' OR substr("full_jobs"."locked_until", -6, 1) IN ('+', '-')
                      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "full_jobs"."locked_until"), "full_jobs"."locked_until") ELSE "full_jobs"."locked_until" END <= ?3))
                    ORDER BY COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
                    LIMIT 16
                ) AS _range_2
            ) AS _ranges
            ORDER BY key_0, id
            LIMIT 16
        )
        ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?4
)
UPDATE "full_jobs"
SET "locked_until" = ?5, "attempt" = CASE WHEN "full_jobs"."locked_until" IS NULL AND "full_jobs"."attempt" >= ?6 THEN 1 ELSE COALESCE("full_jobs"."attempt", 0) + 1 END, "is_running" = TRUE
FROM _due
WHERE "full_jobs"."id" = _due.id
RETURNING "full_jobs"."id", "full_jobs"."queue_name", "full_jobs"."account", "full_jobs"."headers", "full_jobs"."payload", "full_jobs"."attempt", "full_jobs"."priority", "full_jobs"."due_at";

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT COALESCE("full_jobs"."due_at", '') FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '') > ?2 AND COALESCE("full_jobs"."due_at", '') < substr(?2, 1, 10) || 'T'
                ORDER BY COALESCE("full_jobs"."due_at", '')
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_0
        UNION ALL
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '') >= date(substr(?2, 1, 10), '-1 day') || 'T' AND COALESCE("full_jobs"."due_at", '') < date(substr(?2, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) > ?2
                ORDER BY COALESCE("full_jobs"."due_at", '')
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_1
        UNION ALL
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("full_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) > ?2
                ORDER BY COALESCE("full_jobs"."due_at", '')
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_2
        UNION ALL
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("full_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')) > ?2
                ORDER BY COALESCE("full_jobs"."due_at", '')
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_3
        UNION ALL
        SELECT ahead FROM (
            WITH RECURSIVE _levels(priority) AS (
                SELECT * FROM (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" IS NOT NULL
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) AS _first_level
                UNION ALL
                SELECT (
                    SELECT "full_jobs"."priority" FROM "full_jobs"
                    WHERE "full_jobs"."queue_name" = ?1
                      AND "full_jobs"."done_at" IS NULL
                      AND "full_jobs"."error" IS NULL
                      AND "full_jobs"."priority" > _levels.priority
                    ORDER BY "full_jobs"."priority"
                    LIMIT 1
                ) FROM _levels
                WHERE _levels.priority IS NOT NULL
            )
            SELECT (
                SELECT COALESCE("full_jobs"."due_at", '') FROM "full_jobs"
                WHERE "full_jobs"."queue_name" = ?1
                  AND "full_jobs"."done_at" IS NULL
                  AND "full_jobs"."error" IS NULL
                  AND "full_jobs"."priority" = _levels.priority
                  AND COALESCE("full_jobs"."due_at", '') >= substr(?2, 1, 10) || 'U' AND (substr(COALESCE("full_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("full_jobs"."due_at", '')), COALESCE("full_jobs"."due_at", '')) > ?2)
                ORDER BY COALESCE("full_jobs"."due_at", '')
                LIMIT 1
            ) AS ahead FROM _levels
        ) AS _range_4
    ) AS _ranges
) AS due, (
    WITH RECURSIVE _levels(priority) AS (
        SELECT * FROM (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = ?1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" IS NOT NULL
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) AS _first_level
        UNION ALL
        SELECT (
            SELECT "full_jobs"."priority" FROM "full_jobs"
            WHERE "full_jobs"."queue_name" = ?1
              AND "full_jobs"."done_at" IS NULL
              AND "full_jobs"."error" IS NULL
              AND "full_jobs"."priority" > _levels.priority
            ORDER BY "full_jobs"."priority"
            LIMIT 1
        ) FROM _levels
        WHERE _levels.priority IS NOT NULL
    )
    SELECT "full_jobs"."id" AS id FROM _levels
    CROSS JOIN "full_jobs"
    WHERE "full_jobs"."id" IN (
        SELECT "full_jobs"."id" AS id FROM "full_jobs"
        WHERE "full_jobs"."queue_name" = ?1
          AND "full_jobs"."done_at" IS NULL
          AND "full_jobs"."error" IS NULL
          AND "full_jobs"."priority" = _levels.priority
        ORDER BY COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
        LIMIT 1
    )
    ORDER BY "full_jobs"."priority", COALESCE("full_jobs"."due_at", ''), "full_jobs"."id"
    LIMIT 1
) IS NOT NULL AS hidden, FALSE AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "full_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "full_jobs"."id" AS id FROM "full_jobs"
    WHERE "full_jobs"."id" = ?2 AND "full_jobs"."locked_until" = ?3
) AS _free
WHERE "full_jobs"."id" = _free.id
RETURNING "full_jobs"."id";

-- sqlqueue: is it still held
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = ?1 AND "full_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "full_jobs"."id" FROM "full_jobs"
WHERE "full_jobs"."id" = ?1 AND "full_jobs"."queue_name" = ?2
  AND "full_jobs"."done_at" IS NULL
  AND "full_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "full_jobs"
SET "done_at" = ?1, "locked_until" = NULL, "is_running" = FALSE
WHERE "full_jobs"."id" = ?2 AND "full_jobs"."locked_until" = ?3
RETURNING "full_jobs"."id";

-- sqlqueue: retry
UPDATE "full_jobs"
SET "due_at" = ?1, "locked_until" = NULL, "is_running" = FALSE
WHERE "full_jobs"."id" = ?2 AND "full_jobs"."locked_until" = ?3
RETURNING "full_jobs"."id";

-- sqlqueue: park
UPDATE "full_jobs"
SET "error" = ?1, "locked_until" = NULL, "is_running" = FALSE
WHERE "full_jobs"."id" = ?2 AND "full_jobs"."locked_until" = ?3
RETURNING "full_jobs"."id";

-- sqlqueue: release
UPDATE "full_jobs"
SET "locked_until" = ?1, "attempt" = "full_jobs"."attempt" - 1, "is_running" = FALSE
WHERE "full_jobs"."id" = ?2 AND "full_jobs"."locked_until" = ?3
RETURNING "full_jobs"."id";
