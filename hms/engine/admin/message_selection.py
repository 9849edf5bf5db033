"""Which messages of a place an operator means, looked for a chunk at a time (F-M3).

A chunk goes through the messages as they arrived, from where the last one ended, and looks at a
bounded number of them, so that a queue of any length costs others no more than that. What arrives
after the first chunk is not touched: `end` is the place in the order of arrival at that moment.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.in_flight_view import in_flight
from hms.engine.queue.pending_list import PendingList
from hms.engine.selector import Selector
from hms.engine.selector.selector_fields import checked_selector, selector_view
from hms.engine.state import State
from hms.engine.topic import NO_LIMITS, Pattern, Scheme
from hms.engine.xa.branch import BranchState
from hms.errors.catalogue import InvalidArgument, SubscriptionNotFound, TransactionTooLarge
from hms.errors.tree import HmsError
from hms.wire.operations import MESSAGES_AT_ONCE, SelectMessages
from hms.wire.packed_messages import NODE_TOPIC

__all__ = [
    "IN_FLIGHT",
    "PREPARED",
    "Chunk",
    "Found",
    "find",
    "id_of",
    "is_chosen",
    "place_of",
    "state_of",
    "subscription_name",
]

NEWEST = (1 << 63) - 1
NO_ID = "is no message id: 12 hexadecimal digits, as hms message list and hms dlq list show them"
_ID = re.compile("[0-9A-Fa-f]{12}")
IDS_MAX = 1000
CHUNK_BYTES = 1 << 20
"""Heads and bodies that a chunk records again."""
LOOKED_AT_ONCE = 5000
"""Messages, where looking at one costs least: 5 ms."""
_STEP = LOOK_STEPS // LOOKED_AT_ONCE
ATOMIC_LOOKS = 10
"""What is done as one may look at so many times as many, and be so many:"""
ATOMIC_MAX = 20_000
RECORD_BYTES = 128
"""What a message costs in a record beside its head and body, at most."""
WAITING, DELAYED, IN_FLIGHT = "waiting", "delayed", "in_flight"
PREPARED = "prepared"
"""Of what is in flight: what a branch has received that is prepared, and not decided."""
INCOMPLETE = "incomplete"
"""Of what waits: what is part of a list that is not whole."""
Test = Callable[[StoredMessage], bool]
_STATES = ("", WAITING, DELAYED, IN_FLIGHT, PREPARED, INCOMPLETE)


@dataclass(frozen=True, slots=True)
class Found:
    """A place, and what an operator said of it. pattern: of the topics, where it is what is
    retained."""

    place: Queue | Subscription | None
    kind: str
    pattern: Pattern | None = None


def place_of(state: State, text: str) -> Found:
    """The place that queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN means;
    InvalidArgument, DestinationNotFound, SubscriptionNotFound."""
    kind, colon, name = text.partition(":")
    if colon and name and kind == "queue":
        return Found(state.queue(name), kind)
    if colon and name and kind == "subscription":
        return Found(_subscription(state, name), kind)
    if colon and name and kind == "retained":
        return Found(state.space.place, kind, Pattern(name, Scheme.TOPIC, NO_LIMITS))
    detail = f"{text!r} is neither queue:NAME, nor subscription:NAME[@TOPIC], nor retained:PATTERN"
    if text == "dlq":
        detail += "; hms dlq has the letters of every queue"
    raise InvalidArgument(what="place", detail=detail)


def subscription_name(state: State, text: str) -> str:
    """Of NAME[@TOPIC], as place_of finds it."""
    found = _alike(state, text)
    return found[0].name if found else text.rpartition("@")[0] or text


def _alike(state: State, text: str) -> Sequence[Subscription]:
    """Those of one name that NAME[@TOPIC] means. Both may have an @ of their own, so the longest
    name that exists is taken."""
    found, at = state.space.durables(text), len(text)
    while not found and (at := text.rfind("@", 0, at)) > 0:
        topic = text[at + 1 :]
        alike = state.space.durables(text[:at])
        found = [s for s in alike if topic in (s.said_topic, s.pattern.text)]
    return found


def _subscription(state: State, text: str) -> Subscription:
    found = _alike(state, text)
    if not found:
        name, _, topic = text.rpartition("@")
        raise SubscriptionNotFound(name=name or text, destination=topic if name else "any topic")
    if len(found) > 1:
        topics = ", ".join(s.said_topic for s in found)
        detail = f"{len(found)} subscriptions are called {text}: say {text}@TOPIC, one of {topics}"
        raise InvalidArgument(what="place", detail=detail)
    return found[0]


def id_of(text: str) -> int:
    """A message id as people write it; InvalidArgument."""
    if _ID.fullmatch(text) is None:
        raise InvalidArgument(what="id", detail=f"{text!r} {NO_ID}")
    return int(text, 16)


@dataclass(slots=True)
class Chunk:
    """What was found. out: in flight and not touched; prepared: ids of those of it that prepared
    branches have; position: where the next chunk begins;
    has_more: whether there may be more."""

    messages: list[StoredMessage] = field(default_factory=list)
    out: dict[int, StoredMessage] = field(default_factory=dict)
    prepared: frozenset[int] = frozenset()
    skipped_out: int = 0
    position: int = 0
    end: int = 0
    has_more: bool = False


def find(
    state: State,
    found: Found,
    asked: SelectMessages,
    *,
    shows_out: bool = False,
    sizes: bool = True,
) -> Chunk:
    """The next chunk of what is meant. shows_out: what is in flight is part of it; sizes: their
    bytes count too."""
    matches, price = _test(state, found, asked)
    chunk = Chunk(position=asked.after, end=asked.end or state.next_seq)
    place = found.place
    if place is None:
        return chunk
    is_first = not asked.after
    out: dict[int, StoredMessage] = {}
    if place.line.out_count and (shows_out or is_first):
        out = in_flight(state, place)
    if shows_out:
        chunk.out, chunk.prepared = out, _prepared(state, place)
    elif is_first and not asked.state:
        chunk.skipped_out = _count(out, matches, price)
    count_max, steps, room = _bounds(state, asked)
    only = {IN_FLIGHT: out.keys(), PREPARED: chunk.prepared}.get(asked.state)
    for message in _walk(place, asked, chunk, out if shows_out else {}):
        if steps <= 0 or len(chunk.messages) == count_max or room <= 0:
            if asked.is_atomic and not (asked.limit and len(chunk.messages) == count_max):
                raise _too_much(state, chunk, steps)
            chunk.has_more = not asked.is_atomic
            break
        steps -= price(message)
        chunk.position = message.seq
        if only is not None and message.id not in only:
            continue
        if matches(message):
            chunk.messages.append(message)
            room -= message.length + (RECORD_BYTES if asked.is_atomic else 0) if sizes else 0
    return chunk


def _prepared(state: State, place: Queue | Subscription) -> frozenset[int]:
    """The ids of what prepared branches have received there."""
    if not place.line.out_count:
        return frozenset()
    return frozenset(
        message.id
        for branch in state.branches.in_doubt()
        if branch.state is BranchState.PREPARED
        for where, message in branch.work.acknowledged
        if where is place
    )


def _bounds(state: State, asked: SelectMessages) -> tuple[int, int, int]:
    """How many messages a chunk has at most, what looking for them may cost, and their bytes."""
    whole = state.settings.transaction_bytes_max
    if asked.is_atomic:
        return asked.limit or ATOMIC_MAX, ATOMIC_LOOKS * LOOK_STEPS, whole
    count_max = min(asked.limit or MESSAGES_AT_ONCE, MESSAGES_AT_ONCE)
    return count_max, LOOK_STEPS, min(CHUNK_BYTES, whole // 2)


def _too_much(state: State, chunk: Chunk, steps: int) -> HmsError:
    """Why all of it is not done at once."""
    limit = state.settings.transaction_bytes_max
    if steps <= 0 or len(chunk.messages) >= ATOMIC_MAX:
        most = ATOMIC_LOOKS * LOOKED_AT_ONCE
        detail = f"more than {min(most, ATOMIC_MAX)} messages; choose fewer, or do it in chunks"
        return InvalidArgument(what="is_atomic", detail=detail)
    size = sum(message.length for message in chunk.messages)
    return TransactionTooLarge(size=size, limit=limit)


def _walk(
    place: Queue | Subscription, asked: SelectMessages, chunk: Chunk, out: dict[int, StoredMessage]
) -> Iterator[StoredMessage]:
    after = asked.after or (NEWEST if asked.is_newest else 0)
    line = place.line
    others = out.values() if asked.state in ("", IN_FLIGHT, PREPARED) else ()
    for message in line.arrivals(after, others, is_newest_first=asked.is_newest):
        if message.seq < chunk.end:
            yield message
        elif not asked.is_newest:
            return


def _count(
    out: dict[int, StoredMessage],
    matches: Callable[[StoredMessage], bool],
    price: Callable[[StoredMessage], int],
) -> int:
    steps, count = LOOK_STEPS, 0
    for message in out.values():
        steps -= price(message)
        if steps <= 0:
            break
        count += matches(message)
    return count


def _test(
    state: State, found: Found, asked: SelectMessages
) -> tuple[Callable[[StoredMessage], bool], Callable[[StoredMessage], int]]:
    """Whether a message is meant, and what it costs to ask."""
    _check(asked)
    selector = checked_selector(asked.selector)
    tests = [*_plain_tests(state, asked)]
    if found.place is not None:
        tests += _line_tests(found.place.line, asked)
    if asked.type:
        tests.append(lambda message: message.head().type == asked.type)
    if found.pattern is not None:
        tests.append(partial(_is_on, found.pattern))
    if selector is not None:
        tests.append(partial(_fits, selector))
    looks = 5 * _STEP if asked.type or found.pattern is not None else _STEP

    def matches(message: StoredMessage) -> bool:
        return all(test(message) for test in tests)

    def price(message: StoredMessage) -> int:
        return looks if selector is None else looks + selector.price.of(1, message.head_bytes)

    return matches, price


def _plain_tests(state: State, asked: SelectMessages) -> Iterator[Test]:
    ids = frozenset(map(id_of, asked.ids.split()))
    if ids:
        yield lambda message: message.id in ids
    until_ms = asked.until_ms or NEWEST
    if asked.older_than_ms:
        until_ms = min(until_ms, state.now_ms - asked.older_than_ms)
    if asked.from_ms or until_ms != NEWEST:
        yield lambda message: asked.from_ms <= message.timestamp_ms < until_ms


def _line_tests(line: PendingList, asked: SelectMessages) -> Iterator[Test]:
    if asked.min_count:
        yield lambda message: line.deliveries(message) >= asked.min_count
    if asked.state in (WAITING, DELAYED):
        is_delayed = asked.state == DELAYED
        yield lambda message: (line.delayed.find(message.id) is not None) is is_delayed
    if asked.state == INCOMPLETE:
        groups = line.groups
        yield (lambda _: False) if groups is None else groups.is_incomplete


def _is_on(pattern: Pattern, message: StoredMessage) -> bool:
    topic = message.head().node.get(NODE_TOPIC)
    return isinstance(topic, str) and pattern.matches(topic)


def _fits(selector: Selector, message: StoredMessage) -> bool:
    return selector.matches(selector_view(message, selector.names)) is True


def _check(asked: SelectMessages) -> None:
    if asked.state not in _STATES:
        detail = f"{asked.state!r} is none of {', '.join(filter(None, _STATES))}"
        raise InvalidArgument(what="state", detail=detail)
    if len(asked.ids.split()) > IDS_MAX:
        raise InvalidArgument(what="ids", detail=f"more than {IDS_MAX} at once")


def state_of(place: Queue | Subscription, chunk: Chunk, message: StoredMessage) -> str:
    """Whether it waits, for its time or for the rest of its list, or is in flight, prepared too."""
    if message.id in chunk.out:
        return PREPARED if message.id in chunk.prepared else IN_FLIGHT
    if place.line.delayed.find(message.id) is not None:
        return DELAYED
    groups = place.line.groups
    return INCOMPLETE if groups is not None and groups.is_incomplete(message) else WAITING


def is_chosen(asked: SelectMessages) -> bool:
    """Whether something was chosen: a command that changes never means all by default."""
    given = (asked.ids.split(), asked.selector.strip(), asked.type, asked.state, asked.limit)
    times = (asked.from_ms, asked.until_ms, asked.older_than_ms, asked.min_count)
    return asked.is_all or any(given) or any(times)
