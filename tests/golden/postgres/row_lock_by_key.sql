-- sqlqueue: claim by row lock
SELECT "keyed_jobs"."id", "keyed_jobs"."account"::text, "keyed_jobs"."payload"::text, COALESCE("keyed_jobs"."attempt", 0) + 1, "keyed_jobs"."due_at" FROM "keyed_jobs"
WHERE COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) <= $1
  AND ("keyed_jobs"."account" IS NULL OR NOT "keyed_jobs"."account"::text = ANY($2::text[]) OR "keyed_jobs"."id" = ANY($3::bigint[]))
ORDER BY COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz), "keyed_jobs"."id"
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: look ahead
SELECT (
    SELECT min(ahead) FROM (
        SELECT ahead FROM (
            SELECT COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "keyed_jobs"
            WHERE COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
            ORDER BY COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz)
            LIMIT 1
        ) AS _range_0
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT "keyed_jobs"."id" AS id FROM "keyed_jobs"
    WHERE COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) <= $1
      AND ("keyed_jobs"."account" IS NULL OR NOT "keyed_jobs"."account"::text = ANY($2::text[]) OR "keyed_jobs"."id" = ANY($3::bigint[]))
    ORDER BY COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz), "keyed_jobs"."id"
    LIMIT 1 OFFSET $4
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: lock again
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = $1 AND COALESCE("keyed_jobs"."attempt", 0) + 1 = $2
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: is it unfinished
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = $1
RETURNING "keyed_jobs"."id";

-- sqlqueue: retry
UPDATE "keyed_jobs"
SET "due_at" = $1, "attempt" = $2
WHERE "keyed_jobs"."id" = $3
RETURNING "keyed_jobs"."id";
