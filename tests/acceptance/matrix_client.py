"""One transfer by a client that stops, or is killed, at one point of it.

    python matrix_client.py ADDRESS TRANSFER POINT [--die]

It says AT when it is there and goes on when it hears GO; at the end it says what it knows.
"""

import os
import signal
import sys

import hms
from hms.client.core import current_transaction
from hms.errors.catalogue import TransactionRolledBack
from tests.acceptance.bank_rig import move
from tpmon.tx.connection_place import place_of
from tpmon.tx.transaction import Transaction


class Stop:
    """Stops at a point, the first time that it is reached."""

    def __init__(self, point, *, dies):
        self._point = point
        self._dies = dies

    def __call__(self, step):
        if step != self._point:
            return
        self._point = ""
        if self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        print("AT", flush=True)
        sys.stdin.readline()


def main(address, transfer, point, *how):
    """Make the transfer."""
    with hms.connect(address, request_timeout_s=30) as conn:
        stop = Stop(point, dies=bool(how))
        transaction = Transaction(place_of(conn), on_step=stop)
        try:
            current_transaction.enter(transaction)
            _work(transaction, transfer)
            current_transaction.enter(None)
            transaction.commit()
        except TransactionRolledBack as error:
            print(f"rolled back {error}", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent wants to know
            if not transaction.is_ended:
                transaction.rollback()
                print(f"rolled back after {error!r}", flush=True)
            else:
                print(f"unknown {error!r}", flush=True)
        else:
            print("committed", flush=True)


def _work(transaction, transfer):
    move(transaction.rm, transfer, 1, 2, 1)
    transaction.rm("hms").producer(hms.Queue("receipts")).send(transfer.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
