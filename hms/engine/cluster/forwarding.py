"""Forwarding: an operator, or a rules table, moves messages to a queue of a node that is named.

Theory of operation. What is forwarded leaves its place for a *forward*, in one record: a durable
queue of the system's own for each node, queue there and place here. From there offers take it over
(moves.py), one after the other; the name of the forward goes with them and says which queue is
meant. What the other node refuses goes back to its place in one record too, and so does what was
not offered while that node was away for AWAY_MS. So at each instant a message is in one place: its
own, the forward, or the queue of the other node. What was offered and has no answer waits for it.

An offer of several messages that is refused is said again one by one: a large one, or a queue with
room for some of them, is no reason to send the others back.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from hms.engine.admin.dead_letter_operations import where_back
from hms.engine.admin.destination_lifecycle import NAME_MAX, bury_deleted, check_definitions
from hms.engine.admin.message_operations import chosen, expiry_of, has_body, may_go, said
from hms.engine.admin.message_selection import find, id_of, place_of
from hms.engine.admin.senders import check_sender
from hms.engine.cluster.demand import give, take_chunk
from hms.engine.cluster.forward_names import Forward, forward_of
from hms.engine.cluster.moves import Offer
from hms.engine.cluster.peer_state import Peer
from hms.engine.cluster.source import room_for, taken_back
from hms.engine.effects import Effects
from hms.engine.log.state_records import write
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.queue.dead_letters import is_there
from hms.engine.queue.destinations import Queue, Retained, Subscription
from hms.engine.queue.relocation import relocate
from hms.engine.state import Relocation, State
from hms.errors.catalogue import InvalidArgument, NodeNotUp, NotSupported
from hms.records import Definition, defined, undefined
from hms.wire import operations as ops
from hms.wire.packed_messages import KIND_FILE, KIND_MASK

__all__ = ["Forwards", "send_all_back"]

AWAY_MS = 60_000
"""A node is waited for so long with what was not offered to it."""
IDLE_MS = 60_000
"""An empty forward is kept so long for what may follow."""
BACK_AT_ONCE = 250
REFUSALS_KEPT = 1000
FILE = "file"


class Forwards:
    """The forwards of one node, by the index of the node that they go to."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[int, dict[str, Queue]] = {}
        self._away_since: dict[int, int] = {}
        self._used: dict[str, int] = {}
        self._one_by_one: set[str] = set()
        self._refused: dict[int, tuple[int, str]] = {}
        """By the ids of messages that came back, the latest ones: to which place, and why."""
        self._came_back: dict[int, tuple[int, str]] = {}
        """By the number of their place: how many since boot, and why the last ones."""

    def attach(self, peers: Mapping[int, Peer]) -> None:
        """After boot."""
        for queue in self._state.queues.values():
            one = forward_of(queue.name)
            if one is not None:
                self._keep(one, queue, peers.get(one.node))

    def _keep(self, one: Forward, queue: Queue, peer: Peer | None) -> None:
        queue.redelivery_limit = -1
        origin = self._state.places.get(one.origin)
        queue.expired_to = "" if origin is None else origin.expired_to
        self._queues.setdefault(one.node, {})[queue.name] = queue
        self._used[queue.name] = self._state.now_ms
        if peer is not None:
            queue.feed = self._feeder(peer, queue)

    def _feeder(self, peer: Peer, queue: Queue) -> Callable[[Effects], None]:
        def feed(fx: Effects) -> None:
            if queue.line.waiting_count:
                self._flow(peer, queue, fx)

        return feed

    # what operators ask

    def move(self, peer: Peer, asked: ops.MoveMessages, fx: Effects) -> dict[str, Any]:
        """message.move to a queue of that node: a chunk."""
        how = Relocation(0, is_count_reset=asked.is_count_reset, is_forward=True)
        return self._forwarded(peer, asked, how, fx, is_bare=False)

    def send_back(self, peer: Peer, asked: ops.ReturnLetters, fx: Effects) -> dict[str, Any]:
        """dlq.return to a queue of that node: a chunk, of which nothing says there that it was
        dead."""
        expires_at_ms = expiry_of(self._state, asked.ttl_ms)
        how = Relocation(0, is_count_reset=True, expires_at_ms=expires_at_ms, is_forward=True)
        return self._forwarded(peer, asked, how, fx, is_bare=True)

    def _forwarded(
        self,
        peer: Peer,
        asked: ops.MoveMessages | ops.ReturnLetters,
        how: Relocation,
        fx: Effects,
        *,
        is_bare: bool,
    ) -> dict[str, Any]:
        state, found = self._state, chosen(self._state, asked)
        place = found.place
        to = _checked(asked.to, asked, place)
        if not peer.is_up:
            raise NodeNotUp(node=peer.name, reason=peer.last_error or "it was not heard yet")
        chunk = find(state, found, asked)
        if place is None or not chunk.messages:
            return said(chunk) | {"left": {}}
        left: Counter[str] = Counter()
        going = [m for m in chunk.messages if self._may_go(place, m, asked, left)]
        if asked.is_from_sender:
            for message in going:
                check_sender(state, message, "queue", to)
        later = 0
        if going and not asked.is_dry:
            queue = self._open(peer, Forward(peer.index, place.number, is_bare, to), fx)
            later = relocate(state, place, going, how._replace(to=queue.number), fx)
            for message in going:
                self._refused.pop(message.id, None)
        ordered = left.pop("ordered", 0)
        return said(chunk, going, skipped_ordered=ordered, later=later) | {"left": dict(left)}

    def _may_go(
        self,
        place: Queue | Subscription,
        message: StoredMessage,
        asked: ops.MoveMessages | ops.ReturnLetters,
        left: Counter[str],
    ) -> bool:
        """A file lies here; of what is not a letter, or came back too often, as when it is sent
        back at this node."""
        why = ""
        if message.kind & KIND_MASK == KIND_FILE:
            why = FILE
        elif not may_go(place, message):
            why = "ordered"
        elif isinstance(asked, ops.ReturnLetters):
            where = where_back(self._state, message, place, asked.returns_max)
            why = where if isinstance(where, str) else ""
        if why:
            left[why] += 1
        return not why

    def _open(self, peer: Peer, one: Forward, fx: Effects) -> Queue:
        queue = self._state.queues.get(one.name)
        if queue is None:
            definition = Definition(self._state.take_number(), "queue", one.name)
            check_definitions(self._state, definition.size_bytes)
            write(self._state, defined(definition), fx)
            queue = self._state.queues[one.name]
        self._keep(one, queue, peer)
        return queue

    def show(self, asked: ops.ForwardedMessages) -> dict[str, Any]:
        """What of a place is on its way, of the ids that were named, and why others came back."""
        found = place_of(self._state, asked.place)
        number = 0 if found.place is None else found.place.number
        queues = [
            queue
            for some in self._queues.values()
            for queue in some.values()
            if _read(queue).origin == number
        ]
        ids = [id_of(text) for text in asked.ids.split()]
        on_its_way = [id_ for id_ in ids if any(self._has(queue, id_) for queue in queues)]
        return {
            "count": sum(_length(queue) for queue in queues),
            "ids": [message_id_text(id_) for id_ in on_its_way],
            "came_back": self._came_back.get(number, (0, ""))[0],
            "why": self._came_back.get(number, (0, ""))[1],
            "refused": {
                message_id_text(id_): told[1]
                for id_ in ids
                if (told := self._refused.get(id_)) is not None and told[0] == number
            },
        }

    def _has(self, queue: Queue, id_: int) -> bool:
        return (queue.number, id_) in self._state.moves.undecided or is_there(queue, id_)

    def waiting_for(self, index: int) -> int:
        """Messages that are on their way to a node."""
        return sum(map(_length, self._queues.get(index, {}).values()))

    # on their way

    def flow(self, peer: Peer, fx: Effects) -> None:
        """To a node that is up."""
        for queue in self._queues.get(peer.index, {}).values():
            self._flow(peer, queue, fx)

    def _flow(self, peer: Peer, queue: Queue, fx: Effects) -> None:
        """One offer after the other."""
        state, line = self._state, queue.line
        if not peer.is_up or not line.waiting_count or room_for(state, peer.index) <= 0:
            return
        if any(made.place is queue for made in state.moves.peer(peer.index).offers.values()):
            return
        if queue.name not in self._one_by_one:
            messages = take_chunk(state, queue, fx)
        else:
            messages = list(islice(line.in_order(), 1))
            for message in messages:
                line.take_one(message)
        if messages:
            give(state, peer, queue, messages, fx)

    def refused(self, made: Offer, reason: str, fx: Effects) -> None:
        """Said again one by one, or back to where it came from. made: an offer of a forward."""
        queue, feed = made.place, made.place.feed
        queue.feed = None  # it would offer them again at once
        taken_back(self._state, made, fx)
        if len(made.messages) > 1:
            self._one_by_one.add(queue.name)
        else:
            _send_back(self._state, queue, made.messages, fx)
            self._say_refused(queue, made.messages, reason)
        queue.feed = feed

    def _say_refused(self, queue: Queue, messages: list[StoredMessage], reason: str) -> None:
        origin = _read(queue).origin
        before = self._came_back.get(origin, (0, ""))[0]
        self._came_back[origin] = before + len(messages), reason
        for message in messages:
            self._refused[message.id] = origin, reason
        while len(self._refused) > REFUSALS_KEPT:
            del self._refused[next(iter(self._refused))]

    def tick(self, peers: Mapping[int, Peer], fx: Effects) -> None:
        """What waits goes on, or back when its node is away for long; idle forwards end."""
        now_ms = self._state.now_ms
        for index, queues in [*self._queues.items()]:
            peer = peers.get(index)
            if peer is not None and peer.is_up:
                self._away_since.pop(index, None)
                self.flow(peer, fx)
            elif now_ms - self._away_since.setdefault(index, now_ms) >= AWAY_MS:
                for queue in queues.values():
                    some = [*islice(queue.line.in_order(), BACK_AT_ONCE)]
                    _send_back(self._state, queue, some, fx)
                    if some:
                        self._say_refused(queue, some, "its node was away for too long")
            for queue in [*queues.values()]:
                self._end_idle(queues, queue, fx)

    def _end_idle(self, queues: dict[str, Queue], queue: Queue, fx: Effects) -> None:
        if _length(queue):
            self._used[queue.name] = self._state.now_ms
            return
        self._one_by_one.discard(queue.name)
        if self._state.now_ms - self._used[queue.name] >= IDLE_MS:
            del queues[queue.name], self._used[queue.name]
            write(self._state, undefined(queue.number), fx)


def _checked(to: str, asked: ops.SelectMessages, place: object) -> str:
    """The name of a queue there."""
    if isinstance(place, Retained):
        raise NotSupported(feature="to move what is retained", instead="Publish it there.")
    name = to.removeprefix("queue:")
    if not name or forward_of(name) is not None:
        raise InvalidArgument(what="to", detail="the queue that is to get them is needed")
    if len(name) > NAME_MAX:  # a link would take no such word
        raise InvalidArgument(what="to", detail=f"a name has at most {NAME_MAX} characters")
    if asked.is_atomic:
        detail = "another node takes what is forwarded chunk by chunk"
        raise InvalidArgument(what="is_atomic", detail=detail)
    return name


def _read(queue: Queue) -> Forward:
    one = forward_of(queue.name)
    assert one is not None, "only forwards are here"
    return one


def _length(queue: Queue) -> int:
    return queue.line.waiting_count + queue.line.out_count + queue.line.delayed_count


def _send_back(state: State, queue: Queue, messages: list[StoredMessage], fx: Effects) -> None:
    """To the place that they came from; when that is gone they are dead letters, as what waited in
    it."""
    origin = _read(queue).origin
    if origin in state.places:
        relocate(state, queue, [m for m in messages if has_body(queue, m)], Relocation(origin), fx)
    else:
        bury_deleted(state, queue, fx, len(messages))


def send_all_back(state: State, queue: Queue, fx: Effects) -> bool:
    """At boot, of a node that is not in the configuration any more; whether it is a forward."""
    if forward_of(queue.name) is None:
        return False
    _send_back(state, queue, queue.line.everything(), fx)
    return True
