-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "locked_until", "payload")
VALUES (?1, ?2, ?3, ?4)
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "locked_until", "payload")
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "locked_until", "payload")
VALUES (?1, ?2, ?3, ?4);
