"""A service that renders invoices: a table of its own, a handler, and a consumer that works the rows off.

    python examples/invoices.py                                       # on the file invoices.db
    python examples/invoices.py --url postgresql://localhost/shop

Start as many instances as you like: each row is handed to one of them. SIGTERM or Ctrl-C stops an instance once its
handlers are through. Rows come from `invoices.enqueue(Invoice("A-17"))`, or from any program that can write SQL:
see plain_sql.py.
"""

import argparse
import logging
import sys
import time
from datetime import datetime

import attrs

from sqlqueue import Broker, Consumer, column, table

log = logging.getLogger("invoices")


@table("invoice_jobs")
class InvoiceJob:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@attrs.frozen
class Invoice:
    number: str


def main() -> None:
    arguments = argparse.ArgumentParser(description="Render the invoices that are queued in a table.")
    arguments.add_argument("--url", default="sqlite:///invoices.db", help="the database (%(default)s)")
    url = arguments.parse_args().url
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="worker %(process)d %(message)s")

    # New rows wake the service: on SQLite a watcher sees the commit, on PostgreSQL the table's trigger notifies. The
    # poll is a safety net, so a minute will do.
    with Broker(url, poll_interval=60, notify=url.startswith("postgres")) as broker:
        invoices = broker.queue(InvoiceJob)

        @invoices.handler(workers=4)
        def render(invoice: Invoice) -> None:
            log.info("rendering %s", invoice.number)
            time.sleep(0.05)  # a rendering engine at work

        broker.create_tables()  # or your own migrations
        Consumer(broker).run_forever()


if __name__ == "__main__":
    main()
