-- sqlqueue: claim by row lock
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $1
        ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
        LIMIT 10
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $2
)
SELECT "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, CASE WHEN "kept_jobs"."attempt" >= $3 THEN 1 ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END, "kept_jobs"."due_at" FROM "kept_jobs"
JOIN _due ON "kept_jobs"."id" = _due.id
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: claim by row lock, onward
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
        WHERE "kept_jobs"."done_at" IS NULL
          AND "kept_jobs"."error" IS NULL
          AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $1
          AND (COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id") >= (COALESCE($2, '-infinity'::timestamptz), $3)
        ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
        LIMIT 10
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $4
)
SELECT "kept_jobs"."id", "kept_jobs"."headers", "kept_jobs"."payload"::text, CASE WHEN "kept_jobs"."attempt" >= $5 THEN 1 ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END, "kept_jobs"."due_at" FROM "kept_jobs"
JOIN _due ON "kept_jobs"."id" = _due.id
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "kept_jobs"
            WHERE "kept_jobs"."done_at" IS NULL
              AND "kept_jobs"."error" IS NULL
              AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz)
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "kept_jobs"."id" AS id FROM "kept_jobs"
    WHERE "kept_jobs"."done_at" IS NULL
      AND "kept_jobs"."error" IS NULL
      AND COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz) <= $1
    ORDER BY COALESCE("kept_jobs"."due_at", '-infinity'::timestamptz), "kept_jobs"."id"
    LIMIT 1 OFFSET $2
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: lock again
SELECT "kept_jobs"."id" FROM "kept_jobs"
WHERE "kept_jobs"."id" = $1 AND "kept_jobs"."done_at" IS NULL
  AND "kept_jobs"."error" IS NULL
  AND CASE WHEN "kept_jobs"."attempt" >= $2 THEN 1 ELSE COALESCE("kept_jobs"."attempt", 0) + 1 END = $3
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: is it unfinished
SELECT "kept_jobs"."id" FROM "kept_jobs"
WHERE "kept_jobs"."id" = $1 AND "kept_jobs"."done_at" IS NULL
  AND "kept_jobs"."error" IS NULL;

-- sqlqueue: acknowledge
UPDATE "kept_jobs"
SET "done_at" = $1, "attempt" = _given.attempt
FROM unnest($2::bigint[], $3::bigint[]) AS _given(id, attempt)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";

-- sqlqueue: retry
UPDATE "kept_jobs"
SET "due_at" = _given.due, "attempt" = _given.attempt
FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[]) AS _given(id, attempt, due)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";

-- sqlqueue: park
UPDATE "kept_jobs"
SET "error" = _given.error, "attempt" = _given.attempt
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS _given(id, attempt, error)
WHERE "kept_jobs"."id" = _given.id
RETURNING "kept_jobs"."id";
