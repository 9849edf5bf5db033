"""Demand: what other nodes asked for goes to them as soon as it is there.

An ask stands until it is filled, replaced or too old, so what arrives later need not wait for the
next word. Consumers here go first, then a buffer for them is kept; only what is beyond that goes.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from hms.engine.cluster.cluster_messages import MESSAGES_PER_OFFER_MAX
from hms.engine.cluster.cluster_settings import GlobalQueue
from hms.engine.cluster.peer_state import Peer, Wanted
from hms.engine.cluster.planning import Figures, surplus_of
from hms.engine.cluster.source import CHUNK_BYTES, offer, room_for
from hms.engine.effects import Effects
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue
from hms.engine.queue.dispatch import discard
from hms.engine.selector.selector_fields import selector_view
from hms.engine.state import State
from hms.records import Cause
from hms.wire.packed_messages import KIND_FILE

BYTES_MAX = 1 << 30


def figures_of(queue: Queue, rate: int = 0, *, is_taking: bool = True) -> Figures:
    """A queue of this node as others see it."""
    line = queue.line
    return Figures(line.waiting_count, len(queue.consumers), rate, line.size_bytes, is_taking)


def serve(
    state: State,
    settings: GlobalQueue,
    queue: Queue,
    peers: Iterable[Peer],
    fx: Effects,
    *,
    is_scan: bool = False,
) -> None:
    """Give what was asked for. is_scan: also look for messages that selectors choose."""
    for peer in peers:
        wanted = peer.wanted.get(queue.name)
        if wanted is None or (wanted.selectors and not is_scan):
            continue
        count = min(
            wanted.count - wanted.given if wanted.until_ms > state.now_ms else 0,
            surplus_of(settings, figures_of(queue)),
            settings.request_max,
        )
        if count > 0 and room_for(state, peer.index) > 0:
            give(state, peer, queue, _choose(state, queue, wanted, count, fx), fx)


def give(
    state: State, peer: Peer, queue: Queue, messages: list[StoredMessage], fx: Effects
) -> None:
    """Messages that were taken from the line go to a node."""
    for number, count in offer(state, peer.index, queue, messages, fx):
        peer.gives(queue.name, number, count)


def take(state: State, queue: Queue, count: int, fx: Effects) -> list[StoredMessage]:
    """Up to so many messages leave the front of the line."""
    if queue.has_groups() or queue.line.has_files:
        return _take_these(queue, islice(_movable(queue), count))
    taken: list[StoredMessage] = []
    expired: list[StoredMessage] = []
    while len(taken) < count and queue.line.waiting_count:
        some = queue.line.take(count - len(taken), BYTES_MAX, state.now_ms, expired)
        taken += some
    discard(state, queue, expired, Cause.EXPIRED, fx)
    return taken


def take_chunk(state: State, queue: Queue, fx: Effects) -> list[StoredMessage]:
    """What one offer carries leaves the front of the line."""
    if queue.has_groups():
        return _take_these(queue, _first_chunk(queue.line.in_order()))
    taken: list[StoredMessage] = []
    expired: list[StoredMessage] = []
    room = CHUNK_BYTES // 2
    while len(taken) < MESSAGES_PER_OFFER_MAX and room > 0 and queue.line.waiting_count:
        count = MESSAGES_PER_OFFER_MAX - len(taken)
        some = queue.line.take(count, room, state.now_ms, expired)
        room -= sum(m.length for m in some)
        taken += some
    discard(state, queue, expired, Cause.EXPIRED, fx)
    return taken


def _first_chunk(messages: Iterator[StoredMessage]) -> Iterator[StoredMessage]:
    room = CHUNK_BYTES // 2
    for message in islice(messages, MESSAGES_PER_OFFER_MAX):
        yield message
        room -= message.length
        if room <= 0:
            return


def take_last(state: State, queue: Queue, count: int, fixed: set[int]) -> list[StoredMessage]:
    """Up to so many leave the end of the line, none of them one of the fixed."""
    found = (m for m in reversed(list(_movable(queue))) if m.id not in fixed)
    alive = (m for m in found if not 0 < m.expires_at_ms <= state.now_ms)
    return _take_these(queue, reversed(list(islice(alive, count))))


def _movable(queue: Queue) -> Iterator[StoredMessage]:
    """What may go to another node. A message of a group or a global order may not: its fellows
    are here, and two nodes would hand them out side by side. Nor may a file: it lies here."""
    groups = queue.line.groups
    for message in queue.line.in_order():
        if message.kind != KIND_FILE and (groups is None or not groups.knows(message)):
            yield message


def _take_these(queue: Queue, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    taken = list(messages)
    for message in taken:
        queue.line.take_one(message)
    return taken


def _choose(
    state: State, queue: Queue, wanted: Wanted, count: int, fx: Effects
) -> list[StoredMessage]:
    if not wanted.selectors:
        return take(state, queue, count, fx)
    return _take_these(queue, _fitting(queue, wanted, count))


def _fitting(queue: Queue, wanted: Wanted, count: int) -> list[StoredMessage]:
    """Those that the selectors choose, in slices: the next ask goes on behind what was looked at,
    and begins anew when nothing follows."""
    found: list[StoredMessage] = []
    price, steps, looked = wanted.price, LOOK_STEPS, wanted.looked
    for message in islice(_movable(queue), wanted.looked, None):
        if steps <= 0 or len(found) == count:
            wanted.looked = looked
            return found
        steps -= price.of(1, message.head_bytes)
        if _fits(message, wanted):
            found.append(message)
        else:
            looked += 1
    wanted.looked = 0
    return found


def _fits(message: StoredMessage, wanted: Wanted) -> bool:
    return any(one.matches(selector_view(message, one.names)) is True for one in wanted.selectors)
