"""Publication: a batch goes to everybody whose pattern matches its topic, or to nobody (PUBSUB §8).

Theory of operation. The index tells the audience. Before anything changes it is checked that all
copies fit, that those have room who have to take it, and that what is to be retained can be. Then
each subscription gets the very messages, shared, and their record names the places. A subscription
that delivers into a queue puts them there too; only a copy that has to look different, because two
subscriptions use one queue or one has a correlation id, is a message of its own. All records of a
publication are one group, so after a crash everybody has it or nobody (PD-01, PD-03).
"""

from collections.abc import Mapping, Sequence

import msgspec

from hms.engine.effects import Effects
from hms.engine.groups.global_order import stamped_with_clock
from hms.engine.log.live_index import hold, hold_each, hold_together, offsets_of
from hms.engine.messages import OF_COMMIT, StoredMessage, make_messages, sizes_of
from hms.engine.queue.delays import NOT_DELAYED, due_times, stamped_with_time
from hms.engine.queue.destinations import Queue, Retained, Subscription, Topic
from hms.engine.queue.incoming import DELAYED, FILES, ORDERED, Incoming, accepted
from hms.engine.queue.message_copies import copies_of, record_of, stamped
from hms.engine.session.session_objects import PendingBatch, Producer
from hms.engine.state import State
from hms.engine.topic import Delivery, TopicNode
from hms.engine.topic.audience import retained_at, room_in, takes_all
from hms.engine.topic.choices import Group
from hms.engine.topic.recipients import NOTHING_KNOWN, Audience, Known
from hms.engine.topic.retention import publisher_mark, retain
from hms.engine.topic.spreading import begin_spread, delay, is_large
from hms.engine.topic.spreads import Part
from hms.records import LogPosition, Placement, Record, Sent, bitmap, encoded_placements, sent
from hms.wire.packed_messages import KIND_FILE, NODE_PUBLISHER, NODE_TOPIC, ROW, Row, slice_payloads


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What came of a batch: its records, which belong together, the places to dispatch, and its
    messages."""

    records: list[Record]
    touched: list[Queue | Subscription]
    messages: list[StoredMessage]


def store_publication(
    state: State, batch: PendingBatch, incoming: Incoming, first_sequence: int, fx: Effects
) -> Stored:
    """Put a batch where it is wanted. What was checked when it came may have changed since, if a
    transaction held it: then it goes out nevertheless, as what is sent to a queue does."""
    producer = batch.producer
    destination, node = producer.destination, producer.node
    assert isinstance(destination, Topic) and node is not None, "only topics publish"  # noqa: PT018
    audience = state.space.audience(producer.topic, state.now_ms)
    at, known = retained_at(incoming.rows), known_of(batch, incoming, audience)
    rows, pack, due = stamped_for(batch, incoming, audience)
    if incoming.uses & ORDERED:
        rows, pack = stamped_with_clock(state, rows, pack)
    if pack is not incoming.pack:
        incoming = accepted(pack, rows)
    messages = messages_of(state, batch, incoming)
    destination.sent += batch.count
    node.used_ms = state.now_ms
    out = FanOut(state, batch, due, incoming.uses, messages, fx)
    for subscription in audience.withheld:
        subscription.withheld += len(messages)
    state.looking.asked += audience.asked_by(len(messages))
    if (
        state.spreads
        or state.spreads.takes_all
        or is_large(state, len(audience.subscriptions), batch.count, len(due), incoming.uses)
    ):
        out.spread(audience.groups(messages, known))
    else:
        out.give_each(audience.choose(messages, known))
    for subscription, count in out.missed:
        subscription.missed += count
    out.relay()
    if at is not None:
        out.retain(state.space.tree.node(producer.topic, state.now_ms, is_known=True), messages[at])
    if batch.is_persistent:
        first, log_position = messages[0].seq, _log_position(state, messages)
        record = record_of_batch(
            batch, out.placements, pack, first_sequence, first, log_position, out.further
        )
        out.records.insert(0, record)
    return Stored(out.records, out.touched, messages)


def known_of(batch: PendingBatch, incoming: Incoming, audience: Audience) -> Known:
    """What selectors say of the batch, where they were asked before."""
    answers = batch.answers
    if answers is None or answers.is_told != is_told_the_topic(batch.producer, incoming, audience):
        return NOTHING_KNOWN
    return answers.known


def is_told_the_topic(producer: Producer, incoming: Incoming, audience: Audience) -> bool:
    """Whether the heads of what is published have to say on which topic that is."""
    is_retained = retained_at(incoming.rows) is not None
    return is_retained or audience.must_be_told or producer.topic != producer.destination.name


def stamped_for(
    batch: PendingBatch, incoming: Incoming, audience: Audience
) -> tuple[Sequence[Row], memoryview, Mapping[int, int]]:
    """The batch with heads that say its topic and when its messages are due, where they have to;
    and when those are that are delayed."""
    producer, rows, pack = batch.producer, incoming.rows, incoming.pack
    if is_told_the_topic(producer, incoming, audience):
        stamp = {NODE_TOPIC: producer.topic}
        if retained_at(rows) is not None:
            stamp[NODE_PUBLISHER] = publisher_mark(producer.session.connection.uid)
        rows, pack = stamped(rows, pack, stamp)
    due = NOT_DELAYED
    if incoming.uses & DELAYED:
        due = due_times(rows, batch.first_id, batch.timestamp_ms)
        rows, pack = stamped_with_time(rows, pack, batch.timestamp_ms)
    return rows, memoryview(pack), due


def messages_of(
    state: State, batch: PendingBatch, incoming: Incoming, holder: int = 0
) -> list[StoredMessage]:
    """The messages of a batch, with their places in the order of arrival; holder: the number of the
    queue that is the only place to hold them in the log."""
    rows, first_seq = incoming.rows, state.next_seq
    state.next_seq = first_seq + batch.count
    if batch.made is not None:
        messages = batch.made
        for seq, message in enumerate(messages, first_seq):
            message.seq, message.holders = seq, holder
    else:
        messages = make_messages(
            rows,
            slice_payloads(incoming.pack, rows),
            batch.first_id,
            first_seq,
            batch.timestamp_ms,
            batch.is_persistent,
            holder,
        )
    if incoming.uses & FILES and state.files.since_ms:
        messages = state.files.watched(messages)
    if holder:
        return messages
    is_early = batch.first_id + batch.count > state.ids.safe_below
    target = batch.producer.destination
    is_logged = batch.is_persistent and (isinstance(target, Topic) or target.is_durable)
    if not is_logged and (batch.producer.session.is_transacted or is_early):
        for message in messages:
            message.slot = OF_COMMIT
    return messages


def record_of_batch(
    batch: PendingBatch,
    placements: list[Placement],
    pack: memoryview,
    first_sequence: int,
    first_seq: int,
    log_position: LogPosition | None,
    further: Sequence[tuple[int, bytes]] = (),
) -> Record:
    """The record of a batch that its client sent; further: as sent() has it."""
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
    return sent(head, log_position, further)


def _log_position(state: State, messages: Sequence[StoredMessage]) -> LogPosition | None:
    """The log has to keep those of the messages that a place holds."""
    offsets = offsets_of(messages, ROW.size * len(messages))
    held = [(m, at) for m, at in zip(messages, offsets, strict=True) if m.holders]
    return state.blocks.add([m for m, _ in held], [at for _, at in held])


class FanOut:
    """Gives the messages of one batch to one subscription after the other."""

    def __init__(
        self,
        state: State,
        batch: PendingBatch,
        due: Mapping[int, int],
        uses: int,
        messages: list[StoredMessage],
        fx: Effects,
    ) -> None:
        self._state = state
        self._due = due
        self._publisher = batch.producer.session.connection
        self._uses = uses
        self._topic = batch.producer.topic
        self._is_persistent = batch.is_persistent
        self._delivery = state.space.delivery(self._topic, is_persistent=batch.is_persistent)
        self._messages = messages
        self._size_bytes = sizes_of(messages)
        self._fx = fx
        self._queues: set[int] = set()
        self._relayed: dict[Queue, set[int]] = {}
        """By their queue, the ids of what goes to other nodes."""
        self.placements: list[Placement] = []
        self.touched: list[Queue | Subscription] = []
        self.further: list[tuple[int, bytes]] = []
        """Of very many places: how many, and their placements as they stand in the record."""
        self.records: list[Record] = []
        self.missed: list[tuple[Subscription, int]] = []
        """For how many messages there is no room where."""
        self._spread: list[Part] | None = None

    def spread(self, groups: Sequence[tuple[Group, list[StoredMessage]]]) -> None:
        """To each what its group chose, where it waits in slices (spreads.py): here it is only
        counted, and told to the log. What delivers into a queue is given at once."""
        begin_spread(self._state, self.parts(groups), self._due, self._uses)

    def parts(self, groups: Sequence[tuple[Group, list[StoredMessage]]]) -> list[Part]:
        """Who gets what in slices; the placements that tell the log of it are noted."""
        common, own = list[frozenset[int]](), dict[int, list[frozenset[int]]]()
        self._spread = parts = list[Part]()
        for group, chosen in groups:
            whole, others = self._split(group, chosen)
            if whole:
                parts.append((whole, chosen))
            numbers = group.numbers
            if whole is not group.plain:
                numbers = frozenset([s.number for s in whole if s.is_durable])
            if numbers and self._is_persistent:
                self.further.append((len(numbers), self._encoded(group, numbers, chosen)))
                if chosen is self._messages:
                    common.append(numbers)
                else:
                    for message in chosen:
                        own.setdefault(message.id, []).append(numbers)
            for subscription in others:
                self.give(subscription, chosen)
        for message in self._messages if common or own else ():
            hold_together(message, [*common, *own.get(message.id, ())])
        return parts

    def _encoded(self, group: Group, numbers: frozenset[int], chosen: list[StoredMessage]) -> bytes:
        mask = self._bitmap(chosen)
        if numbers is group.numbers and not mask:
            return group.encoded
        return encoded_placements(sorted(numbers), mask)

    def _split(
        self, group: Group, chosen: list[StoredMessage]
    ) -> tuple[Sequence[Subscription], Sequence[Subscription]]:
        """Those that simply take what the group chose, and those that have to be looked at."""
        if not group.is_guarded:
            return group.plain, group.special
        size, longest = sum([m.length for m in chosen]), max([m.length for m in chosen])
        whole, others = list[Subscription](), list(group.special)
        for one in group.plain:
            takes = self._must_take(one) or takes_all(one, len(chosen), size, longest)
            (whole if takes else others).append(one)
        return whole, others

    def give_each(self, choices: Sequence[tuple[Subscription, list[StoredMessage]]]) -> None:
        """To each what it chose. Those that just take all are most of 25,000: a step for each of
        them, and what is the same for them once, is a third of give()."""
        messages, size_bytes, uses = self._messages, self._size_bytes, self._uses
        is_plain, given, holding = not self._due, 0, list[int]()
        for subscription, chosen in choices:
            if (
                chosen is not messages
                or not is_plain
                or subscription.queue is not None
                or subscription.is_no_local
                or subscription.is_proxy
                or subscription.control.is_guarded
            ):
                self.give(subscription, chosen)
                continue
            subscription.line.add(messages, size_bytes, uses)
            self.touched.append(subscription)
            given += 1
            if self._is_persistent and subscription.is_durable:
                self.placements.append(subscription.placement)
                holding.append(subscription.number)
        self._state.waiting_bytes += given * size_bytes
        hold_each(messages, holding)

    def give(self, subscription: Subscription, chosen: list[StoredMessage]) -> None:
        """What it chose, to it or into its queue."""
        if subscription.is_local(self._publisher):
            return
        if subscription.is_proxy:
            self._relay(subscription, chosen)
            return
        fitting = self._fitting(subscription, chosen)
        if not fitting:
            return
        if subscription.queue is None:
            self._put(subscription, fitting, is_logged=subscription.is_durable)
        else:
            self._give_queue(subscription, subscription.queue, fitting)

    def _relay(self, proxy: Subscription, chosen: list[StoredMessage]) -> None:
        """For another node: only what is on a global topic, and each message once."""
        queue = proxy.queue
        if queue is None or not self._state.is_global_topic(self._topic):
            return
        ids = {m.id for m in chosen if m.kind != KIND_FILE}  # a file lies at this node only
        proxy.missed += len(chosen) - len(ids)
        self._relayed.setdefault(queue, set()).update(ids)

    def relay(self) -> None:
        """What goes to other nodes, in the order in which it came."""
        for queue, ids in self._relayed.items():
            chosen = [m for m in self._messages if m.id in ids]
            if chosen:
                self._put(queue, chosen, is_logged=True)

    def _fitting(
        self, subscription: Subscription, chosen: list[StoredMessage]
    ) -> list[StoredMessage]:
        """Those for which there is room; the others are missed, and counted."""
        place = subscription.queue or subscription
        if not place.control.is_guarded or self._must_take(subscription):
            return chosen
        fitting = chosen[: room_in(place, [m.length for m in chosen])]
        if len(fitting) < len(chosen):
            self.missed.append((subscription, len(chosen) - len(fitting)))
        return fitting

    def _give_queue(
        self, subscription: Subscription, queue: Queue, fitting: list[StoredMessage]
    ) -> None:
        if subscription.definition.correlation_id or queue.number in self._queues:
            self._copy(subscription, queue, fitting)
            return
        self._queues.add(queue.number)
        self._put(queue, fitting, is_logged=True)
        queue.offer(awake(fitting, self._due))

    def _must_take(self, subscription: Subscription) -> bool:
        if self._delivery is Delivery.ALLDUR:
            return subscription.is_durable
        return self._delivery is Delivery.ALL

    def _put(
        self, place: Queue | Subscription, chosen: list[StoredMessage], *, is_logged: bool
    ) -> None:
        if self._spread is not None and isinstance(place, Subscription):
            self._spread.append(([place], chosen))
        else:
            size_bytes = self._size_bytes if chosen is self._messages else -1
            add_to(self._state, place, chosen, self._due, self._uses, size_bytes)
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
        due = {
            c.id: self._due[m.id] for c, m in zip(copies, chosen, strict=True) if m.id in self._due
        }
        add_to(self._state, queue, copies, due)
        queue.offer(awake(copies, due))
        self.touched.append(queue)
        if self._is_persistent:
            self.records.append(record_of(self._state, queue, copies, due))

    def retain(self, node: TopicNode[StoredMessage], message: StoredMessage) -> None:
        """From now on the topic's own; node: found anew, as its producer may be closed since."""
        place, replaced = retain(self._state, node, message, self._fx)
        self.hold_retained(place, message)
        self.records += replaced

    def hold_retained(self, place: Retained, message: StoredMessage) -> None:
        """The log keeps it for the place of what is retained, too."""
        if self._is_persistent:
            hold([message], place.number)
            self.placements.append(Placement(place.number, self._bitmap([message])))


def add_to(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    due: Mapping[int, int],
    uses: int = -1,
    size_bytes: int = -1,
) -> None:
    """Messages begin to wait at a place; due: those that wait for their time, by their ids; uses
    and size_bytes: see PendingList.add()."""
    if size_bytes < 0:
        size_bytes = sizes_of(messages)
    place.line.add(messages, size_bytes, uses)
    state.waiting_bytes += size_bytes
    if due:
        delay(state, place, messages, due)


def awake(messages: list[StoredMessage], due: Mapping[int, int]) -> list[StoredMessage]:
    """Those that do not wait for their time."""
    return [m for m in messages if m.id not in due] if due else messages
