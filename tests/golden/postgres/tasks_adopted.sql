-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "pg_task"."id" AS id FROM "pg_task"
        WHERE "pg_task"."error" IS NULL
          AND "pg_task"."wakeup_at" <= $1
          AND ("pg_task"."locked_until" IS NULL OR "pg_task"."locked_until" <= $2)
          AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE OR "pg_task"."updated_at" <= $3)
          AND NOT "pg_task"."id" = ANY($4::uuid[])
        ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $5
)
UPDATE "pg_task"
SET "locked_until" = $6, "tried" = CASE WHEN "pg_task"."locked_until" IS NULL AND "pg_task"."tried" >= $7 THEN 1 ELSE COALESCE("pg_task"."tried", 0) + 1 END, "is_running" = TRUE, "updated_at" = $8
FROM _due
WHERE "pg_task"."id" = _due.id
RETURNING "pg_task"."id", "pg_task"."step"::text, "pg_task"."tried", "pg_task"."wakeup_at";
