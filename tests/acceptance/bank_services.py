"""The services of the tests of transactions: each works in PostgreSQL, MariaDB or HMS."""

import os
import signal

import hms
from tests.acceptance.bank_rig import move
from tpmon import TPFAIL, service, tpcall, tpforward, tpreturn


@service("DEBIT", transaction="mandatory")
def debit(request):
    """Take money from an account in PostgreSQL."""
    pg, order = hms.rm("pg"), request.data
    pg.execute(
        "UPDATE account SET balance = balance - %s WHERE id = %s",
        (order["amount"], order["account"]),
    )
    pg.execute("INSERT INTO entry VALUES (%s, %s)", (order["id"], -order["amount"]))


@service("CREDIT", transaction="mandatory")
def credit(request):
    """Put money on an account in MariaDB, and tell a queue."""
    order = request.data
    with hms.rm("maria").cursor() as cursor:
        cursor.execute(
            "UPDATE account SET balance = balance + %s WHERE id = %s",
            (order["amount"], order["account"]),
        )
        cursor.execute("INSERT INTO entry VALUES (%s, %s)", (order["id"], order["amount"]))
    hms.rm("hms").producer(hms.Queue("receipts")).send(order["id"].encode())


@service("BOTH", transaction="required")
def both(request):
    """Call the two others; in the caller's transaction, or in one of its own."""
    tpcall("DEBIT", request.data)
    tpcall("CREDIT", request.data)


@service("ONWARD")
def onward(request):
    """Do a part and hand the rest on."""
    debit(request)
    return tpforward("CREDIT", request.data)


@service("SPOIL")
def spoil(request):
    """Work, then fail."""
    debit(request)
    return tpreturn(TPFAIL, 7)


@service("DIE")
def die(request):
    """Work, then be killed before the answer."""
    debit(request)
    os.kill(os.getpid(), signal.SIGKILL)


@service("AUTO")
def auto(request):
    """AUTOTRAN of its section begins a transaction."""
    debit(request)
    credit(request)


@service("TRANSFER", transaction="required")
def transfer(request):
    """A listener: the message, both databases and a receipt have one outcome."""
    name, source, target, amount = request.message.body.decode().split()
    move(hms.rm, name, int(source), int(target), int(amount))
    if amount == "13":
        raise ValueError("thirteen is not transferred")
    hms.rm("hms").producer(hms.Queue("receipts")).send(name.encode())
