"""Retention: what a topic keeps for those who come later, and how they get it (PUBSUB RP-01 …).

Retained publications wait at a place of their own, which nobody consumes from; so recovery, quotas,
expiry and the moving of old segments treat them like any message. Their heads say their topics,
from which the tree of topics knows them again after a crash; of two for one topic, which only a
crash between two records can leave, the later one counts.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import msgspec

from hms.engine.effects import Effects
from hms.engine.messages import ReadyCopy, StoredMessage, message_id_text, sizes_of
from hms.engine.queue.destinations import Queue, Retained, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.queue.message_copies import copy_of, encoded_copies, record_of
from hms.engine.queue.pending_list import ids_of
from hms.engine.state import State
from hms.engine.topic import Pattern, TopicNode
from hms.engine.topic.retained import is_alive
from hms.engine.topic.spreading import give_now
from hms.errors.catalogue import NoRetainedMessage, NotRetained, TransactionTooLarge
from hms.records import Cause, Encoded, Record, RecordType, group, ranges
from hms.wire.packed_messages import NODE_PUBLISHER, NODE_RETAINED, NODE_TOPIC


def retain(
    state: State, node: TopicNode[StoredMessage], message: StoredMessage, fx: Effects
) -> tuple[Retained, list[Record]]:
    """A publication becomes its topic's; the records of what it replaces."""
    place = state.retained_place(fx)
    place.line.add([message])
    state.waiting_bytes += message.size_bytes
    replaced = state.space.retained.keep(node, message, state.now_ms)
    if replaced is None:
        return place, []
    place.line.remove(replaced)
    place.line.count("purged", 1)
    state.waiting_bytes -= replaced.size_bytes
    if not replaced.is_persistent:
        return place, []
    spans = ids_of([replaced])
    cause = Cause.REPLACED
    return place, [ranges(RecordType.DISCARDED, place.number, state.now_ms, spans, cause)]


def retainable(
    state: State, messages: Sequence[StoredMessage], left: Counter[str]
) -> list[StoredMessage]:
    """Of imported messages those that can be retained, one for each topic; left: why others
    cannot."""
    going: dict[str, StoredMessage] = {}
    size = 0
    for message in messages:
        topic = message.head().node.get(NODE_TOPIC)
        if not isinstance(topic, str) or topic in going:
            left["no_topic"] += 1
            continue
        try:
            state.space.retained.check(topic, size + message.size_bytes, len(going))
        except NotRetained:
            left["full"] += 1
            continue
        going[topic] = message
        size += message.size_bytes
    return list(going.values())


def topics_of(messages: Sequence[StoredMessage]) -> list[str]:
    """The topics that they say, in their order."""
    return [str(message.head().node[NODE_TOPIC]) for message in messages]


def keep_imported(state: State, place: Retained, topics: Sequence[str]) -> None:
    """What came last to the place is retained on these topics, which had nothing."""
    came = islice(place.line.arrivals(state.next_seq, (), is_newest_first=True), len(topics))
    for message, topic in zip(came, reversed(topics), strict=True):
        node = state.space.tree.node(topic, state.now_ms, is_known=True)
        state.space.retained.keep(node, message, state.now_ms)


def recover_retained(state: State) -> None:
    """After the log was read: the tree knows what is retained."""
    place = state.space.place
    if place is None:
        return
    for message in sorted(place.line.everything(), key=lambda m: m.seq):
        topic = message.head().node.get(NODE_TOPIC)
        assert isinstance(topic, str), f"retained message {message.id:012x} does not say its topic"
        node = state.space.tree.node(topic, state.now_ms, is_known=True)
        replaced = state.space.retained.keep(node, message, state.now_ms)
        if replaced is not None:
            place.line.remove(replaced)
            state.waiting_bytes -= replaced.size_bytes


def clear(state: State, pattern: Pattern, cause: Cause, fx: Effects) -> int:
    """Drop what is retained on the topics that a pattern matches; how many (TT-10, RP-08)."""
    found = state.space.retained.matching(pattern, 0)
    return take_away(state, [topic for topic, _ in found], cause, fx)


def take_away(state: State, topics: list[str], cause: Cause, fx: Effects) -> int:
    """Nothing is retained on these topics any more; how many of them had something."""
    place = state.space.place
    dropped = [state.space.retained.drop(topic, state.now_ms) for topic in topics]
    messages = [message for message in dropped if message is not None]
    if place is not None:
        for message in messages:
            place.line.remove(message)
        discard(state, place, messages, cause, fx)
    return len(messages)


def forget_expired(state: State, expired: list[StoredMessage]) -> None:
    """These have left the place of retained publications: their time was over."""
    for message in expired:
        topic = message.head().node.get(NODE_TOPIC)
        node = state.space.tree.find(topic) if isinstance(topic, str) else None
        if node is not None and node.retained is message and isinstance(topic, str):
            state.space.retained.drop(topic, state.now_ms)


def publisher_mark(client_uid: int) -> str:
    """What names a publisher to the node again, and tells nobody its uid."""
    return hashlib.blake2b(client_uid.to_bytes(8, "big"), digest_size=8).hexdigest()


def wanted_by(
    state: State, subscription: Subscription, client_uid: int | None = None
) -> list[StoredMessage]:
    """What is retained that a subscription would take; checked to fit, before anything changes."""
    found = state.space.retained.matching(subscription.pattern, state.now_ms)
    allowed = state.space.is_allowed
    messages = [message for topic, message in found if allowed(subscription, topic)]
    messages = chosen_by(state, subscription, messages, client_uid)
    check_fits(state, messages)
    return messages


def chosen_by(
    state: State,
    subscription: Subscription,
    messages: list[StoredMessage],
    client_uid: int | None,
) -> list[StoredMessage]:
    """Those of the retained messages that a subscription of this client wants now."""
    messages = [m for m in messages if is_alive(m, state.now_ms)]
    if subscription.is_no_local and client_uid is not None:  # F-E7
        own = publisher_mark(client_uid)
        messages = [m for m in messages if m.head().node.get(NODE_PUBLISHER) != own]
    flags = subscription.chooses(messages)
    if flags is not None:
        messages = [m for m, is_chosen in zip(messages, flags, strict=True) if is_chosen]
    return messages


def check_fits(state: State, messages: list[StoredMessage]) -> None:
    """Refuse more than there is room for."""
    if not messages:
        return  # a full node takes subscribers nevertheless: they empty it
    size = sizes_of(messages)
    state.check_memory(size)
    limit = state.settings.transaction_bytes_max
    if size > limit:
        raise TransactionTooLarge(size=size, limit=limit)


def deliver_retained(
    state: State,
    subscription: Subscription,
    messages: list[StoredMessage],
    fx: Effects,
    *,
    is_new: bool,
) -> list[Record]:
    """Give a subscription copies that say that they are no news (RP-05); nobody's copy is used up
    (RP-09). The records are to become effective together. Only one that is new cannot have had the
    message before: its copy keeps the id."""
    place = subscription.queue or subscription
    keeps_id = is_new and subscription.queue is None
    records: list[Record] = []
    give_now(state, place)
    for message in messages:
        id_ = message.id if keeps_id else state.take_ids(1, fx)
        copy = copy_for(state, subscription, message, id_)
        place.line.add([copy])
        state.waiting_bytes += copy.size_bytes
        if subscription.queue is not None:
            subscription.queue.offer([copy])
        if copy.is_persistent and place.is_durable:
            records.append(record_of(state, place, [copy]))
    return records


def deliver_copies(
    state: State, place: Queue | Subscription, copies: Sequence[ReadyCopy]
) -> list[Encoded]:
    """The same with copies that were made before."""
    messages = [copy.message for copy in copies]
    give_now(state, place)
    place.line.add(messages)
    state.waiting_bytes += sizes_of(messages)
    if isinstance(place, Queue):
        place.offer(messages)
    encoded = encoded_copies(state, place.number, copies)
    return [] if encoded is None else [encoded]


def copy_for(
    state: State, subscription: Subscription, message: StoredMessage, id_: int
) -> StoredMessage:
    """A copy of what is retained, which says that it is no news (RP-05)."""
    head = message.head()
    node = dict(head.node) | {NODE_RETAINED: True}
    if id_ != message.id:
        node["$OriginalMessageID"] = message_id_text(message.id)
    own = subscription.definition.correlation_id or head.correlation_id
    head = msgspec.structs.replace(head, node=node, correlation_id=own)
    return copy_of(message, id_, state.take_seqs(1), head, is_persistent=message.is_persistent)


def request_retained(
    state: State,
    subscription: Subscription,
    fx: Effects,
    found: Sequence[ReadyCopy] | None = None,
) -> int:
    """A subscriber asks for what is retained, again or for the first time (SU-19, SU-22). found:
    copies of it that were made before."""
    records: Sequence[Record | Encoded]
    if found is not None:
        count = check_found(state, found)
        records = deliver_copies(state, subscription.queue or subscription, found)
    else:
        messages = wanted_by(state, subscription, asking_uid(subscription))
        count = len(messages)
        records = deliver_retained(state, subscription, messages, fx, is_new=False)
    if not count:
        raise NoRetainedMessage(topic=subscription.pattern.text)
    if records:
        fx.records.append(group(0, 0, 0, state.now_ms, records))
    return count


def asking_uid(subscription: Subscription) -> int | None:
    """The client whose own publications one that is asked for may leave out."""
    uids = [consumer.connection.uid for consumer in subscription.consumers]
    return uids[0] if len(uids) == 1 else None


def check_found(state: State, found: Sequence[ReadyCopy]) -> int:
    """As check_fits(), of copies; how many there are."""
    check_fits(state, [copy.message for copy in found])
    return len(found)
