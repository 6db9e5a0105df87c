-- sqlqueue: claim by row lock
SELECT "jobs"."id", "jobs"."payload"::text FROM "jobs"
WHERE TRUE
ORDER BY "jobs"."id"
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- sqlqueue: claim by row lock, onward
SELECT "jobs"."id", "jobs"."payload"::text FROM "jobs"
WHERE "jobs"."id" > $1
ORDER BY "jobs"."id"
LIMIT 1
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
WHERE "jobs"."id" = $1
RETURNING "jobs"."id";
