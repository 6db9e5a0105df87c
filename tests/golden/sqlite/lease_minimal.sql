-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE ("jobs"."locked_until" IS NULL OR ("jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("jobs"."locked_until", 11, 1) = 'T' OR substr("jobs"."locked_until", -1) = 'Z' OR substr("jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "jobs"."locked_until"), "jobs"."locked_until") ELSE "jobs"."locked_until" END <= ?1))
        ORDER BY "jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?2
)
UPDATE "jobs"
SET "locked_until" = ?3
FROM _due
WHERE "jobs"."id" = _due.id
RETURNING "jobs"."id", "jobs"."payload";

-- sqlqueue: claim by lease, onward
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT "jobs"."id" AS id FROM "jobs"
        WHERE ("jobs"."locked_until" IS NULL OR ("jobs"."locked_until" IS NOT NULL AND CASE
          WHEN substr("jobs"."locked_until", 11, 1) = 'T' OR substr("jobs"."locked_until", -1) = 'Z' OR substr("jobs"."locked_until", -6, 1) IN ('+', '-')
          THEN COALESCE(strftime('%Y-%m-%d %H:%M:%f', "jobs"."locked_until"), "jobs"."locked_until") ELSE "jobs"."locked_until" END <= ?1))
          AND "jobs"."id" > ?2
        ORDER BY "jobs"."id"
        LIMIT 16
    ) AS _waiting
    LIMIT ?3
)
UPDATE "jobs"
SET "locked_until" = ?4
FROM _due
WHERE "jobs"."id" = _due.id
RETURNING "jobs"."id", "jobs"."payload";

-- sqlqueue: look ahead
SELECT NULL AS due, (
    SELECT "jobs"."id" AS id FROM "jobs"
    WHERE TRUE
    ORDER BY "jobs"."id"
    LIMIT 1
) IS NOT NULL AS hidden, FALSE AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "jobs"
SET "locked_until" = ?1
FROM (
    SELECT "jobs"."id" AS id FROM "jobs"
    WHERE "jobs"."id" = ?2 AND "jobs"."locked_until" = ?3
) AS _free
WHERE "jobs"."id" = _free.id
RETURNING "jobs"."id";

-- sqlqueue: is it still held
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = ?1 AND "jobs"."locked_until" = ?2;

-- sqlqueue: is it gone
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = ?1;

-- sqlqueue: is it unfinished
SELECT "jobs"."id" FROM "jobs"
WHERE "jobs"."id" = ?1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "jobs"
WHERE "jobs"."id" = ?1 AND "jobs"."locked_until" = ?2
RETURNING "jobs"."id";

-- sqlqueue: retry
UPDATE "jobs"
SET "locked_until" = ?1
WHERE "jobs"."id" = ?2 AND "jobs"."locked_until" = ?3
RETURNING "jobs"."id";

-- sqlqueue: release
UPDATE "jobs"
SET "locked_until" = ?1
WHERE "jobs"."id" = ?2 AND "jobs"."locked_until" = ?3
RETURNING "jobs"."id";
