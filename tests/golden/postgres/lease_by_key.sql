-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "keyed_jobs"."id" AS id FROM "keyed_jobs"
        WHERE COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz) <= $1
          AND ("keyed_jobs"."locked_until" IS NULL OR "keyed_jobs"."locked_until" <= $2)
          AND ("keyed_jobs"."account" IS NULL OR NOT "keyed_jobs"."account"::text = ANY($3::text[]) OR "keyed_jobs"."id" = ANY($4::bigint[]))
        ORDER BY COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz), "keyed_jobs"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $5
)
UPDATE "keyed_jobs"
SET "locked_until" = $6, "attempt" = COALESCE("keyed_jobs"."attempt", 0) + 1
FROM _due
WHERE "keyed_jobs"."id" = _due.id
RETURNING "keyed_jobs"."id", "keyed_jobs"."account"::text, "keyed_jobs"."payload"::text, "keyed_jobs"."attempt", "keyed_jobs"."due_at";

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
      AND ("keyed_jobs"."locked_until" IS NULL OR "keyed_jobs"."locked_until" <= $2)
      AND ("keyed_jobs"."account" IS NULL OR NOT "keyed_jobs"."account"::text = ANY($3::text[]) OR "keyed_jobs"."id" = ANY($4::bigint[]))
    ORDER BY COALESCE("keyed_jobs"."due_at", '-infinity'::timestamptz), "keyed_jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "keyed_jobs"
SET "locked_until" = $1
FROM (
    SELECT "keyed_jobs"."id" AS id FROM "keyed_jobs"
    CROSS JOIN unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
    WHERE "keyed_jobs"."id" = _given.id AND "keyed_jobs"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "keyed_jobs"."id" = _free.id
RETURNING "keyed_jobs"."id";

-- sqlqueue: is it still held
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
CROSS JOIN unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "keyed_jobs"."id" = _given.id AND "keyed_jobs"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "keyed_jobs"."id" FROM "keyed_jobs"
WHERE "keyed_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "keyed_jobs"
USING unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "keyed_jobs"."id" = _given.id AND "keyed_jobs"."locked_until" = _given.token
RETURNING "keyed_jobs"."id";

-- sqlqueue: retry
UPDATE "keyed_jobs"
SET "due_at" = _given.due, "locked_until" = NULL
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, due)
WHERE "keyed_jobs"."id" = _given.id AND "keyed_jobs"."locked_until" = _given.token
RETURNING "keyed_jobs"."id";

-- sqlqueue: release
UPDATE "keyed_jobs"
SET "locked_until" = _given.until, "attempt" = "keyed_jobs"."attempt" - 1
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, until)
WHERE "keyed_jobs"."id" = _given.id AND "keyed_jobs"."locked_until" = _given.token
RETURNING "keyed_jobs"."id";
