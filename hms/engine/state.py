"""All that the engine knows, and how it is found."""

import heapq
from typing import NamedTuple

from field_buffer.catalogue import (
    DestinationKindMismatch,
    DestinationNotFound,
    HandleUnknown,
    NodeFull,
)
from hms.engine.blocks import Blocks
from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage
from hms.engine.numbering import Memories, MessageIds
from hms.engine.places import Queue, Retained, Subscription, Topic
from hms.engine.sessions import Connection, Consumer, Producer, Session
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings, EngineSettings
from hms.engine.space import BASE_TOPIC, RETAINED_PLACE, TopicSpace
from hms.engine.topics import Delivery
from hms.records import Definition, defined, reserved


class InLimbo(NamedTuple):
    """A message that has left its line and becomes a dead letter once its body is there."""

    place: Queue | Subscription
    message: StoredMessage
    attempts: int
    reason: str


class State:
    """Connections, places and numbers. now_ms never runs backwards."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.next_seq = 1
        self.next_number = 1
        self.ids = MessageIds(settings.node_index)
        self.memories = Memories(settings.producers_remembered)
        self.blocks = Blocks()
        self.connections: dict[int, Connection] = {}
        self.queues: dict[str, Queue] = {}
        self.space = TopicSpace(settings, self.queues)
        self.topics = self.space.topics
        self.places: dict[int, Queue | Subscription] = {}
        """What the log knows by number; subscriptions that are not durable have none."""
        self.watchers: dict[tuple[str, str], dict[int, None]] = {}
        """Connections that are told of the consumers of a destination, by its kind and name."""
        self.sessions_open = 0
        self.definitions_bytes = 0
        self.waiting_bytes = 0
        self.limbo: list[InLimbo] = []
        """Messages that wait for their bodies; whoever reads those takes them away."""
        self._wakes = 0
        self.due: list[tuple[int, int, Queue | Subscription]] = []
        """When a place has delayed messages to release, soonest first."""
        self.configured = {(d.kind, d.name): d for d in settings.destinations}

    def wake_at(self, due_ms: int, place: Queue | Subscription) -> None:
        """Look at a place again at that time."""
        self._wakes += 1  # the order of the wishes, not of addresses, decides among equals (P3)
        heapq.heappush(self.due, (due_ms, self._wakes, place))

    # time and numbers

    def at(self, now_ms: int) -> int:
        """Take over the time of a command."""
        self.now_ms = max(self.now_ms, now_ms)
        return self.now_ms

    def take_ids(self, count: int, fx: Effects) -> int:
        """The first of count new message ids."""
        below = self.ids.reserve(count)
        if below is not None:
            fx.records.append(reserved(below))
        return self.ids.take(count)

    def take_seqs(self, count: int) -> int:
        """The first of count places in the order of arrival."""
        first = self.next_seq
        self.next_seq += count
        return first

    def take_number(self) -> int:
        """A number for a new place."""
        number = self.next_number
        self.next_number += 1
        return number

    @property
    def resident_bytes(self) -> int:
        """What waiting messages take in memory."""
        return self.waiting_bytes - self.blocks.paged_bytes

    def check_memory(self, size: int) -> None:
        """Refuse what would not fit."""
        limit = self.settings.memory_bytes_max
        if self.resident_bytes + size > limit:
            raise NodeFull(used=self.resident_bytes, limit=limit, key="max_memory_bytes")

    # places

    def destination(self, kind: str, name: str) -> Queue | Topic:
        """A queue or topic by kind and name."""
        table: dict[str, Queue] | dict[str, Topic]
        table, other = (self.queues, self.topics) if kind == "queue" else (self.topics, self.queues)
        found = table.get(name)
        if found is not None:
            return found
        if name in other:
            actual = "topic" if kind == "queue" else "queue"
            raise DestinationKindMismatch(destination=name, kind=actual, wanted=kind)
        raise DestinationNotFound(kind=kind, destination=name)

    def queue(self, name: str) -> Queue:
        """A queue by name."""
        found = self.destination("queue", name)
        assert isinstance(found, Queue)
        return found

    def define(self, definition: Definition) -> None:
        """A place begins to exist, from the configuration or from the log."""
        self.next_number = max(self.next_number, definition.number + 1)
        self.definitions_bytes += definition.size_bytes
        if definition.kind == "queue":
            made = self._make_queue(definition)
            self.queues[made.name] = self.places[made.number] = made
        elif definition.kind == "topic":
            self.space.define(self._make_topic(definition), self.now_ms)
        elif definition.kind == "retained":
            self.space.place = self.places[definition.number] = Retained(
                definition.number, definition.name
            )
        else:
            owner = self.space.numbered(definition.topic)
            queue = self._queue_numbered(definition.queue)
            subscription = Subscription(owner, definition, is_durable=True, queue=queue)
            self.space.add(subscription, self.now_ms)
            self.places[definition.number] = subscription

    def retained_place(self, fx: Effects) -> Retained:
        """Where retained publications stay; new when there was none before."""
        if self.space.place is None:
            definition = Definition(self.take_number(), "retained", RETAINED_PLACE)
            self.define(definition)
            fx.records.append(defined(definition))
        assert self.space.place is not None
        return self.space.place

    def undefine(self, subscription: Subscription) -> None:
        """A durable subscription ends."""
        self.space.remove(subscription, self.now_ms)
        del self.places[subscription.number]
        self.definitions_bytes -= subscription.definition.size_bytes

    def definitions(self) -> list[Definition]:
        """Every place that the log speaks of, topics and queues before the subscriptions."""
        topics = [topic.definition for topic in self.topics.values()]
        places = [place.definition for place in self.places.values()]
        last = [d for d in places if d.kind == "subscription"]
        return [*topics, *(d for d in places if d.kind != "subscription"), *last]

    def redefine(self, subscription: Subscription, definition: Definition) -> None:
        """What a durable subscription chooses, and where that goes, from now on."""
        subscription.redefine(definition)
        subscription.queue = self._queue_numbered(definition.queue)

    def _queue_numbered(self, number: int) -> Queue | None:
        found = self.places.get(number) if number else None
        return found if isinstance(found, Queue) else None

    def _make_topic(self, definition: Definition) -> Topic:
        configured = self.configured.get(("topic", definition.name))
        if definition.name == BASE_TOPIC:
            self.space.base.number = definition.number
            return self.space.base
        limit = self._limit(configured)
        topic = Topic(definition.number, definition.name, limit, definition.topic_string)
        self._configure(topic, configured)
        if configured is not None:
            topic.persistent_delivery = _delivery(configured.persistent_delivery)
            topic.non_persistent_delivery = _delivery(configured.non_persistent_delivery)
        return topic

    def _make_queue(self, definition: Definition) -> Queue:
        configured = self.configured.get(("queue", definition.name))
        limit = self._limit(configured)
        queue = Queue(definition.number, definition.name, limit, 0)
        if definition.name == DEAD_LETTER_QUEUE:
            queue.redelivery_limit = -1  # the end of the way
        if configured is not None:
            queue.messages_max = configured.messages_max
        self._configure(queue, configured)
        return queue

    @staticmethod
    def _configure(place: Queue | Topic, configured: DestinationSettings | None) -> None:
        if configured is not None:
            place.dead_letter = configured.dead_letter
            place.redelivery_delay_ms = configured.redelivery_delay_ms
            place.expired_to = configured.expired_to

    def _limit(self, configured: DestinationSettings | None) -> int:
        if configured is None or configured.redelivery_limit is None:
            return self.settings.redelivery_limit
        return configured.redelivery_limit

    # handles

    def connection(self, number: int) -> Connection:
        """A connection by the node's number."""
        return self.connections[number]

    @staticmethod
    def session(connection: Connection, handle: int) -> Session:
        """An open session."""
        found = connection.sessions.get(handle)
        if found is None:
            raise HandleUnknown(what="session", handle=handle)
        return found

    @staticmethod
    def producer(connection: Connection, handle: int) -> Producer:
        """An open producer."""
        found = connection.producers.get(handle)
        if found is None:
            raise HandleUnknown(what="producer", handle=handle)
        return found

    @staticmethod
    def consumer(connection: Connection, handle: int) -> Consumer:
        """An open consumer."""
        found = connection.consumers.get(handle)
        if found is None:
            raise HandleUnknown(what="consumer", handle=handle)
        return found


def _delivery(word: str) -> Delivery | None:
    return Delivery(word) if word else None
