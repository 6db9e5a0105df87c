-- sqlqueue: move to another group
UPDATE "full_jobs"
SET "queue_name" = $1, "due_at" = NULL, "attempt" = 0, "locked_until" = NULL, "headers" = _given.headers, "is_running" = FALSE
FROM unnest($2::bigint[], $3::timestamptz[], $4::jsonb[]) AS _given(id, token, headers)
WHERE "full_jobs"."id" = _given.id AND "full_jobs"."locked_until" = _given.token
RETURNING "full_jobs"."id";
