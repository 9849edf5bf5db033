"""The judge: what must be true at every moment, whatever the clients see.

P1, when a frame leaves the broker: what it promises is on the synced part of the disk. And after
every step of the engine: each message is in exactly one place, and all counts are right.
"""

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from hms.engine.admin.counters import COUNTED
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import SCHEDULED, Queue, Retained, Subscription
from hms.engine.session.transactions import open_works
from hms.engine.state import State
from hms.server.doors.door import Frame
from hms.wire.branch_requests import XaCommit, XaPrepare
from hms.wire.frames import (
    DELIVER_HEAD,
    Action,
    Kind,
    decode_confirm,
    decode_deliver,
    decode_delivery,
    decode_envelope,
    decode_send,
    decode_settle,
)
from hms.wire.packed_messages import DELIVERED_ROW, FLAG_PERSISTENT, DeliveredRow, unpack_delivered
from hms.wire.structures import (
    Commit,
    InvokeHead,
    OpenSession,
    decode_reply,
    decode_request,
    decode_with_body,
)
from tests.sim.durable import Durable
from tests.sim.node import Node
from tests.sim.ordering import overlaps
from tests.sim.users import over_limit
from tests.support.spreads import all_arrived

if TYPE_CHECKING:
    from tests.sim.client import Client
    from tests.sim.world import World

POSITION_BYTES = 8


class Judge:
    """P1 for every frame that the node says."""

    def __init__(self, world: "World", durable: Durable) -> None:
        self._world, self._durable = world, durable
        self.faults: list[str] = []

    def refusal(self, node: Node, peer: Hashable, parts: Frame) -> None:
        """Note a producer that was refused something. When it does not hear of that it sends again,
        and the node may take it then: behind what it has taken meanwhile."""
        envelope = decode_envelope(parts, 1 << 30)
        kind, correlation = envelope.kind, envelope.correlation
        asked, request = node.asked.get((peer, correlation), (None, b""))
        if kind is Kind.ERROR and asked is Kind.SEND:
            uid, handle = node.uids.get(peer, 0), decode_send(request).producer
            self._world.books.refused |= {
                f"{one.name}.{handle}" for one in self._world.everybody if one.uid == uid
            }

    def frame(self, node: Node, peer: Hashable, parts: Frame) -> None:
        """A frame is about to leave."""
        envelope = decode_envelope(parts, 1 << 30)
        kind, correlation = envelope.kind, envelope.correlation
        asked, request = node.asked.get((peer, correlation), (None, b""))
        uid, facts = node.uids.get(peer, 0), self._durable.refresh()
        said: str = ""
        if kind is Kind.CONFIRM:
            said = self._confirm(uid, request, parts[1], facts)
        elif kind is Kind.DELIVER:
            said = self._deliver(uid, parts[1], facts)
        elif kind is Kind.INVOKE:
            said = self._invoke(parts[1], facts)
        elif kind is Kind.BROWSED:
            said = self._browsed(parts[1], facts)
        elif kind is Kind.REPLY and asked is Kind.REQUEST:
            said = self._reply(uid, request, parts[1], facts)
        elif kind is Kind.REPLY and asked is Kind.SETTLE:
            said = self._settled(uid, request, facts)
        if said:
            self.faults.append(f"early: {said}")

    def _confirm(self, uid: int, request: bytes, payload: bytes, facts: Durable) -> str:
        head = decode_send(request)
        if not head.is_persistent or (uid, head.producer) in self._world.transacted:
            return ""
        first, _, count = decode_confirm(payload)
        missing = [one for one in range(first, first + count) if one not in facts.sent]
        return f"CONFIRM of {missing}" if missing else ""

    def _deliver(self, uid: int, payload: bytes, facts: Durable) -> str:
        receivers, count, rows_at = decode_delivery(payload)
        rows = [row for row, _, _ in unpack_delivered(payload, count, rows_at)]
        said = (_rows(self._world.places[uid, one], rows, facts) for one, _ in receivers)
        return next(filter(None, said), "")

    @staticmethod
    def _invoke(payload: bytes, facts: Durable) -> str:
        head, _ = decode_with_body(payload, InvokeHead)
        row = DeliveredRow._make(DELIVERED_ROW.unpack(head.delivered))
        return _rows(f"queue:{head.destination}", [row], facts)

    @staticmethod
    def _browsed(payload: bytes, facts: Durable) -> str:
        _, _, count = decode_deliver(payload)
        rows = unpack_delivered(payload, count, DELIVER_HEAD.size + POSITION_BYTES)
        return _rows("passing", [row for row, _, _ in rows], facts)

    def _reply(self, uid: int, request: bytes, payload: bytes, facts: Durable) -> str:
        asked = decode_request(request)
        if isinstance(asked, XaPrepare | XaCommit):
            return _voted(asked, decode_reply(payload), facts)
        if isinstance(asked, Commit):
            key = uid, asked.session, asked.number
        elif isinstance(asked, OpenSession):
            key = uid, asked.session, decode_reply(payload)["last_commit"]
        else:
            return ""
        transaction = self._world.books.by_key.get(key)
        is_safe = transaction is None or not transaction.has_work or key in facts.commits
        return "" if is_safe else f"the reply to {asked} about commit {key}"

    def _settled(self, uid: int, request: bytes, facts: Durable) -> str:
        for item in decode_settle(request):
            place = self._world.places[uid, item.consumer]
            if item.action is not Action.ACKNOWLEDGE or place.startswith("passing:"):
                continue
            for first, last in item.ranges:
                for one in range(first, last + 1):
                    if one in facts.sent and (place, one) not in facts.left:
                        return f"the reply to the acknowledgement of {one} at {place}"
        return ""


def _voted(asked: XaPrepare | XaCommit, reply: dict[str, int], facts: Durable) -> str:
    """A vote, and the end of what was voted on, are safe before they are told."""
    if reply["code"]:
        return ""
    if isinstance(asked, XaPrepare):
        return "" if asked.xid in facts.prepared else f"the vote of {asked.xid!r}"
    is_safe = asked.xid not in facts.prepared or asked.xid in facts.ended
    return "" if is_safe else f"the commit of {asked.xid!r}"


def _rows(place: str, rows: list[DeliveredRow], facts: Durable) -> str:
    for row in rows:
        if not row.flags & FLAG_PERSISTENT:
            continue
        if row.message_id not in facts.sent:
            return f"message {row.message_id} at {place}"
        if place.startswith("passing"):
            continue
        if facts.delivered[place, row.message_id] < row.delivery_count:
            return f"delivery {row.delivery_count} of {row.message_id} at {place}"
    return ""


def disagreements(client: "Client", node: Node) -> Iterator[str]:
    """What client and node count differently while nothing is on its way between them."""
    connection = node.engine.state.connections[node.broker.registry.numbers[client.pipe.peer]]
    for participant in client.link.participants:
        for prefetched in getattr(participant, "prefetch_buffers", {}).values():
            consumer = connection.consumers.get(prefetched.number)
            if consumer is None or not prefetched.is_open or consumer.listener:
                continue
            if consumer.epoch != prefetched.stamp.epoch:
                here = prefetched.stamp.epoch
                yield f"epoch {consumer.epoch} at the node, {here} at {client.name}"
            credit = consumer.credit + len(prefetched.buffer) + prefetched.taken_count
            if credit != consumer.credit_at_open:
                yield f"credit of {client.name}: {credit} of {consumer.credit_at_open}"
            window = prefetched.window
            room = consumer.room_bytes + window._size_bytes + window.taken_bytes
            if room != consumer.window_bytes:
                yield f"window of {client.name}: {room} of {consumer.window_bytes}"


class Invariants:
    """What must be true of the engine's state after every step; knows what it has looked at."""

    def __init__(self, node: Node) -> None:
        self._state = node.engine.state
        self._seen: dict[int, tuple[int, ...]] = {}

    def look(self, *, is_thorough: bool) -> Iterator[str]:
        """What is wrong; only at places that look changed, unless is_thorough."""
        state = self._state
        places: dict[int, Queue | Subscription] = {id(q): q for q in state.queues.values()}
        places |= {id(s): s for t in state.topics.values() for s in t.subscriptions}
        if state.scheduled is not None:
            places[id(state.scheduled)] = state.scheduled
        if state.space.place is not None:
            places[id(state.space.place)] = state.space.place
        all_arrived(state)
        sessions = [s for c in state.connections.values() for s in c.sessions.values()]
        held: dict[int, list[int]] = {}
        acknowledged: dict[int, list[tuple[int, StoredMessage]]] = {}
        works = {id(work): work for work in open_works(state)}
        branches = {id(b.work) for b in state.branches.by_xid.values()}
        for work in works.values():
            for place, message in work.acknowledged:
                places[id(place)] = place
                held.setdefault(id(place), []).append(message.id)
                if id(work) not in branches:  # of a branch, a consumer of many works may own it
                    acknowledged.setdefault(id(place), []).append((id(work), message))
        total = sum(place.line.size_bytes for place in places.values())
        if state.waiting_bytes != total:
            yield f"waiting_bytes is {state.waiting_bytes}, the places have {total}"
        if state.sessions_open != len(sessions):
            yield f"sessions_open is {state.sessions_open}, there are {len(sessions)}"
        yield from wrong_totals(state)
        yield from over_limit(state)
        letters = _letters(state)
        for key, place in places.items():
            if is_thorough or self._is_changed(key, place):
                yield from _place(place, held.get(key, []), letters.get(key, set()))
                yield from overlaps(place, acknowledged.get(key, []))

    def _is_changed(self, key: int, place: Queue | Subscription) -> bool:
        line = place.line
        now = line.waiting_count, line.out_count, line.size_bytes, len(line.history)
        was, self._seen[key] = self._seen.get(key), now
        return was != now


def wrong_totals(state: State) -> Iterator[str]:
    """What is kept without a walk is what a walk finds."""
    for is_durable, totals in state.space.totals.items():
        of_kind = [p for p in state.every_place() if p.is_durable is is_durable]
        places = [p for p in of_kind if p.kind not in (SCHEDULED, Retained.kind)]
        lines = [p.line for p in places]
        found = (
            len(places),
            sum(line.waiting_count for line in lines),
            sum(line.out_count for line in lines),
            sum(line.delayed_count for line in lines),
            sum(line.size_bytes for line in lines),
            sum(len(p.consumers) for p in places),
        )
        said = (totals.places, totals.messages, totals.in_flight, totals.delayed)
        said += (totals.bytes, totals.consumers)
        if said != found:
            yield f"totals of {'durable' if is_durable else 'other'} places: {said}, are {found}"
        for what in COUNTED:
            if getattr(totals, what) < sum(getattr(line.counters, what) for line in lines):
                yield f"the totals count fewer {what} than their places"


def _letters(state: State) -> dict[int, set[int]]:
    """What waits to be a dead letter, by the place that it left."""
    found: dict[int, set[int]] = {}
    for one in chain(state.awaiting_page_in, *state.awaiting_ids.values()):
        found.setdefault(id(one.place), set()).add(one.message.id)
    return found


def _place(place: Queue | Subscription, held: list[int], letters: set[int]) -> Iterator[str]:
    """held: what open transactions have; letters: what waits to be a dead letter, and still tells
    how often it failed."""
    line, name = place.line, place.name
    waiting = list(line.in_order())
    out = [message for consumer in place.holders for message in consumer.out.values()]
    every = [*waiting, *out, *line.delayed]
    ids = {message.id for message in every}
    if len(ids | set(held)) != len(every) + len(held):
        yield f"{name}: a message is there twice (P6): {sorted(m.id for m in every)} {held}"
    if (line.waiting_count, line.out_count) != (len(waiting), len(out) + len(held)):
        yield f"{name} counts {line.waiting_count} and {line.out_count}, has {len(waiting)} …"
    order = [line.entry(m)[:-1] for m in waiting]
    if order != sorted(order):
        yield f"{name}: its messages stand in the order {order}"
    if not held and line.size_bytes != sum([m.size_bytes for m in every]):
        yield f"{name}: size_bytes is {line.size_bytes}"
    if not line.history.keys() <= ids | set(held) | letters:
        yield f"{name}: history of messages that are not there"
    for consumer in place.holders:
        if consumer.out_bytes != sum([m.length for m in consumer.out.values()]):
            yield f"{name}: out_bytes of a consumer"
