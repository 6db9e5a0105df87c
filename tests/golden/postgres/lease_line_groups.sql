-- sqlqueue: walk the lines
WITH RECURSIVE _lines AS (
    (
        SELECT line, id, FALSE AS taken, FALSE AS wrapped, 0 AS found, 0 AS seen FROM (
            SELECT "line_group_jobs"."queue_name" AS line, "line_group_jobs"."id" AS id FROM "line_group_jobs"
            WHERE FALSE
            UNION ALL
            SELECT $1, NULL
        ) AS _start
    )
    UNION ALL
    SELECT _next.line, _next.id, _guard.taken, _next.wrapped,
           _lines.found + COALESCE(_guard.taken, FALSE)::int, _lines.seen + 1
    FROM _lines
    CROSS JOIN LATERAL (
        (
            SELECT "line_group_jobs"."queue_name" AS line, "line_group_jobs"."id" AS id, _lines.wrapped AS wrapped, COALESCE(COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) <= $2 AND ("line_group_jobs"."locked_until" IS NULL OR "line_group_jobs"."locked_until" <= $3), FALSE) AS free FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" > _lines.line
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
        UNION ALL
        (
            SELECT "line_group_jobs"."queue_name", "line_group_jobs"."id", TRUE, COALESCE(COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) <= $2 AND ("line_group_jobs"."locked_until" IS NULL OR "line_group_jobs"."locked_until" <= $3), FALSE) FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
        LIMIT 1
    ) AS _next
    CROSS JOIN LATERAL (
        SELECT CASE WHEN _next.free THEN pg_try_advisory_xact_lock(hashtextextended(CAST($4 AS text) || CAST(_next.line AS text), 0)) END AS taken
    ) AS _guard
    WHERE _lines.found < $5 AND _lines.seen < 1000
      AND (NOT _next.wrapped OR $1 IS NULL OR _next.line <= $1)
)
SELECT set_config('sqlqueue.lines', COALESCE(json_agg(json_build_object('queue_name', line)) FILTER (WHERE taken),
                  '[]')::text, TRUE) AS kept,
       (array_agg(line::text ORDER BY seen DESC))[1] AS last_line, max(seen) AS seen,
       count(*) FILTER (WHERE taken) AS taken, bool_or(wrapped) AS wrapped
FROM _lines;

-- sqlqueue: claim by lease
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        SELECT _locked.id AS id FROM (
            SELECT "queue_name" AS line
            FROM json_populate_recordset(NULL::"line_group_jobs", NULLIF(current_setting('sqlqueue.lines', TRUE), '')::json)
        ) AS _kept
        CROSS JOIN LATERAL (
            SELECT "line_group_jobs"."id" AS id FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" = _kept.line
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        ) AS _front
        CROSS JOIN LATERAL (
            SELECT "line_group_jobs"."id" AS id FROM "line_group_jobs"
            WHERE "line_group_jobs"."id" = _front.id AND COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) <= $1
              AND ("line_group_jobs"."locked_until" IS NULL OR "line_group_jobs"."locked_until" <= $2)
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS _locked
    ) AS _waiting
    LIMIT $3
)
UPDATE "line_group_jobs"
SET "locked_until" = $4, "attempt" = COALESCE("line_group_jobs"."attempt", 0) + 1
FROM _due
WHERE "line_group_jobs"."id" = _due.id
RETURNING "line_group_jobs"."id", "line_group_jobs"."queue_name"::text, "line_group_jobs"."payload"::text, "line_group_jobs"."attempt", "line_group_jobs"."due_at";

-- sqlqueue: look ahead in lines
WITH RECURSIVE _lines AS (
    (
        SELECT line, id, FALSE AS taken, FALSE AS wrapped, 0 AS found, 0 AS seen FROM (
            SELECT "line_group_jobs"."queue_name" AS line, "line_group_jobs"."id" AS id FROM "line_group_jobs"
            WHERE FALSE
            UNION ALL
            SELECT NULL, NULL
        ) AS _start
    )
    UNION ALL
    SELECT _next.line, _next.id, _guard.taken, _next.wrapped,
           _lines.found + COALESCE(_guard.taken, FALSE)::int, _lines.seen + 1
    FROM _lines
    CROSS JOIN LATERAL (
        (
            SELECT "line_group_jobs"."queue_name" AS line, "line_group_jobs"."id" AS id, _lines.wrapped AS wrapped, COALESCE(COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) <= $1 AND ("line_group_jobs"."locked_until" IS NULL OR "line_group_jobs"."locked_until" <= $2), FALSE) AS free FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" > _lines.line
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
        UNION ALL
        (
            SELECT "line_group_jobs"."queue_name", "line_group_jobs"."id", TRUE, COALESCE(COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) <= $1 AND ("line_group_jobs"."locked_until" IS NULL OR "line_group_jobs"."locked_until" <= $2), FALSE) FROM "line_group_jobs"
            WHERE "line_group_jobs"."queue_name" IS NOT NULL AND NOT _lines.wrapped
            ORDER BY "line_group_jobs"."queue_name", ("line_group_jobs"."locked_until" IS NULL), "line_group_jobs"."id"
            LIMIT 1
        )
        LIMIT 1
    ) AS _next
    CROSS JOIN LATERAL (
        SELECT _next.free AS taken
    ) AS _guard
    WHERE _lines.found < 1000000 AND _lines.seen < 1000
      AND (NOT _next.wrapped OR NULL IS NULL OR _next.line <= NULL)
)
SELECT (
    SELECT min(ahead) FROM (
        SELECT COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) AS ahead FROM "line_group_jobs"
        WHERE "line_group_jobs"."id" IN (SELECT id FROM _lines) AND COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) > $1 AND COALESCE("line_group_jobs"."due_at", '-infinity'::timestamptz) < '9999-12-31 00:00:00+00'::timestamptz
    ) AS _ranges
) AS due, TRUE AS hidden, (
    SELECT count(*) FROM (
        SELECT id FROM _lines WHERE taken
        LIMIT 0 + 1
    ) AS _found
) > 0 AS passed_over, NULL AS now;

-- sqlqueue: extend
UPDATE "line_group_jobs"
SET "locked_until" = $1
FROM (
    SELECT "line_group_jobs"."id" AS id FROM "line_group_jobs"
    CROSS JOIN unnest($2::bigint[], $3::timestamptz[]) AS _given(id, token)
    WHERE "line_group_jobs"."id" = _given.id AND "line_group_jobs"."locked_until" = _given.token
    FOR NO KEY UPDATE SKIP LOCKED
) AS _free
WHERE "line_group_jobs"."id" = _free.id
RETURNING "line_group_jobs"."id";

-- sqlqueue: is it still held
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
CROSS JOIN unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "line_group_jobs"."id" = _given.id AND "line_group_jobs"."locked_until" = _given.token;

-- sqlqueue: is it gone
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = $1;

-- sqlqueue: is it unfinished
SELECT "line_group_jobs"."id" FROM "line_group_jobs"
WHERE "line_group_jobs"."id" = $1 AND TRUE;

-- sqlqueue: acknowledge
DELETE FROM "line_group_jobs"
USING unnest($1::bigint[], $2::timestamptz[]) AS _given(id, token)
WHERE "line_group_jobs"."id" = _given.id AND "line_group_jobs"."locked_until" = _given.token
RETURNING "line_group_jobs"."id";

-- sqlqueue: retry
UPDATE "line_group_jobs"
SET "due_at" = _given.due, "locked_until" = NULL
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, due)
WHERE "line_group_jobs"."id" = _given.id AND "line_group_jobs"."locked_until" = _given.token
RETURNING "line_group_jobs"."id";

-- sqlqueue: release
UPDATE "line_group_jobs"
SET "locked_until" = _given.until, "attempt" = "line_group_jobs"."attempt" - 1
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS _given(id, token, until)
WHERE "line_group_jobs"."id" = _given.id AND "line_group_jobs"."locked_until" = _given.token
RETURNING "line_group_jobs"."id";
