-- sqlqueue: claim by row lock
WITH due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE TRUE
        ORDER BY "jobs"."id"
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
    LIMIT $1
)
SELECT "jobs"."id", "jobs"."payload"::text FROM "jobs"
JOIN due ON "jobs"."id" = due.id
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: claim by row lock, onward
WITH due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE ("jobs"."id") >= ($1)
        ORDER BY "jobs"."id"
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
    LIMIT $2
)
SELECT "jobs"."id", "jobs"."payload"::text FROM "jobs"
JOIN due ON "jobs"."id" = due.id
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: look ahead
SELECT NULL AS due, TRUE AS hidden, (
    SELECT "jobs"."id" AS id FROM "jobs"
    WHERE TRUE
    ORDER BY "jobs"."id"
    LIMIT 1 OFFSET $1
) IS NOT NULL AS passed_over, NULL AS now;

-- sqlqueue: lock again
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = $1 AND TRUE
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: is it unfinished
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "jobs"
USING unnest($1::bigint[]) AS given(id)
WHERE "jobs"."id" = given.id
RETURNING "jobs"."id";
