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
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE OR ("pg_task"."updated_at" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."updated_at", 11, 1) = 'T' OR substr("pg_task"."updated_at", -1) = 'Z' OR substr("pg_task"."updated_at", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."updated_at"), "pg_task"."updated_at") ELSE "pg_task"."updated_at" END <= ?3))
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?4))
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
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE OR ("pg_task"."updated_at" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."updated_at", 11, 1) = 'T' OR substr("pg_task"."updated_at", -1) = 'Z' OR substr("pg_task"."updated_at", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."updated_at"), "pg_task"."updated_at") ELSE "pg_task"."updated_at" END <= ?3))
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?4))
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
                  AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE OR ("pg_task"."updated_at" IS NOT NULL AND CASE
                  WHEN substr("pg_task"."updated_at", 11, 1) = 'T' OR substr("pg_task"."updated_at", -1) = 'Z' OR substr("pg_task"."updated_at", -6, 1) IN ('+', '-')
                  THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "pg_task"."updated_at"), "pg_task"."updated_at") ELSE "pg_task"."updated_at" END <= ?3))
                  AND NOT quote("pg_task"."id") IN (SELECT value FROM json_each(?4))
                ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
                LIMIT 16
            ) AS _range_2
        ) AS _ranges
        ORDER BY key_0, id
        LIMIT 16
    ) AS _waiting
    LIMIT ?5
)
UPDATE "pg_task"
SET "locked_until" = ?6, "tried" = CASE WHEN "pg_task"."locked_until" IS NULL AND "pg_task"."tried" >= ?7 THEN 1 ELSE COALESCE("pg_task"."tried", 0) + 1 END, "is_running" = TRUE, "updated_at" = ?8
FROM _due
WHERE "pg_task"."id" = _due.id
RETURNING "pg_task"."id", "pg_task"."step", "pg_task"."tried", "pg_task"."wakeup_at";
