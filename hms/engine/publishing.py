"""Publishing: a batch goes to everybody whose pattern matches its topic, or to nobody (PUBSUB §8).

Theory of operation. The index tells the audience. Before anything changes it is checked that all
copies fit, that those have room who have to take it, and that what is to be retained can be. Then
each subscription gets the very messages, shared, and their record names the places. A subscription
that delivers into a queue puts them there too; only a copy that has to look different, because two
subscriptions use one queue or one has a correlation id, is a message of its own. All records of a
publication are one group, so after a crash everybody has it or nobody (PD-01, PD-03).
"""

from collections.abc import Sequence
from typing import NamedTuple

from field_buffer.packing import NODE_TOPIC, ROW, Row, slice_payloads
from hms.engine.audience import audience_of, retained_at, room_in
from hms.engine.blocks import hold, offsets_of
from hms.engine.copying import copies_of, record_of, stamped
from hms.engine.effects import Effects
from hms.engine.messages import OF_COMMIT, StoredMessage, make_messages
from hms.engine.places import Queue, Subscription, Topic
from hms.engine.retaining import retain
from hms.engine.sessions import PendingBatch, Producer
from hms.engine.state import State
from hms.engine.topics import Delivery, TopicNode
from hms.records import Landing, Placement, Record, Sent, bitmap, sent


class Stored(NamedTuple):
    """What came of a batch: its records, which belong together, the places to dispatch, and its
    messages."""

    records: list[Record]
    touched: list[Queue | Subscription]
    messages: list[StoredMessage]


def store_publication(
    state: State, batch: PendingBatch, rows: list[Row], first_sequence: int, fx: Effects
) -> Stored:
    """Put a batch where it is wanted. What was checked when it came may have changed since, if a
    transaction held it: then it goes out all the same, as what is sent to a queue does."""
    producer = batch.producer
    destination, node = producer.destination, producer.node
    assert isinstance(destination, Topic) and node is not None, "only topics publish"  # noqa: PT018
    audience = audience_of(state, producer.topic)
    pack, at = batch.pack, retained_at(rows)
    if at is not None or _must_say(producer, audience):
        rows, pack = stamped(rows, pack, {NODE_TOPIC: producer.topic})
    messages = messages_of(state, batch, rows, pack)
    destination.sent += batch.count
    node.used_ms = state.now_ms
    out = _FanOut(state, batch, messages, fx)
    for subscription in audience:
        out.give(subscription)
    if at is not None:
        out.retain(node, messages[at])
    if batch.is_persistent:
        first, landing = messages[0].seq, _land(state, messages)
        record = record_of_batch(batch, out.placements, pack, first_sequence, first, landing)
        out.records.insert(0, record)
    return Stored(out.records, out.touched, messages)


def messages_of(
    state: State, batch: PendingBatch, rows: Sequence[Row], pack: memoryview
) -> list[StoredMessage]:
    """The messages of a batch, with their places in the order of arrival."""
    payloads = slice_payloads(pack, rows)
    first_seq = state.take_seqs(batch.count)
    messages = make_messages(
        rows, payloads, batch.first_id, first_seq, batch.timestamp_ms, batch.is_persistent
    )
    is_early = batch.first_id + batch.count > state.ids.safe_below
    if not batch.is_persistent and (batch.producer.session.is_transacted or is_early):
        for message in messages:
            message.slot = OF_COMMIT
    return messages


def record_of_batch(
    batch: PendingBatch,
    placements: list[Placement],
    pack: memoryview,
    first_sequence: int,
    first_seq: int,
    landing: Landing | None,
) -> Record:
    """The record of a batch that its client sent."""
    producer = batch.producer
    head = Sent(
        producer.destination.number,
        batch.first_id,
        batch.timestamp_ms,
        producer.session.connection.uid,
        producer.handle,
        first_sequence,
        batch.count,
        is_forwarded=False,
        placements=placements,
        pack=pack,
        first_seq=first_seq,
    )
    return sent(head, landing)


def _must_say(producer: Producer, audience: Sequence[Subscription]) -> bool:
    """Whether a message has to say its topic: somebody would not know it otherwise."""
    if producer.topic != producer.destination.name:
        return True
    return any(s.pattern.is_wildcard or s.queue is not None for s in audience)


def _land(state: State, messages: Sequence[StoredMessage]) -> Landing | None:
    """The log has to keep those of the messages that a place holds."""
    offsets = offsets_of(messages, ROW.size * len(messages))
    held = [(m, at) for m, at in zip(messages, offsets, strict=True) if m.holders]
    return state.blocks.add([m for m, _ in held], [at for _, at in held])


class _FanOut:
    """Gives the messages of one batch to one subscription after the other."""

    def __init__(
        self, state: State, batch: PendingBatch, messages: list[StoredMessage], fx: Effects
    ) -> None:
        self._state = state
        self._uid = batch.producer.session.connection.uid
        self._topic = batch.producer.topic
        self._is_persistent = batch.is_persistent
        self._delivery = state.space.delivery(self._topic, is_persistent=batch.is_persistent)
        self._messages = messages
        self._fx = fx
        self._chosen: dict[str, list[bool] | None] = {}
        """By the text of a selector, which is asked once however many have it."""
        self._queues: set[int] = set()
        self.placements: list[Placement] = []
        self.touched: list[Queue | Subscription] = []
        self.records: list[Record] = []

    def give(self, subscription: Subscription) -> None:
        """What it chooses, to it or into its queue."""
        if subscription.is_local(self._uid):
            return
        text = subscription.definition.selector
        if text not in self._chosen:
            self._chosen[text] = subscription.chooses(self._messages)
        flags = self._chosen[text]
        chosen = self._messages
        if flags is not None:
            chosen = [m for m, is_it in zip(chosen, flags, strict=True) if is_it]
        if not chosen:
            return
        if subscription.queue is None:
            self._put(subscription, chosen, is_logged=subscription.is_durable)
        else:
            self._give_queue(subscription, subscription.queue, chosen)

    def _give_queue(
        self, subscription: Subscription, queue: Queue, chosen: list[StoredMessage]
    ) -> None:
        fitting = chosen if self._must_take(subscription) else chosen[: room_in(queue)]
        subscription.missed += len(chosen) - len(fitting)
        if not fitting:
            return
        if subscription.definition.correlation_id or queue.number in self._queues:
            self._copy(subscription, queue, fitting)
            return
        self._queues.add(queue.number)
        self._put(queue, fitting, is_logged=True)
        queue.offer(fitting)

    def _must_take(self, subscription: Subscription) -> bool:
        if self._delivery is Delivery.ALLDUR:
            return subscription.is_durable
        return self._delivery is Delivery.ALL

    def _put(
        self, place: Queue | Subscription, chosen: list[StoredMessage], *, is_logged: bool
    ) -> None:
        add_to(self._state, place, chosen)
        self.touched.append(place)
        if is_logged and self._is_persistent:
            hold(chosen, place.number)
            self.placements.append(Placement(place.number, self._bitmap(chosen)))

    def _bitmap(self, chosen: list[StoredMessage]) -> bytes:
        if len(chosen) == len(self._messages):
            return b""
        ids = {m.id for m in chosen}
        return bitmap([m.id in ids for m in self._messages])

    def _copy(self, subscription: Subscription, queue: Queue, chosen: list[StoredMessage]) -> None:
        """Messages of their own, as another subscription's are in the same queue, or as they carry
        another correlation id (SU-18)."""
        copies = copies_of(self._state, chosen, subscription, self._topic, self._fx)
        add_to(self._state, queue, copies)
        queue.offer(copies)
        self.touched.append(queue)
        if self._is_persistent:
            self.records.append(record_of(self._state, queue, copies))

    def retain(self, node: TopicNode[StoredMessage], message: StoredMessage) -> None:
        """From now on the topic's retained publication."""
        place, replaced = retain(self._state, node, message, self._fx)
        if self._is_persistent:
            hold([message], place.number)
            self.placements.append(Placement(place.number, self._bitmap([message])))
        self.records += replaced


def add_to(state: State, place: Queue | Subscription, messages: list[StoredMessage]) -> None:
    """Messages begin to wait at a place."""
    before = place.line.size_bytes
    place.line.add(messages)
    state.waiting_bytes += place.line.size_bytes - before
