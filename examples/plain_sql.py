"""Another program that writes invoices with plain SQL. It knows the table, and nothing of sqlqueue.

    python examples/plain_sql.py sqlite:///invoices.db A-1 A-2 A-3

All rows are written in one transaction. The time printed is `time.monotonic()` just before the commit: on one machine
that clock is the same for all processes.
"""

import json
import sqlite3
import sys
import time
from contextlib import closing
from urllib.parse import unquote

ON_SQLITE = "INSERT INTO invoice_jobs (payload) VALUES (?)"
ON_POSTGRES = "INSERT INTO invoice_jobs (payload) VALUES (convert_to(%s, 'UTF8'))"


def main(url: str, *numbers: str) -> None:
    payloads = [(json.dumps({"number": number}),) for number in numbers]
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(unquote(url.removeprefix("sqlite:///")), timeout=10)) as file:
            file.executemany(ON_SQLITE, payloads)
            committing = time.monotonic()
            file.commit()
    else:
        import psycopg

        with psycopg.connect(url) as server:
            server.cursor().executemany(ON_POSTGRES, payloads)
            committing = time.monotonic()
            server.commit()
    print(f"wrote {len(payloads)} at {committing:.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
