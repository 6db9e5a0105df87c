-- sqlqueue: walk the lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT ?1, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "line_group_jobs"."queue_name", "line_group_jobs"."id", COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_group_jobs"."queue_name" <= _lines.line, _lines.found + COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?3)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "line_group_jobs" ON "line_group_jobs"."id" = COALESCE(
        (
            SELECT "line_group_jobs"."id" FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" = ?4 AND "line_group_jobs"."queue_name" > _lines.line
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "line_group_jobs"."id" FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" = ?4 AND "line_group_jobs"."queue_name" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < ?5 AND _lines.seen < 1000
      AND (?1 IS NULL OR NOT (_lines.wrapped OR "line_group_jobs"."queue_name" <= _lines.line) OR "line_group_jobs"."queue_name" <= ?1)
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
            SELECT "line_group_jobs"."queue_name", "line_group_jobs"."id", COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_group_jobs"."queue_name" <= _lines.line, _lines.found + COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?2) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?3)), FALSE),
                   _lines.seen + 1
            FROM _lines
            CROSS JOIN "line_group_jobs" ON "line_group_jobs"."id" = COALESCE(
                (
                    SELECT "line_group_jobs"."id" FROM "line_group_jobs"
                    WHERE "line_group_jobs"."queue_name" = ?4 AND "line_group_jobs"."queue_name" > _lines.line
                    ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
                    LIMIT 1
                ),
                (
                    SELECT "line_group_jobs"."id" FROM "line_group_jobs"
                    WHERE "line_group_jobs"."queue_name" = ?4 AND "line_group_jobs"."queue_name" IS NOT NULL AND NOT _lines.wrapped
                    ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
                    LIMIT 1
                )
            )
            WHERE _lines.found < ?5 AND _lines.seen < 1000
              AND (?1 IS NULL OR NOT (_lines.wrapped OR "line_group_jobs"."queue_name" <= _lines.line) OR "line_group_jobs"."queue_name" <= ?1)
        )
        SELECT id FROM _lines
        WHERE taken
    ) AS _waiting
    LIMIT ?5
)
UPDATE "line_group_jobs"
SET "locked_until" = ?6, "attempt" = COALESCE("line_group_jobs"."attempt", 0) + 1
FROM _due
WHERE "line_group_jobs"."id" = _due.id
RETURNING "line_group_jobs"."id", "line_group_jobs"."queue_name", "line_group_jobs"."payload", "line_group_jobs"."attempt", "line_group_jobs"."due_at";

-- sqlqueue: look ahead in lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT NULL, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "line_group_jobs"."queue_name", "line_group_jobs"."id", COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?1 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?1) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?2)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_group_jobs"."queue_name" <= _lines.line, _lines.found + COALESCE((COALESCE("line_group_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_group_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_group_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?1 OR COALESCE("line_group_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) <= ?1) AND ("line_group_jobs"."locked_until" IS NULL OR ("line_group_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_group_jobs"."locked_until", 11, 1) = 'T' OR substr("line_group_jobs"."locked_until", -1) = 'Z' OR substr("line_group_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_group_jobs"."locked_until"), "line_group_jobs"."locked_until") ELSE "line_group_jobs"."locked_until" END <= ?2)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "line_group_jobs" ON "line_group_jobs"."id" = COALESCE(
        (
            SELECT "line_group_jobs"."id" FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" = ?3 AND "line_group_jobs"."queue_name" > _lines.line
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "line_group_jobs"."id" FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" = ?3 AND "line_group_jobs"."queue_name" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < 1000000 AND _lines.seen < 1000
      AND (NULL IS NULL OR NOT (_lines.wrapped OR "line_group_jobs"."queue_name" <= _lines.line) OR "line_group_jobs"."queue_name" <= NULL)
)
SELECT (
    SELECT min(ahead) FROM (
        SELECT COALESCE("line_group_jobs"."due_at", '') AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '') > ?1 AND COALESCE("line_group_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_group_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_group_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT COALESCE("line_group_jobs"."due_at", '') AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("line_group_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_group_jobs"."due_at", '')), COALESCE("line_group_jobs"."due_at", '')) > ?1)
    ) AS _ranges
) AS due, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE TRUE
        LIMIT 0 + 1
    ) AS _found
) > 0 AS hidden, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE taken
        LIMIT 0 + 1
    ) AS _found
) > 0 AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "line_group_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "line_group_jobs"."id" AS id FROM "line_group_jobs"
    WHERE "line_group_jobs"."id" = ?2 AND "line_group_jobs"."locked_until" = ?3
) AS _free
WHERE "line_group_jobs"."id" = _free.id
RETURNING "line_group_jobs"."id";

-- sqlqueue: is it still held
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = ?1 AND "line_group_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = ?1 AND "line_group_jobs"."queue_name" = ?2;

-- sqlqueue: acknowledge
DELETE FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = ?1 AND "line_group_jobs"."locked_until" = ?2
RETURNING "line_group_jobs"."id";

-- sqlqueue: retry
UPDATE "line_group_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "line_group_jobs"."id" = ?2 AND "line_group_jobs"."locked_until" = ?3
RETURNING "line_group_jobs"."id";

-- sqlqueue: release
UPDATE "line_group_jobs"
SET "locked_until" = ?1, "attempt" = "line_group_jobs"."attempt" - 1
WHERE "line_group_jobs"."id" = ?2 AND "line_group_jobs"."locked_until" = ?3
RETURNING "line_group_jobs"."id";
