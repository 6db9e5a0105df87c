-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "pg_task"."id" AS id FROM "pg_task"
        WHERE "pg_task"."error" IS NULL
          AND "pg_task"."wakeup_at" <= $1
          AND ("pg_task"."locked_until" IS NULL OR "pg_task"."locked_until" <= $2)
          AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
          AND NOT "pg_task"."id" = ANY($3::uuid[])
        ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $4
)
UPDATE "pg_task"
SET "locked_until" = $5, "tried" = CASE WHEN "pg_task"."locked_until" IS NULL AND "pg_task"."tried" >= $6 THEN 1 ELSE COALESCE("pg_task"."tried", 0) + 1 END, "is_running" = TRUE, "updated_at" = $7
FROM _due
WHERE "pg_task"."id" = _due.id
RETURNING "pg_task"."id", "pg_task"."step"::text, "pg_task"."tried", "pg_task"."wakeup_at";

-- sqlqueue: claim by lease, onward
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "pg_task"."id" AS id FROM "pg_task"
        WHERE "pg_task"."error" IS NULL
          AND "pg_task"."wakeup_at" <= $1
          AND ("pg_task"."locked_until" IS NULL OR "pg_task"."locked_until" <= $2)
          AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
          AND NOT "pg_task"."id" = ANY($3::uuid[])
          AND ("pg_task"."wakeup_at", "pg_task"."id") >= ($4, $5)
        ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $6
)
UPDATE "pg_task"
SET "locked_until" = $7, "tried" = CASE WHEN "pg_task"."locked_until" IS NULL AND "pg_task"."tried" >= $8 THEN 1 ELSE COALESCE("pg_task"."tried", 0) + 1 END, "is_running" = TRUE, "updated_at" = $9
FROM _due
WHERE "pg_task"."id" = _due.id
RETURNING "pg_task"."id", "pg_task"."step"::text, "pg_task"."tried", "pg_task"."wakeup_at";

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT "pg_task"."wakeup_at" AS ahead FROM "pg_task"
            WHERE "pg_task"."error" IS NULL
              AND "pg_task"."wakeup_at" > $1 AND "pg_task"."wakeup_at" < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY "pg_task"."wakeup_at"
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "pg_task"."id" AS id FROM "pg_task"
    WHERE "pg_task"."error" IS NULL
      AND "pg_task"."wakeup_at" <= $1
      AND ("pg_task"."locked_until" IS NULL OR "pg_task"."locked_until" <= $2)
      AND ("pg_task"."locked_until" IS NOT NULL OR "pg_task"."is_running" = FALSE)
      AND NOT "pg_task"."id" = ANY($3::uuid[])
    ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "pg_task"
SET "locked_until" = $1
FROM (
    SELECT "pg_task"."id" AS id FROM "pg_task"
    CROSS JOIN unnest($2::uuid[], $3::timestamptz[]) AS _given(id, token)
    WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "pg_task"."id" = _free.id
RETURNING "pg_task"."id";

-- sqlqueue: is it still held
SELECT "pg_task"."id" FROM "pg_task"
CROSS JOIN unnest($1::uuid[], $2::timestamptz[]) AS _given(id, token)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "pg_task"."id" FROM "pg_task"
WHERE "pg_task"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "pg_task"."id" FROM "pg_task"
WHERE "pg_task"."id" = $1 AND "pg_task"."error" IS NULL;

-- sqlqueue: acknowledge
DELETE FROM "pg_task"
USING unnest($1::uuid[], $2::timestamptz[]) AS _given(id, token)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
RETURNING "pg_task"."id";

-- sqlqueue: retry
UPDATE "pg_task"
SET "wakeup_at" = _given.due, "locked_until" = $1, "is_running" = FALSE, "updated_at" = $2
FROM unnest($3::uuid[], $4::timestamptz[], $5::timestamptz[]) AS _given(id, token, due)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
RETURNING "pg_task"."id";

-- sqlqueue: advance
UPDATE "pg_task"
SET "step" = _given.stored, "wakeup_at" = _given.due, "tried" = 0, "locked_until" = NULL, "is_running" = FALSE, "updated_at" = $1
FROM unnest($2::uuid[], $3::timestamptz[], $4::text[], $5::timestamptz[]) AS _given(id, token, stored, due)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
RETURNING "pg_task"."id";

-- sqlqueue: park
UPDATE "pg_task"
SET "error" = _given.error, "tried" = _given.attempt, "locked_until" = NULL, "is_running" = FALSE, "updated_at" = $1
FROM unnest($2::uuid[], $3::timestamptz[], $4::bigint[], $5::text[]) AS _given(id, token, attempt, error)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
RETURNING "pg_task"."id";

-- sqlqueue: release
UPDATE "pg_task"
SET "locked_until" = _given.until, "tried" = "pg_task"."tried" - 1, "is_running" = FALSE, "updated_at" = $1
FROM unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[]) AS _given(id, token, until)
WHERE "pg_task"."id" = _given.id AND "pg_task"."locked_until" = _given.token
RETURNING "pg_task"."id";

-- sqlqueue: get a task
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."id" = $1;

-- sqlqueue: list tasks
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE TRUE
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT $1;

-- sqlqueue: list running tasks
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT "pg_task"."locked_until" <= $1))
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT $2;

-- sqlqueue: list due tasks
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND NOT ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT "pg_task"."locked_until" <= $1))
  AND ("pg_task"."wakeup_at" <= $2)
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT $3;

-- sqlqueue: list delayed tasks
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NULL
  AND NOT ("pg_task"."is_running" = TRUE AND ("pg_task"."locked_until" IS NULL OR NOT "pg_task"."locked_until" <= $1))
  AND NOT ("pg_task"."wakeup_at" <= $2)
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT $3;

-- sqlqueue: list parked tasks
SELECT "pg_task"."id", "pg_task"."step"::text, "pg_task"."wakeup_at", "pg_task"."tried", "pg_task"."is_running", "pg_task"."error"::text, "pg_task"."locked_until", "pg_task"."created_at", "pg_task"."updated_at" FROM "pg_task"
WHERE "pg_task"."error" IS NOT NULL
ORDER BY "pg_task"."wakeup_at", "pg_task"."id"
LIMIT $1;
