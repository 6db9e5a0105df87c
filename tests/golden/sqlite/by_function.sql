-- sqlqueue: find by advisory lock
SELECT "counted_jobs"."id", CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text) AS key FROM "counted_jobs"
JOIN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') <= ?3 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?3)
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 4
        ) AS _range_0
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?3, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?3, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 4
        ) AS _range_1
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?3, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?3, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 4
        ) AS _range_2
    ) AS _ranges
    ORDER BY key_0, id
    LIMIT 4
) AS _waiting ON "counted_jobs"."id" = _waiting.id
ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id";

-- sqlqueue: find 64 by advisory lock
SELECT "counted_jobs"."id", CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text) AS key FROM "counted_jobs"
JOIN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') <= ?3 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?3)
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 64
        ) AS _range_0
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?3, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?3, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 64
        ) AS _range_1
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?3, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?3, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 64
        ) AS _range_2
    ) AS _ranges
    ORDER BY key_0, id
    LIMIT 64
) AS _waiting ON "counted_jobs"."id" = _waiting.id
ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id";

-- sqlqueue: find 256 by advisory lock
SELECT "counted_jobs"."id", CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text) AS key FROM "counted_jobs"
JOIN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') <= ?3 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?3)
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 256
        ) AS _range_0
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?3, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?3, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 256
        ) AS _range_1
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?3, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?3, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 256
        ) AS _range_2
    ) AS _ranges
    ORDER BY key_0, id
    LIMIT 256
) AS _waiting ON "counted_jobs"."id" = _waiting.id
ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id";

-- sqlqueue: find 1024 by advisory lock
SELECT "counted_jobs"."id", CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text) AS key FROM "counted_jobs"
JOIN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') <= ?3 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?3)
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 1024
        ) AS _range_0
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= substr(?3, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?3, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 1024
        ) AS _range_1
        UNION ALL
        SELECT * FROM (
            SELECT "counted_jobs"."id" AS id, COALESCE("counted_jobs"."due_at", '') AS key_0 FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '') >= date(substr(?3, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?3, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?3
              AND NOT quote(CAST(?1 AS text) || COALESCE(CASE typeof("counted_jobs"."id") WHEN 'blob' THEN hex("counted_jobs"."id") ELSE CAST("counted_jobs"."id" AS text) END, '') || CAST(?2 AS text)) IN (SELECT value FROM json_each(?4))
            ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id"
            LIMIT 1024
        ) AS _range_2
    ) AS _ranges
    ORDER BY key_0, id
    LIMIT 1024
) AS _waiting ON "counted_jobs"."id" = _waiting.id
ORDER BY COALESCE("counted_jobs"."due_at", ''), "counted_jobs"."id";

-- sqlqueue: take by advisory lock
UPDATE "counted_jobs"
SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
FROM (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE "counted_jobs"."id" = ?1 AND (COALESCE("counted_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("counted_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')), '') <= ?2) OR COALESCE("counted_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("counted_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?2 OR COALESCE("counted_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("counted_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("counted_jobs"."due_at", '')) <= ?2)
) AS _free
WHERE "counted_jobs"."id" = _free.id
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

-- sqlqueue: find again
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1 AND "counted_jobs"."attempt" = ?2;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
WHERE "counted_jobs"."id" = ?1
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = ?1
WHERE "counted_jobs"."id" = ?2
RETURNING "counted_jobs"."id";

-- sqlqueue: release
UPDATE "counted_jobs"
SET "attempt" = "counted_jobs"."attempt" - 1
WHERE "counted_jobs"."id" = ?1
RETURNING "counted_jobs"."id";
