-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM (
            SELECT * FROM (
                SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
                WHERE COALESCE("counted_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?1)
                  AND ("counted_jobs"."locked_until" IS NULL OR ("counted_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("counted_jobs"."locked_until", 11, 1) = 'T' OR substr("counted_jobs"."locked_until", -1) = 'Z' OR substr("counted_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "counted_jobs"."locked_until"), "counted_jobs"."locked_until") ELSE "counted_jobs"."locked_until" END <= ?2))
                ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
                LIMIT 16
            ) AS _range_0
            UNION ALL
            SELECT * FROM (
                SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
                WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?1
                  AND ("counted_jobs"."locked_until" IS NULL OR ("counted_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("counted_jobs"."locked_until", 11, 1) = 'T' OR substr("counted_jobs"."locked_until", -1) = 'Z' OR substr("counted_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "counted_jobs"."locked_until"), "counted_jobs"."locked_until") ELSE "counted_jobs"."locked_until" END <= ?2))
                ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
                LIMIT 16
            ) AS _range_1
            UNION ALL
            SELECT * FROM (
                SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
                WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?1
                  AND ("counted_jobs"."locked_until" IS NULL OR ("counted_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("counted_jobs"."locked_until", 11, 1) = 'T' OR substr("counted_jobs"."locked_until", -1) = 'Z' OR substr("counted_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "counted_jobs"."locked_until"), "counted_jobs"."locked_until") ELSE "counted_jobs"."locked_until" END <= ?2))
                ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
                LIMIT 16
            ) AS _range_2
        ) AS _ranges
        ORDER BY key_0, id
        LIMIT 16
    ) AS _waiting
    LIMIT ?3
)
UPDATE "counted_jobs"
SET "locked_until" = ?4, "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
FROM _due
WHERE "counted_jobs"."id" = _due.id
RETURNING "counted_jobs"."id", "counted_jobs"."payload", "counted_jobs"."attempt", "counted_jobs"."due_at";

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("counted_jobs"."due_at", '') AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') > ?1 AND COALESCE("counted_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
            ORDER BY COALESCE("counted_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_0
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("counted_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_1
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("counted_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_2
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("counted_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_3
        UNION ALL
        SELECT ahead FROM (
            SELECT COALESCE("counted_jobs"."due_at", '') AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("counted_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), COALESCE("counted_jobs"."due_at", '')) > ?1)
            ORDER BY COALESCE("counted_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_4
    ) AS _ranges
) AS due, (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE TRUE
    ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
    LIMIT 1
) IS NOT NULL AS hidden, FALSE AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "counted_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE "counted_jobs"."id" = ?2 AND "counted_jobs"."locked_until" = ?3
) AS _free
WHERE "counted_jobs"."id" = _free.id
RETURNING "counted_jobs"."id";

-- sqlqueue: is it still held
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1 AND "counted_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1 AND "counted_jobs"."locked_until" = ?2
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "counted_jobs"."id" = ?2 AND "counted_jobs"."locked_until" = ?3
RETURNING "counted_jobs"."id";

-- sqlqueue: release
UPDATE "counted_jobs"
SET "locked_until" = ?1, "attempt" = "counted_jobs"."attempt" - 1
WHERE "counted_jobs"."id" = ?2 AND "counted_jobs"."locked_until" = ?3
RETURNING "counted_jobs"."id";
