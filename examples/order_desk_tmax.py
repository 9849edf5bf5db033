"""The order desk as a Tmax programmer writes it, with the tp and hms functions only.

    hms boot --config examples/order_desk_tmax.conf
    python examples/order_desk_tmax.py

The same desk with other words: order_desk.py.
"""

import queue

from hms import HMS_DLV_PERSISTENT, HMS_INT, HMS_STRING
from hms import hms_alloc, hms_close_session, hms_create_sender, hms_create_session
from hms import hms_get_property, hms_sendex, hms_set_property
from tpmon import TPFAIL, TPSTART_T, TPSUCCESS, TPSVCINFO
from tpmon import service, tpcall, tpend, tppost, tpreturn, tpsetunsol, tpstart
from tpmon import tpsubscribe, tpunsubscribe

PRICES_CENTS = {"coffee": 250, "tea": 200}


@service("ORDER")
def order(rqst: TPSVCINFO):
    """Take an order: the queue has it, safe, before the customer hears the price."""
    item, count = rqst.data["item"], rqst.data["count"]
    if item not in PRICES_CENTS:
        return tpreturn(TPFAIL, 404, "not sold here")
    sess = hms_create_session("hms01")
    prod = hms_create_sender(sess, "desk.orders")
    msg = hms_alloc(sess)
    hms_set_property(msg, "ITEM", HMS_STRING, item)
    hms_set_property(msg, "COUNT", HMS_INT, count)
    hms_sendex(prod, msg, HMS_DLV_PERSISTENT)
    hms_close_session(sess)
    return tpreturn(TPSUCCESS, 0, {"cents": count * PRICES_CENTS[item]})


@service("SHIP")
def ship(rqst: TPSVCINFO):
    """Called for every message of the queue; tells the world what was shipped."""
    _, item = hms_get_property(rqst.message, "ITEM")
    _, count = hms_get_property(rqst.message, "COUNT")
    tppost("desk.shipped", {"item": item, "count": count})
    return tpreturn(TPSUCCESS)


def main():
    """Order two things, and wait until they are shipped."""
    shipped = queue.SimpleQueue()
    tpstart(TPSTART_T(cltname="till"))
    tpsetunsol(lambda data, _size, _flags: shipped.put(data))
    sd = tpsubscribe("desk.shipped")
    for item, count in (("coffee", 2), ("tea", 3)):
        reply = tpcall("ORDER", {"item": item, "count": count})
        print(f"ordered {count} {item} for {reply.data['cents']} cents")
    for _ in range(2):
        one = shipped.get(timeout=60)
        print(f"shipped {one['count']} {one['item']}")
    tpunsubscribe(sd)
    tpend()


if __name__ == "__main__":
    main()
