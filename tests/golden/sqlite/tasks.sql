-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM (
            SELECT * FROM (
                SELECT "pg_task"."id" AS id, "pg_task"."wakeup_at" AS key_0 FROM "pg_task"
                WHERE "pg_task"."error" IS NULL
                  AND "pg_task"."wakeup_at" <= ?1 AND (substr("pg_task"."wakeup_at", -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at"), '') <= ?1)
                  AND ("pg_task"."locked_until" IS NULL OR ("pg_task"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?2))
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?3))
                ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
                LIMIT 16
            ) AS _range_0
            UNION ALL
            SELECT * FROM (
                SELECT "pg_task"."id" AS id, "pg_task"."wakeup_at" AS key_0 FROM "pg_task"
                WHERE "pg_task"."error" IS NULL
                  AND "pg_task"."wakeup_at" >= substr(?1, 1, 10) || 'T' AND "pg_task"."wakeup_at" < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?1
                  AND ("pg_task"."locked_until" IS NULL OR ("pg_task"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?2))
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?3))
                ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
                LIMIT 16
            ) AS _range_1
            UNION ALL
            SELECT * FROM (
                SELECT "pg_task"."id" AS id, "pg_task"."wakeup_at" AS key_0 FROM "pg_task"
                WHERE "pg_task"."error" IS NULL
                  AND "pg_task"."wakeup_at" >= date(substr(?1, 1, 10), '+1 day') || 'T' AND "pg_task"."wakeup_at" < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?1
                  AND ("pg_task"."locked_until" IS NULL OR ("pg_task"."locked_until" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?2))
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?3))
                ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
                LIMIT 16
            ) AS _range_2
        ) AS _ranges
        ORDER BY key_0, id
        LIMIT 16
    ) AS _waiting
    LIMIT ?4
)
UPDATE "pg_task"
SET "locked_until" = ?5, "tried" = CASE WHEN "pg_task"."locked_until" IS NULL AND "pg_task"."tried" >= ?6 THEN 1 ELSE COALESCE("pg_task"."tried", 0) + 1 END, "is_running" = TRUE, "updated_at" = ?7
FROM _due
WHERE "pg_task"."id" = _due.id
RETURNING "pg_task"."id", "pg_task"."step", "pg_task"."tried", "pg_task"."wakeup_at";

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT "pg_task"."wakeup_at" AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" > ?1 AND "pg_task"."wakeup_at" < substr(?1, 1, 10) || 'T'
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_0
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" >= date(substr(?1, 1, 10), '-1 day') || 'T' AND "pg_task"."wakeup_at" < date(substr(?1, 1, 10), '-1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") > ?1
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_1
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" >= substr(?1, 1, 10) || 'T' AND "pg_task"."wakeup_at" < substr(?1, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") > ?1
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_2
        UNION ALL
        SELECT ahead FROM (
            SELECT strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" >= date(substr(?1, 1, 10), '+1 day') || 'T' AND "pg_task"."wakeup_at" < date(substr(?1, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") > ?1
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_3
        UNION ALL
        SELECT ahead FROM (
            SELECT "pg_task"."wakeup_at" AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" >= substr(?1, 1, 10) || 'U' AND (substr("pg_task"."wakeup_at", 11, 1) <> 'T' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at"), "pg_task"."wakeup_at") > ?1)
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_4
    ) AS _ranges
) AS due, (
    SELECT "pg_task"."id" AS id FROM "pg_task"
    WHERE "pg_task"."error" IS NULL
    ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
    LIMIT 1
) IS NOT NULL AS hidden, FALSE AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "pg_task"
SET "locked_until" = ?1
FROM (
    SELECT "pg_task"."id" AS id FROM "pg_task"
    WHERE "pg_task"."id" = ?2 AND "pg_task"."locked_until" = ?3
) AS _free
WHERE "pg_task"."id" = _free.id
RETURNING "pg_task"."id";

-- sqlqueue: is it still held
SELECT "pg_task"."id" FROM "pg_task"
WHERE "pg_task"."id" = ?1 AND "pg_task"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "pg_task"."id" FROM "pg_task"
WHERE "pg_task"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "pg_task"."id" FROM "pg_task"
WHERE "pg_task"."id" = ?1 AND "pg_task"."error" IS NULL;

-- sqlqueue: acknowledge
DELETE FROM "pg_task"
WHERE "pg_task"."id" = ?1 AND "pg_task"."locked_until" = ?2
RETURNING "pg_task"."id";

-- sqlqueue: retry
UPDATE "pg_task"
SET "wakeup_at" = ?1, "locked_until" = ?2, "is_running" = FALSE, "updated_at" = ?3
WHERE "pg_task"."id" = ?4 AND "pg_task"."locked_until" = ?5
RETURNING "pg_task"."id";

-- sqlqueue: advance
UPDATE "pg_task"
SET "step" = ?1, "wakeup_at" = ?2, "tried" = 0, "locked_until" = NULL, "is_running" = FALSE, "updated_at" = ?3
WHERE "pg_task"."id" = ?4 AND "pg_task"."locked_until" = ?5
RETURNING "pg_task"."id";

-- sqlqueue: park
UPDATE "pg_task"
SET "error" = ?1, "tried" = ?2, "locked_until" = NULL, "is_running" = FALSE, "updated_at" = ?3
WHERE "pg_task"."id" = ?4 AND "pg_task"."locked_until" = ?5
RETURNING "pg_task"."id";

-- sqlqueue: release
UPDATE "pg_task"
SET "locked_until" = ?1, "tried" = "pg_task"."tried" - 1, "is_running" = FALSE, "updated_at" = ?2
WHERE "pg_task"."id" = ?3 AND "pg_task"."locked_until" = ?4
RETURNING "pg_task"."id";

-- sqlqueue: get a task
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."id" = ?1;

-- sqlqueue: list tasks
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE TRUE
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT ?1;

-- sqlqueue: list running tasks
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT ("pg_task"."locked_until" IS NOT NULL AND CASE
  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?1)))
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT ?2;

-- sqlqueue: list due tasks
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND NOT ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT ("pg_task"."locked_until" IS NOT NULL AND CASE
  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?1)))
  AND ("pg_task"."wakeup_at" <= ?2 AND (substr("pg_task"."wakeup_at", -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at"), '') <= ?2) OR "pg_task"."wakeup_at" >= substr(?2, 1, 10) || 'T' AND "pg_task"."wakeup_at" < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?2 OR "pg_task"."wakeup_at" >= date(substr(?2, 1, 10), '+1 day') || 'T' AND "pg_task"."wakeup_at" < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?2)
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT ?3;

-- sqlqueue: list delayed tasks
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND NOT ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT ("pg_task"."locked_until" IS NOT NULL AND CASE
  WHEN substr("pg_task"."locked_until", 11, 1) = 'T' OR substr("pg_task"."locked_until", -1) = 'Z' OR substr("pg_task"."locked_until", -6, 1) IN ('+', '-')
  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."locked_until"), "pg_task"."locked_until") ELSE "pg_task"."locked_until" END <= ?1)))
  AND NOT ("pg_task"."wakeup_at" <= ?2 AND (substr("pg_task"."wakeup_at", -6, 1) <> '-' OR COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at"), '') <= ?2) OR "pg_task"."wakeup_at" >= substr(?2, 1, 10) || 'T' AND "pg_task"."wakeup_at" < substr(?2, 1, 10) || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?2 OR "pg_task"."wakeup_at" >= date(substr(?2, 1, 10), '+1 day') || 'T' AND "pg_task"."wakeup_at" < date(substr(?2, 1, 10), '+1 day') || 'U' AND strftime('%Y-%m-%d %H:%M:%f', "pg_task"."wakeup_at") <= ?2)
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT ?3;

-- sqlqueue: list parked tasks
SELECT "pg_task"."id", "pg_task"."step", "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error", "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NOT NULL
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT ?1;
