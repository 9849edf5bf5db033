"""Imported messages take the ids that they had (F-M3).

An import sends them with new ids, delayed, so that an interrupted one is known to have come so far;
here each takes the id and the time of sending that its head says. An id is taken once at a place: a
message that waits there with it goes, one that is in flight stays, and so does the imported one. An
id of this node that it has not given yet is not taken: it will be given to another message.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from hms.engine.messages import StoredMessage
from hms.engine.queue.dead_letters import may_have
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.state import State
from hms.wire.packed_messages import (
    NODE_DELIVERY_TIME,
    NODE_IMPORTED_DUE,
    NODE_IMPORTED_ID,
    NODE_IMPORTED_TIME,
    Head,
)

__all__ = ["due_of", "former", "sorted_out", "without_former"]

ID_DIGITS = 12
NOT_IMPORTED, NOT_GIVEN, IN_FLIGHT = "not_imported", "id_not_given", "id_in_flight"
_OF_AN_IMPORT = (NODE_IMPORTED_ID, NODE_IMPORTED_TIME, NODE_IMPORTED_DUE, NODE_DELIVERY_TIME)
_NONE = "0" * ID_DIGITS


def former(head: Head) -> tuple[int, int]:
    """The id and the time that a message says it had; (0, 0) for one that says none, or that keeps
    those which it has."""
    text, at_ms = head.node.get(NODE_IMPORTED_ID), head.node.get(NODE_IMPORTED_TIME)
    if not isinstance(text, str) or not isinstance(at_ms, int):
        return 0, 0
    try:
        return int(text[:ID_DIGITS], 16), max(at_ms, 0)
    except ValueError:
        return 0, 0


def due_of(head: Head) -> int:
    """When an imported message is due, in milliseconds since 1970; 0 at once."""
    due_ms = head.node.get(NODE_IMPORTED_DUE, 0)
    return max(due_ms, 0) if isinstance(due_ms, int) else 0


def without_former(head: Head) -> Head:
    """As it was when it was exported."""
    node = {name: value for name, value in head.node.items() if name not in _OF_AN_IMPORT}
    due_ms = due_of(head)
    return msgspec.structs.replace(
        head, node=node | ({NODE_DELIVERY_TIME: due_ms} if due_ms else {})
    )


def sorted_out(
    state: State, place: Queue | Subscription, messages: Sequence[StoredMessage], left: Counter[str]
) -> tuple[list[StoredMessage], list[StoredMessage]]:
    """Those that can take their ids at a place, and those there that go for it; left: why others
    cannot."""
    going: dict[int, StoredMessage] = {}
    replaced: list[StoredMessage] = []
    line = place.line
    for message in messages:
        head = message.head()
        if str(head.node.get(NODE_IMPORTED_ID, "")).startswith(_NONE):
            going[message.id] = message
            continue
        id_, _ = former(head)
        if not id_ or id_ in going:
            left[NOT_IMPORTED] += 1
            continue
        if not state.ids.was_given(id_):
            left[NOT_GIVEN] += 1
            continue
        there = line.open_index().get(id_) or line.delayed.find(id_)
        if there is None and may_have(place, id_):
            left[IN_FLIGHT] += 1
            continue
        if there is not None:
            replaced.append(there)
        going[id_] = message
    return list(going.values()), replaced
