-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
          AND ("counted_jobs"."locked_until" IS NULL OR "counted_jobs"."locked_until" <= $2)
        ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $3
)
UPDATE "counted_jobs"
SET "locked_until" = $4, "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
FROM _due
WHERE "counted_jobs"."id" = _due.id
RETURNING "counted_jobs"."id", "counted_jobs"."payload"::text, "counted_jobs"."attempt", "counted_jobs"."due_at";

-- sqlqueue: claim by lease, onward
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
        WHERE COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz) <= $1
          AND ("counted_jobs"."locked_until" IS NULL OR "counted_jobs"."locked_until" <= $2)
          AND (COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id") >= (COALESCE($3, '-infinity'::timestamptz), $4)
        ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $5
)
UPDATE "counted_jobs"
SET "locked_until" = $6, "attempt" = COALESCE("counted_jobs"."attempt", 0) + 1
FROM _due
WHERE "counted_jobs"."id" = _due.id
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
      AND ("counted_jobs"."locked_until" IS NULL OR "counted_jobs"."locked_until" <= $2)
    ORDER BY COALESCE("counted_jobs"."due_at", '-infinity'::timestamptz), "counted_jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "counted_jobs"
SET "locked_until" = $1
FROM (
    SELECT "counted_jobs"."id" AS id FROM "counted_jobs"
    CROSS JOIN unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
    WHERE "counted_jobs"."id" = _given.id AND "counted_jobs"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "counted_jobs"."id" = _free.id
RETURNING "counted_jobs"."id";

-- sqlqueue: is it still held
SELECT "counted_jobs"."id" FROM "counted_jobs"
CROSS JOIN unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "counted_jobs"."id" = _given.id AND "counted_jobs"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "counted_jobs"."id" FROM "counted_jobs"
WHERE "counted_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "counted_jobs"
USING unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "counted_jobs"."id" = _given.id AND "counted_jobs"."locked_until" = _given.token
RETURNING "counted_jobs"."id";

-- sqlqueue: retry
UPDATE "counted_jobs"
SET "due_at" = _given.due, "locked_until" = NULL
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, due)
WHERE "counted_jobs"."id" = _given.id AND "counted_jobs"."locked_until" = _given.token
RETURNING "counted_jobs"."id";

-- sqlqueue: release
UPDATE "counted_jobs"
SET "locked_until" = _given.until, "attempt" = "counted_jobs"."attempt" - 1
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, until)
WHERE "counted_jobs"."id" = _given.id AND "counted_jobs"."locked_until" = _given.token
RETURNING "counted_jobs"."id";
