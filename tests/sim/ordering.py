"""Groups and global orders in the simulation: who sends them, and what must be true of them."""

import random
from collections.abc import Iterator, Sequence

from hms.client.message_lists import Delivered
from hms.engine.groups.group_marks import Mark, mark_of
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.wire.packed_messages import PROPERTY_GLOBAL_ORDER, decode_head

NAMES = ("g1", "g2")
PARTS = 3
"""How many messages a list has."""


def draw_marks(rng: random.Random) -> dict[str, str | int]:
    """The properties of a message that may belong to a group or to an order."""
    roll, name = rng.random(), rng.choice(NAMES)
    if roll < 0.12:
        return {PROPERTY_GLOBAL_ORDER: name}
    if roll < 0.3:
        return {"JMSXGroupID": name} | ({"JMSXGroupSeq": -1} if roll < 0.16 else {})
    return {}


def part(name: str, number: int) -> dict[str, str | int]:
    """What makes a message one of a list."""
    return {"GROUP_NAME": name, "GROUP_NUMBERING": number, "GROUP_END": number == PARTS}


def torn_list(place: str, parts: Sequence[Delivered]) -> list[str]:
    """What is wrong with a list that came."""
    own = [decode_head(head).properties for _, head, _ in parts]
    names = {each["GROUP_NAME"] for each in own}
    numbers = [each["GROUP_NUMBERING"] for each in own]
    if len(names) == 1 and numbers == list(range(1, PARTS + 1)):
        return []
    return [f"torn: a list with {numbers} of {sorted(names)} came at {place}"]


def overlaps(
    place: Queue | Subscription, in_transactions: Sequence[tuple[int, StoredMessage]]
) -> Iterator[str]:
    """What is wrong with what is out of a place; in_transactions: messages that are acknowledged in
    transactions that have not ended, each with a number that its transaction's work has."""
    groups = place.line.groups
    if groups is None or not place.line.out_count:
        return
    gathers = groups.gathering is not None
    holders: dict[Mark, set[int]] = {}
    counts: dict[Mark, int] = {}
    out = [(id(c.session.work), m) for c in place.holders for m in c.out.values()]
    for holder, message in (*out, *in_transactions):
        mark = mark_of(message, gathers=gathers) if message.head_bytes else None
        if mark is not None:
            key = mark._replace(number=0, is_end=False)
            holders.setdefault(key, set()).add(holder)
            counts[key] = counts.get(key, 0) + 1
    for key, sessions in holders.items():
        if key.kind == "order" and counts[key] > 1:
            yield f"{place.name}: {counts[key]} messages of order {key.name} are out"
        if key.kind == "group" and len(sessions) > 1:
            yield f"{place.name}: {len(sessions)} sessions have group {key.name}"
