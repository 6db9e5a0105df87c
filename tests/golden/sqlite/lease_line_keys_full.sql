-- sqlqueue: walk the lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT ?1, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "ranked_line_jobs"."account", "ranked_line_jobs"."id", COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "ranked_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?3)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "ranked_line_jobs" ON "ranked_line_jobs"."id" = COALESCE(
        (
            SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
            WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" > _lines.line
            ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
            WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < ?4 AND _lines.seen < 1000
      AND (?1 IS NULL OR NOT (_lines.wrapped OR "ranked_line_jobs"."account" <= _lines.line) OR "ranked_line_jobs"."account" <= ?1)
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
            SELECT "ranked_line_jobs"."account", "ranked_line_jobs"."id", COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?3)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "ranked_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?2 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?2) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?2, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?2, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?2) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
              WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
              THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?3)), FALSE),
                   _lines.seen + 1
            FROM _lines
            CROSS JOIN "ranked_line_jobs" ON "ranked_line_jobs"."id" = COALESCE(
                (
                    SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
                    WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" > _lines.line
                    ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
                    LIMIT 1
                ),
                (
                    SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
                    WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
                    ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
                    LIMIT 1
                )
            )
            WHERE _lines.found < ?4 AND _lines.seen < 1000
              AND (?1 IS NULL OR NOT (_lines.wrapped OR "ranked_line_jobs"."account" <= _lines.line) OR "ranked_line_jobs"."account" <= ?1)
        )
        SELECT id FROM _lines
        WHERE taken
    ) AS _waiting
    LIMIT ?4
)
UPDATE "ranked_line_jobs"
SET "locked_until" = ?5, "attempt" = COALESCE("ranked_line_jobs"."attempt", 0) + 1
FROM _due
WHERE "ranked_line_jobs"."id" = _due.id
RETURNING "ranked_line_jobs"."id", "ranked_line_jobs"."account", "ranked_line_jobs"."payload", "ranked_line_jobs"."attempt", "ranked_line_jobs"."priority", "ranked_line_jobs"."due_at";

-- sqlqueue: claim by lease, of no line
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "ranked_line_jobs"."id" AS id FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL
          AND (COALESCE("ranked_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1)
          AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?2)) AND "ranked_line_jobs"."account" IS NULL
        ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?3
)
UPDATE "ranked_line_jobs"
SET "locked_until" = ?4, "attempt" = COALESCE("ranked_line_jobs"."attempt", 0) + 1
FROM _due
WHERE "ranked_line_jobs"."id" = _due.id
RETURNING "ranked_line_jobs"."id", "ranked_line_jobs"."account", "ranked_line_jobs"."payload", "ranked_line_jobs"."attempt", "ranked_line_jobs"."priority", "ranked_line_jobs"."due_at";

-- sqlqueue: look ahead in lines
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT NULL, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT "ranked_line_jobs"."account", "ranked_line_jobs"."id", COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?2)), FALSE), _lines.wrapped OR _lines.line IS NULL OR "ranked_line_jobs"."account" <= _lines.line, _lines.found + COALESCE((COALESCE("ranked_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1) AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
      WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
      THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?2)), FALSE),
           _lines.seen + 1
    FROM _lines
    CROSS JOIN "ranked_line_jobs" ON "ranked_line_jobs"."id" = COALESCE(
        (
            SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
            WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" > _lines.line
            ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
            LIMIT 1
        ),
        (
            SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
            WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "ranked_line_jobs"."account", ("ranked_line_jobs"."locked_until" IS NULL), ("ranked_line_jobs"."attempt" = 0), "ranked_line_jobs"."priority", "ranked_line_jobs"."id"
            LIMIT 1
        )
    )
    WHERE _lines.found < 1000000 AND _lines.seen < 1000
      AND (NULL IS NULL OR NOT (_lines.wrapped OR "ranked_line_jobs"."account" <= _lines.line) OR "ranked_line_jobs"."account" <= NULL)
)
SELECT (
    SELECT min(ahead) FROM (
        SELECT COALESCE("ranked_line_jobs"."due_at", '') AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("ranked_line_jobs"."due_at", '') > ?1 AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT COALESCE("ranked_line_jobs"."due_at", '') AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL AND COALESCE("ranked_line_jobs"."due_at", '') > ?1 AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'T'
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL AND COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '-1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL AND COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL AND COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) > ?1
        UNION ALL
        SELECT COALESCE("ranked_line_jobs"."due_at", '') AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), COALESCE("ranked_line_jobs"."due_at", '')) > ?1)
        UNION ALL
        SELECT COALESCE("ranked_line_jobs"."due_at", '') AS ahead FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL AND COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'U' AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), COALESCE("ranked_line_jobs"."due_at", '')) > ?1)
    ) AS _ranges
) AS due, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE TRUE
        UNION ALL
        SELECT "ranked_line_jobs"."id" AS id FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL AND "ranked_line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS hidden, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE taken
        UNION ALL
        SELECT "ranked_line_jobs"."id" AS id FROM "ranked_line_jobs"
        WHERE "ranked_line_jobs"."done_at" IS NULL
          AND (COALESCE("ranked_line_jobs"."due_at", '') <= ?1 AND (substr(COALESCE("ranked_line_jobs"."due_at", ''), -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')), '') <= ?1) OR COALESCE("ranked_line_jobs"."due_at", '') >= substr(?1, 1, 10) || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1 OR COALESCE("ranked_line_jobs"."due_at", '') >= date(substr(?1, 1, 10), '+1 day') || 'T' AND COALESCE("ranked_line_jobs"."due_at", '') < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', COALESCE("ranked_line_jobs"."due_at", '')) <= ?1)
          AND ("ranked_line_jobs"."locked_until" IS NULL OR ("ranked_line_jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("ranked_line_jobs"."locked_until", 11, 1) = 'T' OR substr("ranked_line_jobs"."locked_until", -1) = 'Z' OR substr("ranked_line_jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "ranked_line_jobs"."locked_until"), "ranked_line_jobs"."locked_until") ELSE "ranked_line_jobs"."locked_until" END <= ?2)) AND "ranked_line_jobs"."account" IS NULL
        LIMIT 0 + 1
    ) AS _found
) > 0 AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "ranked_line_jobs"
SET "locked_until" = ?1
FROM (
    SELECT "ranked_line_jobs"."id" AS id FROM "ranked_line_jobs"
    WHERE "ranked_line_jobs"."id" = ?2 AND "ranked_line_jobs"."locked_until" = ?3
) AS _free
WHERE "ranked_line_jobs"."id" = _free.id
RETURNING "ranked_line_jobs"."id";

-- sqlqueue: is it still held
SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
WHERE "ranked_line_jobs"."id" = ?1 AND "ranked_line_jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
WHERE "ranked_line_jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "ranked_line_jobs"."id" FROM "ranked_line_jobs"
WHERE "ranked_line_jobs"."id" = ?1 AND "ranked_line_jobs"."done_at" IS NULL;

-- sqlqueue: acknowledge
UPDATE "ranked_line_jobs"
SET "done_at" = ?1, "locked_until" = NULL
WHERE "ranked_line_jobs"."id" = ?2 AND "ranked_line_jobs"."locked_until" = ?3
RETURNING "ranked_line_jobs"."id";

-- sqlqueue: retry
UPDATE "ranked_line_jobs"
SET "due_at" = ?1, "locked_until" = NULL
WHERE "ranked_line_jobs"."id" = ?2 AND "ranked_line_jobs"."locked_until" = ?3
RETURNING "ranked_line_jobs"."id";

-- sqlqueue: release
UPDATE "ranked_line_jobs"
SET "locked_until" = ?1, "attempt" = "ranked_line_jobs"."attempt" - 1
WHERE "ranked_line_jobs"."id" = ?2 AND "ranked_line_jobs"."locked_until" = ?3
RETURNING "ranked_line_jobs"."id";
