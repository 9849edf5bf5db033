"""What a global transaction costs: transfers a second with it, and the same work without.

    python bench/xa.py [--seconds 5] [--threads 8]

PostgreSQL and MariaDB are started for it, with their usual durability. "separate" does the same
statements and commits in one database after the other, which loses money when it dies between. "by
hand" are the statements of two-phase commit alone: nobody decides, and nobody recovers what is left
prepared; it is what the databases and their drivers take of a global transaction. All kinds take
turns, so that what the machine does besides troubles all alike.
"""

import argparse
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg

import hms
from hms.testing import node
from tests.acceptance.bank_rig import ACCOUNTS, bank
from tpmon.xa.resource_opening import close_resources

Made = tuple[Callable[[], None], Callable[[], object]]
ROUNDS = 5
DEBIT = "UPDATE account SET balance = balance - %s WHERE id = %s"
CREDIT = "UPDATE account SET balance = balance + %s WHERE id = %s"


class Transfers:
    """Transfers between the databases, each thread on accounts of its own."""

    def __init__(self, both: Any, conn: hms.Connection) -> None:
        self._both, self._conn = both, conn

    def separate(self, account: int) -> Made:
        """One commit after the other."""
        west = psycopg.connect(self._both.postgres.url)
        east = self._both.mariadb.connect()
        east.autocommit(False)  # noqa: FBT003 - it takes no names

        def transfer() -> None:
            west.execute(DEBIT, (1, account))
            with east.cursor() as cursor:
                cursor.execute(CREDIT, (1, account))
            west.commit()
            east.commit()

        return transfer, lambda: (west.close(), east.close())

    def separate_with_message(self, account: int) -> Made:
        """The same, and a message beside them."""
        transfer, close = self.separate(account)
        session = self._conn.session()
        producer = session.producer(hms.Queue("receipts"))

        def both() -> None:
            transfer()
            producer.send(b"moved")

        return both, lambda: (close(), session.close())

    def by_hand(self, account: int) -> Made:
        """Two-phase commit without a decision."""
        west = psycopg.connect(self._both.postgres.url, autocommit=True)
        east = self._both.mariadb.connect()

        def transfer() -> None:
            xid = f"'{uuid.uuid4().hex}'"
            with east.cursor() as cursor:
                west.execute("BEGIN")
                west.execute(DEBIT, (1, account))
                cursor.execute(f"XA START {xid}")
                cursor.execute(CREDIT, (1, account))
                west.execute(f"PREPARE TRANSACTION {xid}")
                cursor.execute(f"XA END {xid}")
                cursor.execute(f"XA PREPARE {xid}")
                west.execute(f"COMMIT PREPARED {xid}")
                cursor.execute(f"XA COMMIT {xid}")

        return transfer, lambda: (west.close(), east.close())

    def xa(self, account: int) -> Made:
        """One global transaction."""

        def transfer() -> None:
            with self._conn.transaction():
                self._move(account)

        return transfer, lambda: None

    def xa_with_message(self, account: int) -> Made:
        """One global transaction, the message in it."""

        def transfer() -> None:
            with self._conn.transaction():
                self._move(account)
                word = hms.rm("hms").producer(hms.Queue("receipts"))
                word.send(b"moved")
                word.close()

        return transfer, lambda: None

    def _move(self, account: int) -> None:
        hms.rm("pg").execute(DEBIT, (1, account))
        with hms.rm("maria").cursor() as cursor:
            cursor.execute(CREDIT, (1, account))


def measure(make: Callable[[int], Made], threads: int, seconds: float) -> float:
    """Transfers a second of so many threads."""
    counts, until = [0] * threads, time.monotonic() + seconds

    def run(number: int) -> None:
        transfer, close = make(number % ACCOUNTS)
        while time.monotonic() < until:
            transfer()
            counts[number] += 1
        close()

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    began = time.monotonic()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    with bank() as both, node(config=both.config(receipts={})) as started:
        with hms.connect(started.address) as conn:
            transfers = Transfers(both, conn)
            groups = {
                "transfers": (transfers.separate, transfers.by_hand, transfers.xa),
                "with a message": (transfers.separate_with_message, transfers.xa_with_message),
            }
            for name, kinds in groups.items():
                rounds = [
                    [measure(make, given.threads, given.seconds / ROUNDS) for make in kinds]
                    for _ in range(ROUNDS)
                ]
                rates = [statistics.median(column) for column in zip(*rounds, strict=True)]
                print(name)
                for make, rate in zip(kinds, rates, strict=True):
                    print(f"  {make.__name__:24} {rate:7.0f}/s   {rate / rates[0]:.2f}")
        close_resources()


if __name__ == "__main__":
    main()
