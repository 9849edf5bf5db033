"""Settlement: what becomes of messages that are out.

acknowledged   done with
FAILED         the application saw it and gave it back: counts as an attempt; past the limit it
               becomes a dead letter (F-C8, F-C9)
RELEASED       the application never saw it: as if it had not been delivered
REJECTED       the application will never take it: a dead letter at once
LOST           nobody knows, the consumer is gone: redelivered is set, no attempt is counted
"""

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hms.engine.effects import Effects
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.messages import StoredMessage, length_of
from hms.engine.queue.dead_letters import (
    DeadReason,
    Death,
    keep,
    must_wait,
    rejected,
    target_of,
)
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import acknowledge, dispatch, write_ranges
from hms.engine.queue.queue_send import ACKNOWLEDGED_BYTES
from hms.engine.session.session_objects import Consumer
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import State
from hms.errors.catalogue import TransactionTooLarge
from hms.records import Cause, RecordType
from hms.wire.frames import as_ranges

LIMIT_PROPERTY = "JMS_HMS_RedeliveryLimit"
"""A message's own redelivery limit, as a property that its sender sets."""
RELEASED_EARLY_MS = 1000
SLICE = 1024
"""Messages that are settled or come back at once: 5 ms."""
WIDE = 2
"""Ranges that hold so many times the ids that are out are looked up, not walked through."""


class Return(enum.Enum):
    """How messages come back."""

    FAILED = enum.auto()
    REJECTED = enum.auto()
    RELEASED = enum.auto()
    LOST = enum.auto()


class Said(NamedTuple):
    """What a consumer says of messages that it gives back. code: a reason of dead letters."""

    code: str = ""
    text: str = ""


NOTHING = Said()


class _Back(NamedTuple):
    """How messages come back. doomed: those that become dead letters with others of their list."""

    how: Return
    delay_ms: int
    said: Said
    doomed: Mapping[int, Death]


def take_out(consumer: Consumer, spans: Iterable[tuple[int, int]]) -> list[StoredMessage]:
    """Those of the ids that are out to the consumer; others were settled before."""
    out = consumer.out
    spans = list(spans)
    if len(spans) == 1 and spans[0][0] == spans[0][1]:  # a message alone
        one = out.pop(spans[0][0], None)
        found = [] if one is None else [one]
    else:
        if sum([last - first + 1 for first, last in spans]) > WIDE * (len(out) + 1):
            spans = [(i, i) for i in _ids_within(out, spans)]
        found = [out.pop(i) for first, last in spans for i in range(first, last + 1) if i in out]
    groups = consumer.place.line.groups
    if groups is not None and groups.gathering is not None:
        found = _whole_lists(groups, out, found)
    size_bytes = sum(map(length_of, found))
    consumer.out_bytes -= size_bytes
    if (limit := consumer.session.connection.in_flight) is not None:
        limit.size_bytes -= size_bytes
    return found


class Runs(list[tuple[int, int]]):
    """Ranges of ids that were out, each id once: so they can be settled in slices, and what goes
    out again in between is not settled twice."""


def slice_of(
    consumer: Consumer, spans: Sequence[tuple[int, int]]
) -> tuple[Sequence[tuple[int, int]], Runs | None]:
    """What is to be settled of the ranges under one hold of the lock, and what is left of them."""
    out = consumer.out
    if len(out) <= SLICE:
        return spans, None
    if not isinstance(spans, Runs):
        width = sum([last - first + 1 for first, last in spans])
        if width <= SLICE:
            return spans, None
        if width <= WIDE * len(out):
            ids = [i for first, last in spans for i in range(first, last + 1) if i in out]
            spans = Runs(as_ranges(dict.fromkeys(ids)))
        else:
            spans = Runs(as_ranges(_ids_within(out, list(spans))))
    count = 0
    for at, (first, last) in enumerate(spans):
        count += last - first + 1
        if count > SLICE:
            end = last - (count - SLICE)
            return [*spans[:at], (first, end)], Runs([(end + 1, last), *spans[at + 1 :]])
    return spans, None


def _ids_within(out: Iterable[int], spans: list[tuple[int, int]]) -> list[int]:
    """The ids that the spans hold, in their order. The work grows with ids and spans, not with
    their product nor with what lies between."""
    ids, found, end = sorted(out), list[int](), -1
    for first, last in sorted(spans):
        if last > end:
            start = bisect_left(ids, max(first, end + 1))
            found += ids[start : bisect_right(ids, last)]
            end = last
    if len(found) == len(ids):
        return list(out)
    wanted = set(found)
    return [i for i in out if i in wanted]


def note_seen(consumer: Consumer, spans: Iterable[tuple[int, int]]) -> None:
    """The application has those of the ids that are out to the consumer; of a list, all of it."""
    out, known = consumer.out, [(one, one) for one in consumer.seen]
    ids = _ids_within(out, [*known, *spans])
    groups = consumer.place.line.groups
    if groups is not None and groups.gathering is not None:
        ids = [i for one in ids for i in (groups.whole(out[one]) or (one,)) if i in out]
    consumer.seen = dict.fromkeys(ids)


def take_from_work(consumer: Consumer, spans: Iterable[tuple[int, int]]) -> list[StoredMessage]:
    """Those of the ids that the open transaction of the consumer's session holds; it holds them no
    more."""
    work, place, spans = consumer.session.work, consumer.place, list(spans)

    def is_meant(held: tuple[Queue | Subscription, StoredMessage]) -> bool:
        return held[0] is place and any(first <= held[1].id <= last for first, last in spans)

    found = [message for where, message in work.acknowledged if is_meant((where, message))]
    if found:
        work.acknowledged = [held for held in work.acknowledged if not is_meant(held)]
        work.size_bytes -= ACKNOWLEDGED_BYTES * len(found)
    return found


def _whole_lists(
    groups: MessageGroups, out: dict[int, StoredMessage], found: list[StoredMessage]
) -> list[StoredMessage]:
    """With each message the others of its list: it is settled as one (F-C17)."""
    by_id = {m.id: m for m in found}
    wanted = dict.fromkeys(i for m in found for i in (groups.whole(m) or (m.id,)))
    by_id |= {i: out.pop(i) for i in wanted if i in out}
    return [by_id[i] for i in wanted if i in by_id]


def acknowledge_out(
    state: State, consumer: Consumer, spans: Sequence[tuple[int, int]], fx: Effects
) -> int:
    """Acknowledge ranges of ids; in a transacted session as part of the transaction."""
    session = consumer.session
    if session.is_transacted:
        work = session.work
        if work.is_over:  # its branch was rolled back: what it still takes comes back
            messages = take_out(consumer, spans)
            give_back(state, consumer.place, messages, Return.FAILED, fx)
            dispatch(state, consumer.place, fx)
            return len(messages)
        size = work.size_bytes + ACKNOWLEDGED_BYTES * len(consumer.out)
        limit = state.settings.transaction_bytes_max
        if size > limit:
            raise TransactionTooLarge(size=size, limit=limit)
        messages = take_out(consumer, spans)
        work.acknowledged += [(consumer.place, m) for m in messages]
        if consumer.redelivery_delay_ms:
            delay_ms, at = consumer.redelivery_delay_ms, id(consumer.place)
            work.delays_ms.update({(at, m.id): delay_ms for m in messages})
        work.size_bytes += ACKNOWLEDGED_BYTES * len(messages)
        work.worked_at_ms = state.now_ms
        return len(messages)
    messages = take_out(consumer, spans)
    if messages:
        acknowledge(state, consumer.place, messages, fx)
    return len(messages)


def give_back_all(
    state: State, consumer: Consumer, how: Return, fx: Effects, seen: Return = Return.LOST
) -> None:
    """Everything that is out to a consumer comes back; the caller dispatches. seen: how that comes
    back of which it was told just before that the application has it."""
    ids, consumer.seen = consumer.seen, {}
    known = take_out(consumer, [(one, one) for one in ids])
    delay_ms = consumer.redelivery_delay_ms or consumer.place.redelivery_delay_ms
    give_back(state, consumer.place, known, seen, fx, delay_ms)
    messages = list(consumer.out.values())
    consumer.out.clear()
    if (limit := consumer.session.connection.in_flight) is not None:
        limit.size_bytes -= consumer.out_bytes
    consumer.out_bytes = 0
    give_back(state, consumer.place, messages, how, fx)


def early_ms(state: State, place: Queue | Subscription, messages: Sequence[StoredMessage]) -> int:
    """How long messages wait that a client took for expired: its clock may be ahead of the node's,
    and they would go to and fro until they are."""
    groups = place.line.groups
    if groups is not None and any(map(groups.knows, messages)):
        return 0  # others would have to wait for them
    is_early = any(message.expires_at_ms > state.now_ms for message in messages)
    return RELEASED_EARLY_MS if is_early else 0


def give_back(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    how: Return,
    fx: Effects,
    delay_ms: int = 0,
    said: Said = NOTHING,
) -> None:
    """Messages that were out wait again, or are dead; the caller dispatches. delay_ms: before they
    are tried again (F-C9); not for those that nobody tried, as their client is lost. said: why, in
    its consumer's words."""
    if place.is_removed if isinstance(place, Subscription) else place.control.is_gone:
        _drop(state, place, messages)
        return
    if not messages:
        return
    doomed = _doomed_lists(state, place, messages, how, said, fx)
    back = _Back(how, delay_ms, said, doomed)
    again = [m for m in messages if _put_back(state, place, m, back, fx)]
    if how is not Return.LOST:
        kind = RecordType.RELEASED if how is Return.RELEASED else RecordType.FAILED
        due_ms = state.now_ms + delay_ms if delay_ms else 0
        write_ranges(state, place, kind, again, fx, due_ms=due_ms)
    if isinstance(place, Queue):
        place.offer_again(again)


def _put_back(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    back: "_Back",
    fx: Effects,
) -> bool:
    """One message comes back; False when it has become a dead letter."""
    how, delay_ms = back.how, back.delay_ms
    deliveries, attempts = place.line.history.get(message.id, (0, 0))
    if how is not Return.RELEASED:
        deliveries += 1
    elif deliveries:  # nobody saw it a second time; it is counted when somebody does
        place.line.count("redelivered", -min(1, place.line.counters.redelivered))
    if how in (Return.FAILED, Return.REJECTED):
        attempts += 1
        death = back.doomed.get(message.id) or _death(place, message, attempts, how, back.said)
        if death is not None:
            _to_dead_letters(state, place, message, (deliveries, attempts), death, fx)
            return False
    if delay_ms and how is not Return.LOST:
        due_ms = state.now_ms + delay_ms
        place.line.put_back_later(message, deliveries, attempts, due_ms)
        state.wake_at(due_ms, place)
        return True
    place.line.put_back(message, deliveries, attempts)
    return True


def _doomed_lists(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    how: Return,
    said: Said,
    fx: Effects,
) -> dict[int, Death]:
    """The messages of lists of which one is not tried again: they are whole, or dead letters. That
    they failed is recorded at once, so that a crash in between leaves none of them behind."""
    groups = place.line.groups
    if groups is None or groups.gathering is None or how not in (Return.FAILED, Return.REJECTED):
        return {}
    doomed: dict[int, Death] = {}
    for message in messages:
        death = _death(place, message, place.line.attempts(message) + 1, how, said)
        if death is not None:
            doomed |= dict.fromkeys(groups.whole(message), death)
    write_ranges(state, place, RecordType.FAILED, [m for m in messages if m.id in doomed], fx)
    return doomed


def _death(
    place: Queue | Subscription, message: StoredMessage, attempts: int, how: Return, said: Said
) -> Death | None:
    """Why the message is not tried again; the dead letter queue itself keeps what is rejected."""
    is_last = isinstance(place, Queue) and place.name == DEAD_LETTER_QUEUE
    if how is Return.REJECTED and not is_last:
        return rejected(*said)
    is_over = 0 <= _limit(place, message) <= attempts
    return Death(DeadReason.REDELIVERY_LIMIT, said.text) if is_over else None


def _limit(place: Queue | Subscription, message: StoredMessage) -> int:
    """The message's own limit if it has one, else the destination's; -1 for none."""
    own = message.head().properties.get(LIMIT_PROPERTY)
    is_last = isinstance(place, Queue) and place.name == DEAD_LETTER_QUEUE
    if isinstance(own, int) and not isinstance(own, bool) and not is_last:
        return own
    return place.redelivery_limit


def _drop(state: State, place: Queue | Subscription, messages: list[StoredMessage]) -> None:
    """Its subscription or temporary queue has ended meanwhile: nobody waits for them any more."""
    for message in messages:
        place.line.settle(message)
        state.waiting_bytes -= message.size_bytes


def _to_dead_letters(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    counts: tuple[int, int],
    death: Death,
    fx: Effects,
) -> None:
    """A message that was out failed once too often, or for good; counts: how often it was delivered
    and failed."""
    is_late = must_wait(state, place, message)
    if is_late:  # until then the log knows at least how often it failed
        write_ranges(state, place, RecordType.FAILED, [message], fx)
    place.line.settle(message)
    if is_late:
        place.line.history[message.id] = counts
    _bury(state, place, message, counts[1], death, fx)


def bury_overdue(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Messages that had failed too often when the node went down, and wait again since."""
    line = place.line
    if not any(attempts for _, attempts in line.history.values()):
        return
    for message in line.everything():
        attempts = line.attempts(message)
        death = _death(place, message, attempts, Return.FAILED, NOTHING) if attempts else None
        if death is not None:
            line.remove(message)
            _bury(state, place, message, attempts, death, fx)


def bury_incomplete(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Lists that waited too long for what is missing, or can never be whole (F-C17)."""
    groups = place.line.groups
    if groups is None or groups.gathering is None:
        return
    for waiting in groups.gathering.overdue(state.now_ms):
        groups.gathering.incomplete_count += 1
        dead = [(message, place.line.attempts(message)) for message in waiting]
        for message in waiting:
            place.line.remove(message)
        for message, attempts in dead:
            _bury(state, place, message, attempts, Death(DeadReason.GROUP_INCOMPLETE), fx)


def _bury(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    attempts: int,
    death: Death,
    fx: Effects,
) -> None:
    target = target_of(state, place, death.reason)
    place.line.count_letters(death.reason, 1)
    state.waiting_bytes -= message.size_bytes
    if target is None:
        place.line.history.pop(message.id, None)
        write_ranges(state, place, RecordType.DISCARDED, [message], fx, Cause.DEAD_LETTERED)
        return
    keep(state, place, target, [(message, attempts)], death, fx)
    dispatch(state, target, fx)
