-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES (COALESCE($1, statement_timestamp() + make_interval(secs => CAST($2 AS double precision))), $3, $4)
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES (COALESCE($1, statement_timestamp() + make_interval(secs => CAST($2 AS double precision))), $3, $4)
ON CONFLICT DO NOTHING
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES ($1, $2, $3);
