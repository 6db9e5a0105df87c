-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES (COALESCE(?1, strftime('%Y-%m-%d %H:%M:%f', 'now', (((CAST(round(?2 * 1000000.0) AS INTEGER) + 999) / 1000) / 1000.0) || ' seconds')), ?3, ?4)
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES (COALESCE(?1, strftime('%Y-%m-%d %H:%M:%f', 'now', (((CAST(round(?2 * 1000000.0) AS INTEGER) + 999) / 1000) / 1000.0) || ' seconds')), ?3, ?4)
ON CONFLICT DO NOTHING
RETURNING "counted_jobs"."id";

-- sqlqueue: insert
INSERT INTO "counted_jobs" ("due_at", "attempt", "payload")
VALUES (?1, ?2, ?3);
