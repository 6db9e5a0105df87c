-- sqlqueue: walk the lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT ?1, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "grouped_line_jobs"."account", "grouped_line_jobs"."id", COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "grouped_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?3)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "grouped_line_jobs" ON "grouped_line_jobs"."id" = COALESCE(
        (
            SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
            WHERE "grouped_line_jobs"."queue_name" = ?4 AND "grouped_line_jobs"."account" > _lines.line
            ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
            WHERE "grouped_line_jobs"."queue_name" = ?4 AND "grouped_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < ?5 AND _lines.seen < 1000
      AND (?1 IS NULL OR NOT (_lines.wrapped OR "grouped_line_jobs"."account" <= _lines.line) OR "grouped_line_jobs"."account" <= ?1)
)
SELECT NULL AS kept, line AS last_line, seen, found, wrapped FROM _lines
ORDER BY seen DESC
LIMIT 1;

-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
            SELECT ?1, NULL, FALSE, FALSE, 0, 0
            UNION ALL
            SELECT "grouped_line_jobs"."account", "grouped_line_jobs"."id", COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "grouped_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?3)), FALSE),
                   _lines.seen + 1
            FROM _lines
            CROSS JOIN "grouped_line_jobs" ON "grouped_line_jobs"."id" = COALESCE(
                (
                    SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
                    WHERE "grouped_line_jobs"."queue_name" = ?4 AND "grouped_line_jobs"."account" > _lines.line
                    ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
                    LIMIT 1
                ),
                (
                    SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
                    WHERE "grouped_line_jobs"."queue_name" = ?4 AND "grouped_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
                    ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
                    LIMIT 1
                )
            )
            WHERE _lines.found < ?5 AND _lines.seen < 1000
              AND (?1 IS NULL OR NOT (_lines.wrapped OR "grouped_line_jobs"."account" <= _lines.line) OR "grouped_line_jobs"."account" <= ?1)
        )
        SELECT id FROM _lines
        WHERE taken
    ) AS _waiting
    LIMIT ?5
)
UPDATE "grouped_line_jobs"
SET "locked_until" = ?6, "attempt" = COALESCE("grouped_line_jobs"."attempt", 0) + 1
FROM _due
WHERE "grouped_line_jobs"."id" = _due.id
RETURNING "grouped_line_jobs"."id", "grouped_line_jobs"."queue_name", "grouped_line_jobs"."account", "grouped_line_jobs"."payload", "grouped_line_jobs"."attempt", "grouped_line_jobs"."due_at";

-- sqlqueue: claim by lease, of no line
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "grouped_line_jobs"."id" AS id FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?1
          AND (COALESCE("grouped_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?2)
          AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?3)) AND "grouped_line_jobs"."account" IS NULL
        ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?4
)
UPDATE "grouped_line_jobs"
SET "locked_until" = ?5, "attempt" = COALESCE("grouped_line_jobs"."attempt", 0) + 1
FROM _due
WHERE "grouped_line_jobs"."id" = _due.id
RETURNING "grouped_line_jobs"."id", "grouped_line_jobs"."queue_name", "grouped_line_jobs"."account", "grouped_line_jobs"."payload", "grouped_line_jobs"."attempt", "grouped_line_jobs"."due_at";

-- sqlqueue: look ahead in lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT NULL, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "grouped_line_jobs"."account", "grouped_line_jobs"."id", COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?2)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "grouped_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("grouped_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1) AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?2)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "grouped_line_jobs" ON "grouped_line_jobs"."id" = COALESCE(
        (
            SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
            WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" > _lines.line
            ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
            WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "grouped_line_jobs"."account", ("grouped_line_jobs"."locked_until" IS NULL), "grouped_line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < 1000000 AND _lines.seen < 1000
      AND (NULL IS NULL OR NOT (_lines.wrapped OR "grouped_line_jobs"."account" <= _lines.line) OR "grouped_line_jobs"."account" <= NULL)
)
SELECT (
    SELECT min(ahead) FROM (
        SELECT COALESCE("grouped_line_jobs"."due_at", '') AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("grouped_line_jobs"."due_at", '') > ?1 AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT COALESCE("grouped_line_jobs"."due_at", '') AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL AND COALESCE("grouped_line_jobs"."due_at", '') > ?1 AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL AND COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL AND COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL AND COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT COALESCE("grouped_line_jobs"."due_at", '') AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), COALESCE("grouped_line_jobs"."due_at", '')) > ?1)
        UNION ALL
        SELECT COALESCE("grouped_line_jobs"."due_at", '') AS ahead FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL AND COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), COALESCE("grouped_line_jobs"."due_at", '')) > ?1)
    ) AS _ranges
) AS due, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE TRUE
        UNION ALL
        SELECT "grouped_line_jobs"."id" AS id FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3 AND "grouped_line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS hidden, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE taken
        UNION ALL
        SELECT "grouped_line_jobs"."id" AS id FROM "grouped_line_jobs"
        WHERE "grouped_line_jobs"."queue_name" = ?3
          AND (COALESCE("grouped_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("grouped_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("grouped_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1 OR COALESCE("grouped_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("grouped_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("grouped_line_jobs"."due_at", '')) <= ?1)
          AND ("grouped_line_jobs"."locked_until" IS NULL OR ("grouped_line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("grouped_line_jobs"."locked_until", 11, 1) = 'T' OR substr("grouped_line_jobs"."locked_until", -1) = 'Z' OR substr("grouped_line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "grouped_line_jobs"."locked_until"), "grouped_line_jobs"."locked_until") ELSE "grouped_line_jobs"."locked_until" END <= ?2)) AND "grouped_line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "grouped_line_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "grouped_line_jobs"."id" AS id FROM "grouped_line_jobs"
    WHERE "grouped_line_jobs"."id" = ?2 AND "grouped_line_jobs"."locked_until" = ?3
) AS _free
WHERE "grouped_line_jobs"."id" = _free.id
RETURNING "grouped_line_jobs"."id";

-- sqlqueue: is it still held
SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
WHERE "grouped_line_jobs"."id" = ?1 AND "grouped_line_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
WHERE "grouped_line_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "grouped_line_jobs"."id" FROM "grouped_line_jobs"
WHERE "grouped_line_jobs"."id" = ?1 AND "grouped_line_jobs"."queue_name" = ?2;

-- sqlqueue: acknowledge
DELETE FROM "grouped_line_jobs"
WHERE "grouped_line_jobs"."id" = ?1 AND "grouped_line_jobs"."locked_until" = ?2
RETURNING "grouped_line_jobs"."id";

-- sqlqueue: retry
UPDATE "grouped_line_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "grouped_line_jobs"."id" = ?2 AND "grouped_line_jobs"."locked_until" = ?3
RETURNING "grouped_line_jobs"."id";

-- sqlqueue: release
UPDATE "grouped_line_jobs"
SET "locked_until" = ?1, "attempt" = "grouped_line_jobs"."attempt" - 1
WHERE "grouped_line_jobs"."id" = ?2 AND "grouped_line_jobs"."locked_until" = ?3
RETURNING "grouped_line_jobs"."id";
