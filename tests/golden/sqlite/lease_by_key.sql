-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM (
            SELECT * FROM (
                SELECT "keyed_jobs"."id" AS id, COALESCE("keyed_jobs"."due_at", '') AS key_0 FROM "keyed_jobs"
                WHERE COALESCE("keyed_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("keyed_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')), '') <= ?1)
                  AND ("keyed_jobs"."locked_until" IS NULL OR ("keyed_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("keyed_jobs"."locked_until", 11, 1) = 'T' OR substr("keyed_jobs"."locked_until", -1) = 'Z' OR substr("keyed_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "keyed_jobs"."locked_until"), "keyed_jobs"."locked_until") ELSE "keyed_jobs"."locked_until" END <= ?2))
                  AND ("keyed_jobs"."account" IS NULL OR NOT quote("keyed_jobs"."account") IN (SELECT value FROM json_each(?3)) OR quote("keyed_jobs"."id") IN (SELECT value FROM json_each(?4)))
                ORDER BY COALESCE("keyed_jobs"."due_at", ''), "keyed_jobs"."id"
                LIMIT 16
            ) AS _range_0
            UNION ALL
            SELECT * FROM (
                SELECT "keyed_jobs"."id" AS id, COALESCE("keyed_jobs"."due_at", '') AS key_0 FROM "keyed_jobs"
                WHERE COALESCE("keyed_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("keyed_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) <= ?1
                  AND ("keyed_jobs"."locked_until" IS NULL OR ("keyed_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("keyed_jobs"."locked_until", 11, 1) = 'T' OR substr("keyed_jobs"."locked_until", -1) = 'Z' OR substr("keyed_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "keyed_jobs"."locked_until"), "keyed_jobs"."locked_until") ELSE "keyed_jobs"."locked_until" END <= ?2))
                  AND ("keyed_jobs"."account" IS NULL OR NOT quote("keyed_jobs"."account") IN (SELECT value FROM json_each(?3)) OR quote("keyed_jobs"."id") IN (SELECT value FROM json_each(?4)))
                ORDER BY COALESCE("keyed_jobs"."due_at", ''), "keyed_jobs"."id"
                LIMIT 16
            ) AS _range_1
            UNION ALL
            SELECT * FROM (
                SELECT "keyed_jobs"."id" AS id, COALESCE("keyed_jobs"."due_at", '') AS key_0 FROM "keyed_jobs"
                WHERE COALESCE("keyed_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("keyed_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) <= ?1
                  AND ("keyed_jobs"."locked_until" IS NULL OR ("keyed_jobs"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("keyed_jobs"."locked_until", 11, 1) = 'T' OR substr("keyed_jobs"."locked_until", -1) = 'Z' OR substr("keyed_jobs"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "keyed_jobs"."locked_until"), "keyed_jobs"."locked_until") ELSE "keyed_jobs"."locked_until" END <= ?2))
                  AND ("keyed_jobs"."account" IS NULL OR NOT quote("keyed_jobs"."account") IN (SELECT value FROM json_each(?3)) OR quote("keyed_jobs"."id") IN (SELECT value FROM json_each(?4)))
                ORDER BY COALESCE("keyed_jobs"."due_at", ''), "keyed_jobs"."id"
                LIMIT 16
            ) AS _range_2
        ) AS _ranges
        ORDER BY key_0, id
        LIMIT 16
    ) AS _waiting
    LIMIT ?5
)
UPDATE "keyed_jobs"
SET "locked_until" = ?6, "attempt" = COALESCE("keyed_jobs"."attempt", 0) + 1
FROM _due
WHERE "keyed_jobs"."id" = _due.id
RETURNING "keyed_jobs"."id", "keyed_jobs"."account", "keyed_jobs"."payload", "keyed_jobs"."attempt", "keyed_jobs"."due_at";

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("keyed_jobs"."due_at", '') AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '') > ?1 AND COALESCE("keyed_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
            ORDER BY COALESCE("keyed_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_0
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("keyed_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("keyed_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_1
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("keyed_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("keyed_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_2
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("keyed_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')) > ?1
            ORDER BY COALESCE("keyed_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_3
        UNION ALL
        SELECT ahead FROM (
            SELECT COALESCE("keyed_jobs"."due_at", '') AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("keyed_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("keyed_jobs"."due_at", '')), COALESCE("keyed_jobs"."due_at", '')) > ?1)
            ORDER BY COALESCE("keyed_jobs"."due_at", '')
            LIMIT 1
        ) AS _range_4
    ) AS _ranges
) AS due, (
    SELECT "keyed_jobs"."id" AS id FROM "keyed_jobs"
    WHERE TRUE
    ORDER BY COALESCE("keyed_jobs"."due_at", ''), "keyed_jobs"."id"
    LIMIT 1
) IS NOT NULL AS hidden, FALSE AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "keyed_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "keyed_jobs"."id" AS id FROM "keyed_jobs"
    WHERE "keyed_jobs"."id" = ?2 AND "keyed_jobs"."locked_until" = ?3
) AS _free
WHERE "keyed_jobs"."id" = _free.id
RETURNING "keyed_jobs"."id";

-- sqlqueue: is it still held
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = ?1 AND "keyed_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = ?1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = ?1 AND "keyed_jobs"."locked_until" = ?2
RETURNING "keyed_jobs"."id";

-- sqlqueue: retry
UPDATE "keyed_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "keyed_jobs"."id" = ?2 AND "keyed_jobs"."locked_until" = ?3
RETURNING "keyed_jobs"."id";

-- sqlqueue: release
UPDATE "keyed_jobs"
SET "locked_until" = ?1, "attempt" = "keyed_jobs"."attempt" - 1
WHERE "keyed_jobs"."id" = ?2 AND "keyed_jobs"."locked_until" = ?3
RETURNING "keyed_jobs"."id";
