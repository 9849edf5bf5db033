"""An order desk: client → service → queue → listener → event.

    hms boot --config examples/order_desk.conf
    python examples/order_desk.py

This module is all of it: the services, which the node runs, and the client at its end.
"""

import os
import sys

import hms
from tpmon import Request, service

PRICES_CENTS = {"coffee": 250, "tea": 200}
ORDERS, SHIPPED = hms.Queue("desk.orders"), hms.Topic("desk.shipped")
ADDRESS = os.environ.get("HMS_ADDRESS", "tcp://127.0.0.1:7700")
_connection = None


def connection():
    """One connection for the whole life of a server process."""
    global _connection
    if _connection is None:
        _connection = hms.connect(ADDRESS)
    return _connection


@service("ORDER")
def order(request: Request) -> dict:
    """Take an order: the queue has it, safe, before the customer hears the price."""
    item, count = request.data["item"], request.data["count"]
    if item not in PRICES_CENTS:
        raise ValueError(f"{item} is not sold here")
    with connection().session() as session:
        order = hms.Message.map(request.data | {"cents": count * PRICES_CENTS[item]})
        receipt = session.producer(ORDERS).send(order)
    return {"number": receipt.message_id, "cents": count * PRICES_CENTS[item]}


@service("SHIP")
def ship(request: Request) -> None:
    """Called for every message of the queue; tells the world what was shipped."""
    order = request.data
    if order["count"] > 100:
        raise hms.Reject("nobody can carry that")
    with connection().session() as session:
        shipped = {"item": order["item"], "count": order["count"]}
        session.producer(SHIPPED).send(hms.Message.map(shipped))


def main() -> None:
    """Order two things, and wait until they are shipped."""
    with hms.connect(ADDRESS) as desk, desk.session() as session:
        shipped = session.subscriber(SHIPPED)
        for item, count in (("coffee", 2), ("tea", 3)):
            reply = desk.call("ORDER", {"item": item, "count": count}, timeout_s=60)
            print(f"ordered {count} {item} for {reply.data['cents']} cents")
        for _ in range(2):
            message = shipped.receive(timeout_s=60)
            if message is None:
                sys.exit("nothing was shipped within 60 s")
            print(f"shipped {message.body['count']} {message.body['item']}")


if __name__ == "__main__":
    main()
