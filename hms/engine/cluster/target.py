"""Target: what another node offers is taken or refused, once and for good (moves.py).

The messages and the answer are one record, so after a crash this node either has the messages and
knows it, or has never heard of the offer. Ids, times, priorities and the counts of deliveries stay;
the place in the order is a new one, behind what is here already.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from hms.engine.cluster.arrived_runs import follows, record_of_run, runs
from hms.engine.cluster.cluster_messages import Answer, Moving, Offer
from hms.engine.cluster.forward_names import Forward, forward_of
from hms.engine.cluster.moves import DECIDED_MAX
from hms.engine.cluster.relaying import give_out, relay_name, topic_of
from hms.engine.effects import Effects, ToNode
from hms.engine.groups.group_view import is_gathering
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.log.live_index import hold
from hms.engine.log.paging import page_out_new
from hms.engine.log.state_records import applied
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage, message_id_text
from hms.engine.queue.dead_letters import may_have, revived
from hms.engine.queue.destinations import RELAY_PREFIX, Queue, Subscription
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.pending_list import told_counts
from hms.engine.state import State
from hms.engine.topic.answers import Answers
from hms.engine.topic.recipients import NOTHING_KNOWN
from hms.errors.catalogue import (
    DestinationNotFound,
    IllegalState,
    InvalidArgument,
    InvalidDestinationState,
    MessageFormatError,
    MessageTooLarge,
    NodeStopping,
    QueueFull,
)
from hms.errors.tree import FieldValue, HmsError
from hms.records import Arrived, Placement, Record, arrived, group
from hms.wire.packed_messages import decode_head, encode_head


def arrive(
    state: State, source: int, store: int, said: Offer, payloads: Sequence[bytes], fx: Effects
) -> None:
    """An offer of a node, made by that life of its store; heard for the first time or again."""
    if said.store != state.moves.life or _is_over(state, source, store, said, fx):
        return  # it was meant for a store that is gone, or has its answer
    forward = _forward(state, said)
    is_of_before = forward is None and _is_of_before(state, store, said)
    fault = _why_not(state, said, forward)
    if fault is None and is_of_before:
        fault = _why_not_known(state, said)
    if fault is not None:
        _refuse(state, source, store, said, fault, fx)
    elif said.queue == relay_name(state.settings.node_index):
        if is_of_before:
            said, payloads = _renamed(state, said, payloads, fx)
        _begin(state, Arriving(state, source, store, said, payloads), fx)
    else:
        if forward is not None:
            said, payloads = _forwarded(state, forward, said, payloads, fx)
        elif is_of_before:
            said, payloads = _without_known(state, said, payloads)
        _take(state, source, store, said, payloads, fx)


def _is_over(state: State, source: int, store: int, said: Offer, fx: Effects) -> bool:
    """Whether an offer is not to be looked at again."""
    peer = state.moves.peer(source)
    if peer.store != store:
        return False
    if said.number < peer.floor:
        return True  # a frame that was long under way: its answer has arrived
    peer.forget_below(said.floor)
    known = peer.decided.get(said.number)
    if known is not None:
        fx.must_wait = True  # the record of the answer may not be synced yet
        fx.out.append(ToNode(source, Answer(said.number, known, "it was answered before")))
    return known is not None or len(peer.decided) >= DECIDED_MAX


def _is_of_before(state: State, store: int, said: Offer) -> bool:
    """Whether a message is older than the other node's store, or than this one that was restored:
    what was restored from a backup may have passed it on before."""
    newest = max(store, state.moves.life if state.identity.restored_below else 0)
    return any(one.timestamp_ms < newest for one in said.messages)


def _why_not_known(state: State, said: Offer) -> HmsError | None:
    """They may be out here, in a transaction; nobody can tell until that has ended."""
    queue = state.queues.get(said.queue)
    if queue is None or said.queue == relay_name(state.settings.node_index):
        return None
    if queue.line.out_count <= sum(len(consumer.out) for consumer in queue.holders):
        return None
    detail = "an older store may have moved it, and what is out here is not known yet"
    return IllegalState(what=f"a message of {queue.name}", detail=detail)


def _without_known(
    state: State, said: Offer, payloads: Sequence[bytes]
) -> tuple[Offer, list[bytes]]:
    """Without messages that this node has already: the log could not tell the two apart."""
    queue = state.queues[said.queue]
    kept = [
        (one, payload)
        for one, payload in zip(said.messages, payloads, strict=True)
        if not may_have(queue, one.id)
    ]
    return replace(said, messages=[one for one, _ in kept]), [payload for _, payload in kept]


def _renamed(
    state: State, said: Offer, payloads: Sequence[bytes], fx: Effects
) -> tuple[Offer, list[bytes]]:
    """Publications with ids of their own: which subscriptions have them already is not known."""
    messages, bodies = [], []
    for one, payload in zip(said.messages, payloads, strict=True):
        head = _named_after(payload[: one.head_bytes], one.id)
        messages.append(replace(one, id=state.take_ids(1, fx), head_bytes=len(head)))
        bodies.append(head + payload[one.head_bytes :])
    return replace(said, messages=messages), bodies


def _named_after(data: bytes, former: int) -> bytes:
    """The head of a message that had that id."""
    try:
        found = decode_head(data)
    except MessageFormatError:
        return data
    node = {**found.node, "$OriginalMessageID": message_id_text(former)}
    return encode_head(replace(found, node=node))


def _forward(state: State, said: Offer) -> Forward | None:
    """The queue here that is meant, when messages are forwarded to it (forwarding.py)."""
    found = forward_of(said.queue)
    return found if found is not None and found.node == state.settings.node_index else None


def _forwarded(
    state: State, forward: Forward, said: Offer, payloads: Sequence[bytes], fx: Effects
) -> tuple[Offer, list[bytes]]:
    """The messages as they are put here: bare ones are no dead letters any more, and one whose id
    this queue may have, as the copy of another subscription, gets an id of its own."""
    queue, ids = state.queues[forward.queue], set[int]()
    messages, bodies = [], []
    for one, payload in zip(said.messages, payloads, strict=True):
        made, is_taken = one, one.id in ids or may_have(queue, one.id)
        head = _head(payload[: one.head_bytes], forward, one.id if is_taken else 0)
        if forward.is_bare:
            made = replace(made, deliveries=0, attempts=0)
        if is_taken:
            made = replace(made, id=state.take_ids(1, fx))
        ids.add(one.id)
        messages.append(replace(made, head_bytes=len(head)))
        bodies.append(head + payload[one.head_bytes :])
    return replace(said, queue=forward.queue, messages=messages), bodies


def _head(data: bytes, forward: Forward, former: int) -> bytes:
    """The head of a message that is put here; former: the id that it had, when it gets another
    one. One that cannot be read stays as it is: only its reader can judge."""
    if not (forward.is_bare or former):
        return data
    try:
        found = decode_head(data)
    except MessageFormatError:
        return data
    if forward.is_bare:
        found = revived(found)
    if former:
        node = {**found.node, "$OriginalMessageID": message_id_text(former)}
        found = replace(found, node=node)
    return encode_head(found)


def _why_not(state: State, said: Offer, forward: Forward | None) -> HmsError | None:
    """Why the messages cannot be taken; None when they can."""
    is_relay = said.queue == relay_name(state.settings.node_index)
    queue = state.queues.get(said.queue if forward is None else forward.queue)
    if forward is not None:
        fault = _why_not_forwarded(queue, forward)
        if fault is not None:
            return fault
    elif not is_relay and (queue is None or not state.is_global(said.queue)):
        return DestinationNotFound(kind="queue", destination=said.queue)
    if state.moves.is_closed and not is_relay:
        return NodeStopping()
    limit = state.settings.message_bytes_max
    sizes = [one.head_bytes + one.body_bytes for one in said.messages]
    if max(sizes, default=0) > limit:
        return MessageTooLarge(size=max(sizes), limit=limit)
    try:
        state.check_memory(sum(sizes) + OVERHEAD_BYTES * len(sizes))
    except HmsError as fault:
        return fault
    return None if is_relay or queue is None else _why_not_here(state, queue, said, sum(sizes))


def _why_not_here(state: State, queue: Queue, said: Offer, size: int) -> HmsError | None:
    """It has no room; or one of them was offered from here, and a cut has taken the answer along:
    taken now, it would leave when that answer is here after all."""
    undecided = state.moves.undecided
    if said.queue == queue.name and any((queue.number, m.id) in undecided for m in said.messages):
        detail = "it has come back before the answer to its own move"
        return IllegalState(what=f"a message of {queue.name}", detail=detail)
    return why_full(queue, len(said.messages), size)


def _why_not_forwarded(queue: Queue | None, forward: Forward) -> HmsError | None:
    name = forward.queue
    if queue is None or queue.control.is_gone or name.startswith(RELAY_PREFIX):
        return DestinationNotFound(kind="queue", destination=name)
    if not queue.number:
        return InvalidArgument(what="to", detail=f"{name} is temporary: they would be lost with it")
    if is_gathering(queue):
        return InvalidArgument(what="to", detail=f"{name} gathers groups; send them whole")
    return None


def why_full(queue: Queue, count: int, size: int) -> HmsError | None:
    """Why a queue has no room for so much; a move is no reason to remove what waits there."""
    control, line = queue.control, queue.line
    if control.is_sending_paused:
        return InvalidDestinationState(kind=queue.kind, destination=queue.name)
    held = line.waiting_count + line.out_count + line.delayed_count
    for key, used, more, limit in (
        ("max_messages", held, count, control.limits.messages_max),
        ("max_bytes", line.size_bytes, size, control.limits.bytes_max),
    ):
        if limit and used + more > limit:
            fields: dict[str, FieldValue] = {"count": used, "limit": limit, "key": key}
            return QueueFull(kind="queue", destination=queue.name, **fields)
    return None


def _refuse(
    state: State, source: int, store: int, said: Offer, fault: HmsError, fx: Effects
) -> None:
    content = Arrived(source, store, said.number, is_accepted=False, at_ms=state.now_ms)
    fx.records.append(_decided(state, content, said))
    fx.out.append(ToNode(source, Answer(said.number, is_accepted=False, reason=str(fault))))


def _take(
    state: State, source: int, store: int, said: Offer, payloads: Sequence[bytes], fx: Effects
) -> None:
    queue = state.queues[said.queue]
    returned = [
        (one.id, *told_counts(one.deliveries, one.attempts))
        for one in said.messages
        if one.deliveries
    ]
    messages = _messages(state, said.messages, payloads)
    _put(state, queue, messages, returned)
    content = Arrived(
        source,
        store,
        said.number,
        is_accepted=True,
        at_ms=state.now_ms,
        place=queue.number,
        returned=returned,
    )
    persistent = [m for m in messages if m.is_persistent]
    everywhere = [Placement(queue.number, b"")]
    hold(persistent, queue.number)
    told = [record_of_run(state, queue.number, run, everywhere) for run in runs(persistent)]
    fx.records.append(group(0, 0, 0, state.now_ms, [*told, _decided(state, content, said)]))
    fx.out.append(ToNode(source, Answer(said.number, is_accepted=True)))
    dispatch(state, queue, fx)
    page_out_new(state, persistent, [queue])


def _put(
    state: State,
    queue: Queue,
    messages: list[StoredMessage],
    returned: Sequence[tuple[int, int, int]],
) -> None:
    before = queue.line.size_bytes
    queue.line.add(messages)
    queue.line.history.update({id_: (n, failed) for id_, n, failed in returned})
    state.waiting_bytes += queue.line.size_bytes - before
    queue.line.count("sent", -len(messages))
    queue.line.count("moved_in", len(messages))
    queue.offer(messages)


class Arriving:
    """Publications of another node, whose selectors are asked in slices before they are given out:
    1,024 for 200 of which no table finds any were 60 ms under one hold of the lock."""

    def __init__(
        self, state: State, source: int, store: int, said: Offer, payloads: Sequence[bytes]
    ) -> None:
        self.source, self.store, self.said = source, store, said
        self.messages = [
            _message(state, one, 0, payload)
            for one, payload in zip(said.messages, payloads, strict=True)
        ]
        self._runs = list(_by_topic(self.messages))
        self._answers: dict[int, Answers] = {}
        self.known_store = state.moves.peer(source).store
        """The life of the other node's store that was known when it came."""
        self.on_taken: Callable[[], None] = lambda: None
        """Called when it has waited, and is given out."""

    @property
    def key(self) -> tuple[int, int, int]:
        """What it is when it is offered again."""
        return self.source, self.store, self.said.number

    def price(self, state: State) -> int:
        """What it may take to ask, in steps."""
        return sum(
            [
                state.space.audience(topic, state.now_ms).price_of(
                    len(run), sum([m.head_bytes for m in run])
                )
                for topic, run in self._runs
            ]
        )

    def ask(self, state: State, steps: int) -> int:
        """A slice; how many of the steps are left, 0 or less when it has to go on."""
        for number, (topic, run) in enumerate(self._runs):
            audience = state.space.audience(topic, state.now_ms)
            if not audience.choices or not state.is_global_topic(topic):
                continue
            answers = self._answers.get(number)
            if answers is None or answers.is_closed_without(audience):
                answers = self._answers[number] = Answers(run, 0, memoryview(b""), is_told=True)
            steps = answers.ask(audience, steps)
            if steps <= 0:
                return steps
        return steps

    def give_out(self, state: State) -> tuple[list[Record], list[Queue | Subscription]]:
        """To the subscribers here."""
        records: list[Record] = []
        touched: list[Queue | Subscription] = []
        first_seq = state.take_seqs(len(self.messages))
        for seq, message in enumerate(self.messages, first_seq):
            message.seq = seq
        for number, (topic, run) in enumerate(self._runs):
            answers = self._answers.get(number)
            known = NOTHING_KNOWN if answers is None else answers.known
            placements, places = give_out(state, topic, run, known)
            touched += places
            if placements:
                number_of = state.space.nearest_number(topic)
                records.append(record_of_run(state, number_of, run, placements))
        return records, touched


def _begin(state: State, one: Arriving, fx: Effects) -> None:
    """It is given out, at once or, with much to ask, behind those that are asked for already."""
    arriving = state.moves.arriving
    if any(other.key == one.key for other in arriving):
        return  # it is offered again, and under way
    if not arriving and one.price(state) <= LOOK_STEPS:
        _publish(state, one, fx)
        return
    arriving.append(one)
    if len(arriving) == 1:
        state.unfinished.append(lambda fx: _go_on(state, fx))


def _go_on(state: State, fx: Effects) -> bool:
    """A slice of what arrives; whether there is more."""
    arriving = state.moves.arriving
    one = arriving[0]
    if one.ask(state, LOOK_STEPS) > 0:
        arriving.popleft()
        if _is_wanted(state, one):
            fault = _why_not(state, one.said, None)
            if fault is None:
                _publish(state, one, fx)
                one.on_taken()
            else:
                _refuse(state, one.source, one.store, one.said, fault, fx)
    return bool(arriving)


def _is_wanted(state: State, one: Arriving) -> bool:
    """Whether it is still that store's, for this one, and has no answer."""
    peer = state.moves.peer(one.source)
    if one.said.store != state.moves.life or peer.store not in (one.store, one.known_store):
        return False
    is_over = one.said.number < peer.floor or one.said.number in peer.decided
    return peer.store != one.store or not is_over


def _publish(state: State, one: Arriving, fx: Effects) -> None:
    """Publications for the subscribers here, and that they are taken."""
    records, touched = one.give_out(state)
    content = Arrived(one.source, one.store, one.said.number, is_accepted=True, at_ms=state.now_ms)
    records.append(_decided(state, content, one.said))
    fx.records.append(group(0, 0, 0, state.now_ms, records))
    fx.out.append(ToNode(one.source, Answer(one.said.number, is_accepted=True)))
    for place in touched:
        dispatch(state, place, fx)


def _by_topic(messages: Sequence[StoredMessage]) -> Iterator[tuple[str, list[StoredMessage]]]:
    """Messages that one record can tell of, on one topic and kept in one way."""
    run: list[StoredMessage] = []
    topic = ""
    for message in messages:
        own = topic_of(message)
        is_alike = bool(run) and message.is_persistent == run[-1].is_persistent
        if run and not (is_alike and own == topic and follows(run[-1], message)):
            yield topic, run
            run = []
        topic = own
        run.append(message)
    if run:
        yield topic, run


def _decided(state: State, content: Arrived, said: Offer) -> Record:
    """The record of an answer, which holds from now on."""
    record = applied(state, arrived(content))
    state.moves.peer(content.source).forget_below(said.floor)
    return record


def _messages(
    state: State, offered: Sequence[Moving], payloads: Sequence[bytes]
) -> list[StoredMessage]:
    first_seq = state.take_seqs(len(offered))
    return [
        _message(state, one, first_seq + i, payload)
        for i, (one, payload) in enumerate(zip(offered, payloads, strict=True))
    ]


def _message(state: State, one: Moving, seq: int, payload: bytes) -> StoredMessage:
    """By this node's clock. One that expires by then before it was sent there was sent as long ago
    as it says."""
    timestamp_ms = one.timestamp_ms
    expires_at_ms = state.now_ms + one.left_ms if one.left_ms else 0
    if 0 < expires_at_ms <= timestamp_ms:
        timestamp_ms = max(1, state.now_ms - one.age_ms)
    return StoredMessage.of(
        one.id,
        seq,
        timestamp_ms,
        expires_at_ms,
        one.priority,
        one.kind,
        one.head_bytes,
        payload,
        one.is_persistent,
    )
