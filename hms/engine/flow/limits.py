"""Limits: whether there is room for messages, and what makes room (F-C11).

What is counted: FLOW_CONTROL and REJECT_NEWEST count all that a line holds until it is
acknowledged, so that a full destination stays within its limit whatever its consumers have
prefetched. The behaviours that remove count what waits: a message that is being worked on
cannot be removed, and must not make the newest one go in its place.
"""

from collections.abc import Sequence
from itertools import accumulate

from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.flow.room_wait import Key, Obstacle
from hms.engine.messages import OVERHEAD_BYTES
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.pending_list import PendingList
from hms.engine.session.session_objects import Producer, Work, size_of_batch
from hms.engine.state import State
from hms.errors.catalogue import (
    BatchTooLarge,
    ConsumerLimit,
    DestinationNotFound,
    FlowControlTimeout,
    InvalidDestinationState,
    MessageTooLarge,
    NodeFull,
    NodeQuota,
    ProducerLimit,
    QueueFull,
)
from hms.errors.tree import FieldValue, HmsError
from hms.wire.packed_messages import Row

Place = Queue | Subscription
BATCHES = 8
"""So many batches fit at least into a destination that has a limit."""


def held_count(line: PendingList) -> int:
    """All that a line has: waiting, delayed and out."""
    return line.waiting_count + line.delayed_count + line.out_count


def held_bytes(line: PendingList) -> int:
    """The heads and bodies of all that a line has."""
    return line.size_bytes - OVERHEAD_BYTES * held_count(line)


def obstacle_to(state: State, producer: Producer, rows: Sequence[Row]) -> Obstacle | None:
    """What keeps a batch from where it is to go; what no waiting cures is raised."""
    target = producer.destination
    _check_there(target)
    if target.control.is_sending_paused:
        return paused(target)
    count, size = len(rows), _bytes_of(rows)
    for place in _judged(state, producer):
        found = _obstacle_at(state, place, count, size)
        if found is not None:
            return found
    return _obstacle_of_node(state, count, size)


def check_rows(producer: Producer, rows: Sequence[Row]) -> None:
    """Refuse a message that is larger than its destination takes."""
    limit = producer.destination.control.limits.message_bytes_max
    if not limit:
        return
    largest = max([row.head_bytes + row.body_bytes for row in rows])
    if largest > limit:
        raise MessageTooLarge(size=largest, limit=limit)


def check_batch(producer: Producer, work: Work, rows: Sequence[Row]) -> None:
    """Refuse what a transaction cannot send to a queue, because it could never be committed."""
    queue, count, size = producer.destination, len(rows), _bytes_of(rows)
    if not isinstance(queue, Queue) or not queue.control.is_guarded:
        return
    mine = [batch for batch in work.sends if batch.producer.destination is queue]
    count += sum(batch.count for batch in mine)
    size += sum(map(size_of_batch, mine))
    _check_fits(queue, count, size)


def obstacle_to_commit(state: State, work: Work) -> Obstacle | None:
    """What keeps a transaction from being committed; what it acknowledges makes room."""
    demands: dict[int, tuple[Place, int, int]] = {}
    total_count = total_bytes = 0
    for producer, (count, size) in work.demands().items():
        target = producer.destination
        _check_there(target)
        if target.control.is_sending_paused:
            return paused(target)
        for place in _judged(state, producer):
            _, known_count, known_size = demands.get(id(place), (place, 0, 0))
            demands[id(place)] = place, known_count + count, known_size + size
        total_count += count
        total_bytes += size
    freed = _freed(work) if demands else {}
    for place, count, size in demands.values():
        found = _obstacle_at(state, place, count, size, freed.get(id(place), (0, 0)))
        if found is not None:
            return found
    return _obstacle_of_node(state, total_count, total_bytes)


def _freed(work: Work) -> dict[int, tuple[int, int]]:
    """How many messages, and bytes of them, it acknowledges, by their place."""
    freed = {}
    for received in work.received().all():
        count = len(received.messages)
        freed[id(received.place)] = count, received.size_bytes - OVERHEAD_BYTES * count
    return freed


def keys_of(work: Work) -> tuple[Key, ...]:
    """The destinations that a transaction sends to."""
    producers = dict.fromkeys([batch.producer for batch in work.sends])  # few, of 100,000 batches
    return tuple(dict.fromkeys(producer.key for producer in producers))


def _judged(state: State, producer: Producer) -> list[Place]:
    """The places that may be in the way; a topic's that refuse are judged with its delivery option
    (PD-02), which may let a publication pass them by."""
    is_queue = isinstance(producer.destination, Queue)
    return [
        place
        for place in _places_of(state, producer)
        if place.control.is_guarded and (is_queue or _lets_wait(place))
    ]


def _lets_wait(place: Place) -> bool:
    control = place.control
    return control.is_sending_paused or control.limits.behavior is LimitBehavior.FLOW_CONTROL


def _places_of(state: State, producer: Producer) -> list[Place]:
    target = producer.destination
    if isinstance(target, Queue):
        return [target]
    audience = state.space.audience(producer.topic, state.now_ms)
    return [subscription.queue or subscription for subscription in audience.subscriptions]


def _obstacle_at(
    state: State, place: Place, count: int, size: int, freed: tuple[int, int] = (0, 0)
) -> Obstacle | None:
    """What keeps so many messages from a place; BatchTooLarge."""
    limits, line = place.control.limits, place.line
    if place.control.is_sending_paused and isinstance(place, Queue):
        return paused(place)
    if limits.behavior.removes:
        return None
    _check_fits(place, count, size)
    held = held_count(line) - freed[0]
    if limits.messages_max and held + count > limits.messages_max:
        return _full(state, place, "max_messages", held_count(line), limits.messages_max)
    if limits.bytes_max and held_bytes(line) - freed[1] + size > limits.bytes_max:
        return _full(state, place, "max_bytes", held_bytes(line), limits.bytes_max)
    return None


def fitting(state: State, place: Place, sizes: Sequence[int]) -> int:
    """How many messages, of which there is one, with heads and bodies of these sizes a place has
    room for, from the first one on; the error of what is in the way of even that one."""
    target = place if isinstance(place, Queue) else place.topic
    _check_there(target)
    if target.control.is_sending_paused:
        raise paused(target).refusal
    found = _obstacle_at(state, place, 1, sizes[0]) or _obstacle_of_node(state, 1, sizes[0])
    if found is not None:
        raise found.refusal
    limits, count = place.control.limits, len(sizes)
    if limits.behavior.removes:
        return count
    if limits.messages_max:
        count = min(count, limits.messages_max - held_count(place.line))
    if limits.bytes_max:
        room = limits.bytes_max - held_bytes(place.line)
        count = min(count, sum(1 for end in accumulate(sizes) if end <= room))
    return count


def _check_fits(place: Place, count: int, size: int) -> None:
    limits = place.control.limits
    if limits.behavior.removes:
        return
    for key, wanted, limit in (
        ("max_messages", count, limits.messages_max),
        ("max_bytes", size, limits.bytes_max),
    ):
        if limit and wanted > limit:
            raise BatchTooLarge(
                kind=place.kind, destination=place.name, count=count, key=key, limit=limit
            )


def _full(state: State, place: Place, key: str, count: int, limit: int) -> Obstacle:
    fields: dict[str, FieldValue] = {
        "kind": place.kind,
        "destination": place.name,
        "count": count,
        "limit": limit,
        "key": key,
    }
    may_wait = place.control.limits.behavior is LimitBehavior.FLOW_CONTROL
    late = fields | {"oldest_s": _oldest_s(state, place)}
    return Obstacle(QueueFull(**fields), may_wait, FlowControlTimeout, late)


def _check_there(target: Queue | Topic) -> None:
    """A destination that was deleted takes nothing, from clients that still have it open either."""
    if target.control.is_gone:
        raise DestinationNotFound(kind=target.kind, destination=target.name)


def check_consumers(queue: Queue) -> None:
    """Refuse a consumer beyond the active ones and their backups (F-C13)."""
    limits = queue.control.limits
    count = len(queue.consumers) + len(queue.backups)
    most = limits.active_max + limits.backups_max
    if limits.active_max and count >= most:
        what = f"active and backup consumers of queue {queue.name}"
        raise ConsumerLimit(what=what, count=count, limit=most)


def check_selectors(queue: Queue, limit: int) -> None:
    """Refuse a consumer with a selector too many: what is sent to the queue asks each of them."""
    count = len(queue.candidates)
    if count >= limit:
        what = f"consumers with selectors of queue {queue.name} (max_selectors)"
        raise ConsumerLimit(what=what, count=count, limit=limit)


def paused(target: Queue | Topic) -> Obstacle:
    """A destination takes nothing now (F-C14)."""
    fields: dict[str, FieldValue] = {"kind": target.kind, "destination": target.name}
    late = InvalidDestinationState
    return Obstacle(late(**fields, waited_s=0.0), may_wait=True, late=late, fields=fields)


def _oldest_s(state: State, place: Place) -> float:
    oldest = min((m.timestamp_ms for m in place.line.firsts()), default=state.now_ms)
    return round((state.now_ms - oldest) / 1000, 1)


def check_producers(state: State, target: Queue | Topic) -> None:
    """Enforce `max_producers`."""
    here, everywhere = target.control.limits.producers_max, state.settings.limits.producers_max
    said: dict[str, FieldValue] = {"key": "max_producers"}
    if here and target.producers >= here:
        said |= {"kind": target.kind, "destination": target.name}
        raise ProducerLimit(**said, count=target.producers, limit=here)
    if everywhere:
        count = sum(len(connection.producers) for connection in state.connections.values())
        if count >= everywhere:
            raise ProducerLimit(
                **said, kind="the", destination="node", count=count, limit=everywhere
            )


def batch_max(state: State, producer: Producer) -> tuple[int, int] | None:
    """How many messages and bytes a client should put into a batch, which is taken whole: so few
    that room for some of them is of use. None: as it likes."""
    if not state.is_guarded:
        return None
    every = [place.control.limits for place in _places_of(state, producer)]
    every = [limits for limits in (*every, state.settings.limits) if not limits.behavior.removes]
    counts = [limits.messages_max for limits in every if limits.messages_max]
    sizes = [limits.bytes_max for limits in every if limits.bytes_max]
    if not (counts or sizes):
        return None
    at_once = 1 << 30
    return (
        max(1, min(counts, default=at_once) // BATCHES),
        max(1, min(sizes, default=at_once) // BATCHES),
    )


# the node's own


def _obstacle_of_node(state: State, count: int, size: int) -> Obstacle | None:
    settings = state.settings
    if not (settings.limits.messages_max or settings.limits.bytes_max):
        return None
    limits, places = settings.limits, state.every_place()
    for key, wanted, limit, used in (
        ("max_messages", count, limits.messages_max, sum(held_count(p.line) for p in places)),
        ("max_bytes", size, limits.bytes_max, sum(held_bytes(p.line) for p in places)),
    ):
        if limit and used + wanted > limit:
            fields: dict[str, FieldValue] = {"count": used, "limit": limit, "key": key}
            return _of_node(state, NodeQuota(**fields), fields)
    return None


def memory_obstacle(state: State, fault: NodeFull | NodeQuota) -> Obstacle | None:
    """The node's memory is full: None when sends do not wait for that."""
    fields = {"count": fault.fields.get("used")} | dict(fault.fields)
    found = _of_node(state, fault, fields)
    return found if found.may_wait else None


def _of_node(state: State, refusal: HmsError, fields: dict[str, FieldValue]) -> Obstacle:
    may_wait = state.settings.limits.behavior is LimitBehavior.FLOW_CONTROL
    said = fields | {"kind": "the", "destination": "node", "oldest_s": "?"}
    return Obstacle(refusal, may_wait, FlowControlTimeout, said)


def _bytes_of(rows: Sequence[Row]) -> int:
    return sum([row.head_bytes + row.body_bytes for row in rows])
