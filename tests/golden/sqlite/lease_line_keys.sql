-- sqlqueue: walk the lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT ?1, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "line_jobs"."account", "line_jobs"."id", COALESCE((COALESCE("line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?3)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "line_jobs" ON "line_jobs"."id" = COALESCE(
        (
            SELECT "line_jobs"."id" FROM "line_jobs"
            WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" > _lines.line
            ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "line_jobs"."id" FROM "line_jobs"
            WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < ?4 AND _lines.seen < 1000
      AND (?1 IS NULL OR NOT (_lines.wrapped OR "line_jobs"."account" <= _lines.line) OR "line_jobs"."account" <= ?1)
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
            SELECT "line_jobs"."account", "line_jobs"."id", COALESCE((COALESCE("line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?2) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?3)), FALSE),
                   _lines.seen + 1
            FROM _lines
            CROSS JOIN "line_jobs" ON "line_jobs"."id" = COALESCE(
                (
                    SELECT "line_jobs"."id" FROM "line_jobs"
                    WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" > _lines.line
                    ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
                    LIMIT 1
                ),
                (
                    SELECT "line_jobs"."id" FROM "line_jobs"
                    WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
                    ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
                    LIMIT 1
                )
            )
            WHERE _lines.found < ?4 AND _lines.seen < 1000
              AND (?1 IS NULL OR NOT (_lines.wrapped OR "line_jobs"."account" <= _lines.line) OR "line_jobs"."account" <= ?1)
        )
        SELECT id FROM _lines
        WHERE taken
    ) AS _waiting
    LIMIT ?4
)
UPDATE "line_jobs"
SET "locked_until" = ?5, "attempt" = CASE WHEN "line_jobs"."locked_until" IS NULL AND "line_jobs"."attempt" >= ?6 THEN 1 ELSE COALESCE("line_jobs"."attempt", 0) + 1 END
FROM _due
WHERE "line_jobs"."id" = _due.id
RETURNING "line_jobs"."id", "line_jobs"."account", "line_jobs"."payload", "line_jobs"."attempt", "line_jobs"."due_at";

-- sqlqueue: claim by lease, of no line
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "line_jobs"."id" AS id FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL
          AND (COALESCE("line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1)
          AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?2)) AND "line_jobs"."account" IS NULL
        ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?3
)
UPDATE "line_jobs"
SET "locked_until" = ?4, "attempt" = CASE WHEN "line_jobs"."locked_until" IS NULL AND "line_jobs"."attempt" >= ?5 THEN 1 ELSE COALESCE("line_jobs"."attempt", 0) + 1 END
FROM _due
WHERE "line_jobs"."id" = _due.id
RETURNING "line_jobs"."id", "line_jobs"."account", "line_jobs"."payload", "line_jobs"."attempt", "line_jobs"."due_at";

-- sqlqueue: look ahead in lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT NULL, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "line_jobs"."account", "line_jobs"."id", COALESCE((COALESCE("line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?2)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1) AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?2)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "line_jobs" ON "line_jobs"."id" = COALESCE(
        (
            SELECT "line_jobs"."id" FROM "line_jobs"
            WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" > _lines.line
            ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "line_jobs"."id" FROM "line_jobs"
            WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_jobs"."account", ("line_jobs"."locked_until" IS NULL), "line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < 1000000 AND _lines.seen < 1000
      AND (NULL IS NULL OR NOT (_lines.wrapped OR "line_jobs"."account" <= _lines.line) OR "line_jobs"."account" <= NULL)
)
SELECT (
    SELECT min(ahead) FROM (
        SELECT COALESCE("line_jobs"."due_at", '') AS ahead FROM "line_jobs"
        WHERE "line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_jobs"."due_at", '') > ?1 AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT COALESCE("line_jobs"."due_at", '') AS ahead FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL AND COALESCE("line_jobs"."due_at", '') > ?1 AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL AND COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL AND COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) AS ahead FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL AND COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT COALESCE("line_jobs"."due_at", '') AS ahead FROM "line_jobs"
        WHERE "line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), COALESCE("line_jobs"."due_at", '')) > ?1)
        UNION ALL
        SELECT COALESCE("line_jobs"."due_at", '') AS ahead FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL AND COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), COALESCE("line_jobs"."due_at", '')) > ?1)
    ) AS _ranges
) AS due, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE TRUE
        UNION ALL
        SELECT "line_jobs"."id" AS id FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL AND "line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS hidden, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE taken
        UNION ALL
        SELECT "line_jobs"."id" AS id FROM "line_jobs"
        WHERE "line_jobs"."error" IS NULL
          AND (COALESCE("line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1 OR COALESCE("line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("line_jobs"."due_at", '')) <= ?1)
          AND ("line_jobs"."locked_until" IS NULL OR ("line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("line_jobs"."locked_until", 11, 1) = 'T' OR substr("line_jobs"."locked_until", -1) = 'Z' OR substr("line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "line_jobs"."locked_until"), "line_jobs"."locked_until") ELSE "line_jobs"."locked_until" END <= ?2)) AND "line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "line_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "line_jobs"."id" AS id FROM "line_jobs"
    WHERE "line_jobs"."id" = ?2 AND "line_jobs"."locked_until" = ?3
) AS _free
WHERE "line_jobs"."id" = _free.id
RETURNING "line_jobs"."id";

-- sqlqueue: is it still held
SELECT "line_jobs"."id" FROM "line_jobs"
WHERE "line_jobs"."id" = ?1 AND "line_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "line_jobs"."id" FROM "line_jobs"
WHERE "line_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "line_jobs"."id" FROM "line_jobs"
WHERE "line_jobs"."id" = ?1 AND "line_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
DELETE FROM "line_jobs"
WHERE "line_jobs"."id" = ?1 AND "line_jobs"."locked_until" = ?2
RETURNING "line_jobs"."id";

-- sqlqueue: retry
UPDATE "line_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "line_jobs"."id" = ?2 AND "line_jobs"."locked_until" = ?3
RETURNING "line_jobs"."id";

-- sqlqueue: park
UPDATE "line_jobs"
SET "error" = ?1, "locked_until" = NULL
WHERE "line_jobs"."id" = ?2 AND "line_jobs"."locked_until" = ?3
RETURNING "line_jobs"."id";

-- sqlqueue: release
UPDATE "line_jobs"
SET "locked_until" = ?1, "attempt" = "line_jobs"."attempt" - 1
WHERE "line_jobs"."id" = ?2 AND "line_jobs"."locked_until" = ?3
RETURNING "line_jobs"."id";
