"""The addresses of a client: in which order they are tried (F-J9)."""

import random
from collections.abc import Sequence
from itertools import count

from hms.client.core.arguments import check_word

ORDERS = ("priority", "round_robin", "random")
_turns = count()


def arranged(addresses: Sequence[str], order: str) -> tuple[str, ...]:
    """priority: as they stand; round_robin: each connection of this process begins with the next
    one; random: in any order."""
    check_word("address_order", order, ORDERS)
    found = list(addresses)
    if order == "random":
        random.shuffle(found)
    elif order == "round_robin" and found:
        start = next(_turns) % len(found)
        found = found[start:] + found[:start]
    return tuple(found)
