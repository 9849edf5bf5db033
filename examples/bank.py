"""A bank: money moves from PostgreSQL to MariaDB, each transfer with a message, all or nothing.

    hms boot --config examples/bank.conf
    python examples/bank.py

An order for a transfer is a message. The listener's transaction takes the message, moves the money
in both databases and sends word of it; any of the processes and databases may die at any moment.

    CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);       in both databases
    CREATE TABLE entry (id varchar(64) PRIMARY KEY, amount int NOT NULL);
"""

import os
import sys

import hms
from tpmon import Request, service

TRANSFERS, DONE = hms.Queue("bank.transfers"), hms.Queue("bank.done")
ADDRESS = os.environ.get("HMS_ADDRESS", "tcp://127.0.0.1:7700")
DEBIT = "UPDATE account SET balance = balance - %s WHERE id = %s"
CREDIT = "UPDATE account SET balance = balance + %s WHERE id = %s"
ENTRY = "INSERT INTO entry VALUES (%s, %s)"


@service("TRANSFER", transaction="required")
def transfer(request: Request) -> None:
    """Called for every order; its message is gone exactly when the money has moved."""
    move(**request.message.body)


def move(number: str, source: int, target: int, amount: int) -> None:
    """A part of the transaction that is going on here."""
    west = hms.rm("west")
    west.execute(DEBIT, (amount, source))
    west.execute(ENTRY, (number, -amount))
    with hms.rm("east").cursor() as east:
        east.execute(CREDIT, (amount, target))
        east.execute(ENTRY, (number, amount))
    word = hms.rm("hms").producer(DONE)
    word.send(number.encode())
    word.close()


def main() -> None:
    """Order ten transfers, make one more at once, and wait for word of all of them."""
    with hms.connect(ADDRESS) as bank, bank.session() as session:
        orders = session.producer(TRANSFERS)
        for count in range(10):
            order = {"number": f"order-{count}", "source": count, "target": count, "amount": 7}
            orders.send(hms.Message.map(order))
        with bank.transaction(timeout_s=30):
            move("at-once", 3, 4, 100)
        done = session.consumer(DONE)
        for _ in range(11):
            message = done.receive(timeout_s=30)
            if message is None:
                sys.exit("a transfer is missing after 30 s")
            print(f"moved {message.body.decode()}")


if __name__ == "__main__":
    main()
