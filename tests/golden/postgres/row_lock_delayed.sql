-- sqlqueue: claim by row lock
SELECT "counted_jobs"."id", "counted_jobs"."payload"::text, COALESCE("counted_jobs"."attempt", 0) + 1, "counted_jobs"."due_at" FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: claim by row lock, onward
SELECT "counted_jobs"."id", "counted_jobs"."payload"::text, COALESCE("counted_jobs"."attempt", 0) + 1, "counted_jobs"."due_at" FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
  AND (COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id") >= (COALESCE($2, '-infinity'::timestamptz), $3)
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "counted_jobs"
            WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz)
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT 1 OFFSET $2
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: lock again
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND COALESCE("counted_jobs"."attempt", 0) + 1 = $2
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = $1, "attempt" = $2
WHERE "counted_jobs"."id" = $3
RETURNING "counted_jobs"."id";
