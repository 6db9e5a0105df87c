-- sqlqueue: find by advisory lock
SELECT "counted_jobs"."id", CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text) AS key FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 4;

-- sqlqueue: find 64 by advisory lock
SELECT "counted_jobs"."id", CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text) AS key FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
  AND NOT CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text)::text = ANY($4::text[])
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 64;

-- sqlqueue: find 256 by advisory lock
SELECT "counted_jobs"."id", CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text) AS key FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
  AND NOT CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text)::text = ANY($4::text[])
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 256;

-- sqlqueue: find 1024 by advisory lock
SELECT "counted_jobs"."id", CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text) AS key FROM "counted_jobs"
WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $3
  AND NOT CAST($1 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($2 AS text)::text = ANY($4::text[])
ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
LIMIT 1024;

-- sqlqueue: take by advisory lock
UPDATE "counted_jobs"
SET "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
FROM (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    WHERE "counted_jobs"."id" = $1 AND COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $2
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "counted_jobs"."id" = _free.id
RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at";

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
      AND NOT CAST($2 AS text) || COALESCE(CAST("counted_jobs"."id" AS text), '') || CAST($3 AS text)::text = ANY($4::text[])
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: find again
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND "counted_jobs"."attempt" = $2;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = $1
WHERE "counted_jobs"."id" = $2
RETURNING "counted_jobs"."id";

-- sqlqueue: release
UPDATE "counted_jobs"
SET "attempt" = "counted_jobs"."attempt" - 1
WHERE "counted_jobs"."id" = $1
RETURNING "counted_jobs"."id";
