"""The client of the bank under kills: orders transfers, makes every other one itself, until killed.

    python bank_client.py ADDRESS NAME BOOK

It writes down, before and after, what it tries and what it knows to have happened.
"""

import itertools
import os
import random
import sys
import threading
from pathlib import Path

import hms

ACCOUNTS = 20
THREADS = 4


def main(address, name, book):
    """Until it is killed."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))
    import bank

    out = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with hms.connect(address, request_timeout_s=20) as conn:
        threads = [
            threading.Thread(target=_work, args=(conn, bank, f"{name}-{n}", out))
            for n in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _work(conn, bank, name, out):
    chance = random.Random(name)
    for number in itertools.count():
        order = {
            "number": f"{name}-{number}",
            "source": chance.randrange(ACCOUNTS),
            "target": chance.randrange(ACCOUNTS),
            "amount": chance.randrange(1, 10),
        }
        os.write(out, f"try {order['number']}\n".encode())
        try:
            _order(conn, bank, order) if number % 2 else _make(conn, bank, order)
        except Exception as error:  # noqa: BLE001 - the databases' own errors are among them
            os.write(out, f"error {order['number']} {type(error).__name__}\n".encode())
            threading.Event().wait(0.05)
        else:
            os.write(out, f"done {order['number']}\n".encode())


def _order(conn, bank, order):
    with conn.session() as session:
        session.producer(bank.TRANSFERS).send(hms.Message.map(order))


def _make(conn, bank, order):
    with conn.transaction(timeout_s=20):
        bank.move(**order)


if __name__ == "__main__":
    main(*sys.argv[1:])
