"""The addresses of a client: in which order they are tried (F-J9)."""

import random
from collections.abc import Sequence
from itertools import count

from field_buffer.catalogue import InvalidArgument

ORDERS = ("priority", "round_robin", "random")
_turns = count()


def arranged(addresses: Sequence[str], order: str) -> tuple[str, ...]:
    """priority: as they stand; round_robin: each connection of this process begins with the next
    one; random: in any order."""
    if order not in ORDERS:
        detail = f"{order!r} is none of {', '.join(ORDERS)}"
        raise InvalidArgument(what="address_order", detail=detail)
    found = list(addresses)
    if order == "random":
        random.shuffle(found)
    elif order == "round_robin" and found:
        start = next(_turns) % len(found)
        found = found[start:] + found[:start]
    return tuple(found)
