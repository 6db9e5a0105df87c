-- sqlqueue: insert
INSERT INTO "pg_task" ("step", "wakeup_at")
VALUES (?1, ?2)
RETURNING "pg_task"."id";

-- sqlqueue: insert
INSERT INTO "pg_task" ("step", "wakeup_at")
VALUES (?1, ?2)
ON CONFLICT DO NOTHING
RETURNING "pg_task"."id";

-- sqlqueue: insert
INSERT INTO "pg_task" ("step", "wakeup_at")
VALUES (?1, ?2);
