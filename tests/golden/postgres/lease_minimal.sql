-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE ("jobs"."locked_until" IS NULL OR "jobs"."locked_until" <= $1)
        ORDER BY "jobs"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $2
)
UPDATE "jobs"
SET "locked_until" = $3
FROM _due
WHERE "jobs"."id" = _due.id
RETURNING "jobs"."id", "jobs"."payload"::text;

-- sqlqueue: claim by lease, onward
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE ("jobs"."locked_until" IS NULL OR "jobs"."locked_until" <= $1)
          AND "jobs"."id" > $2
        ORDER BY "jobs"."id"
        LIMIT 16
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS _waiting
    LIMIT $3
)
UPDATE "jobs"
SET "locked_until" = $4
FROM _due
WHERE "jobs"."id" = _due.id
RETURNING "jobs"."id", "jobs"."payload"::text;

-- sqlqueue: look ahead
SELECT NULL AS due, TRUE AS hidden, (
    SELECT "jobs"."id" AS id FROM "jobs"
    WHERE ("jobs"."locked_until" IS NULL OR "jobs"."locked_until" <= $1)
    ORDER BY "jobs"."id"
    LIMIT 1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "jobs"
SET "locked_until" = $1
FROM (
    SELECT "jobs"."id" AS id FROM "jobs"
    CROSS JOIN unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
    WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "jobs"."id" = _free.id
RETURNING "jobs"."id";

-- sqlqueue: is it still held
SELECT "jobs"."id" FROM "jobs"
CROSS JOIN unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "jobs"
USING unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token
RETURNING "jobs"."id";

-- sqlqueue: retry
UPDATE "jobs"
SET "locked_until" = _given.due
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, due)
WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token
RETURNING "jobs"."id";

-- sqlqueue: release
UPDATE "jobs"
SET "locked_until" = _given.until
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, until)
WHERE "jobs"."id" = _given.id AND "jobs"."locked_until" = _given.token
RETURNING "jobs"."id";
