"""All that the engine knows, and how it is found."""

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hms.engine.admin.counters import Counters, Totals
from hms.engine.admin.destination_attributes import configure
from hms.engine.cluster.moves import Moves
from hms.engine.effects import Effects
from hms.engine.flow.blocked_sends import BlockedSends
from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.flow.destination_control import NO_LIMITS, Lifetime
from hms.engine.flow.shares import NO_OWNER, Owner, Shares, Taken
from hms.engine.groups.candidates import Candidates
from hms.engine.groups.scan_slices import LOOK_STEPS, ScanSlices
from hms.engine.log.audit_chain import AuditChain
from hms.engine.log.live_index import LiveIndex
from hms.engine.messages import StoredMessage
from hms.engine.queue.browsed_places import BrowsedPlaces
from hms.engine.queue.destinations import (
    RELAY_PREFIX,
    SCHEDULED,
    Queue,
    Retained,
    Scheduled,
    Subscription,
    Topic,
    place_bytes,
)
from hms.engine.queue.file_references import Files
from hms.engine.queue.settled_rest import SettledRest
from hms.engine.schedule.schedules import Schedules
from hms.engine.session.deduplication import RESERVE_IDS, DeduplicationState, MessageIds
from hms.engine.session.session_objects import Connection, Consumer, Producer, Session, Work
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings, EngineSettings
from hms.engine.topic import Delivery
from hms.engine.topic.spreads import Spreads
from hms.engine.topic.topic_space import BASE_TOPIC, RETAINED_PLACE, TopicSpace
from hms.engine.xa.branch import Branches
from hms.engine.xa.decisions import Decisions
from hms.errors.catalogue import (
    DestinationKindMismatch,
    DestinationNotFound,
    HandleUnknown,
    NodeFull,
)
from hms.records import Definition, Identity, Terms, defined, reserved

SCHEDULED_PLACE = "HMS.SCHEDULES"


class AwaitingPageIn(NamedTuple):
    """A message that has left its line and becomes a dead letter once its body is there, or the ids
    of where it goes are known; with a relocation one that is out meanwhile, and then goes where an
    operator wants it."""

    place: Queue | Subscription
    message: StoredMessage
    attempts: int
    reason: str
    text: str = ""
    relocation: "Relocation | None" = None
    operation: int = 0
    """The number in the audit of the order that it is of; 0: of none."""


class Relocation(NamedTuple):
    """What an operator does to a message. to: the number of the queue that gets it, or of its own
    place; is_return: a dead letter is none any more; takes_id: the id that it says; is_forward: it
    goes on to another node; priority, expires_at_ms and due_ms None: as it has them; operation: the
    number in the audit of the order, of what is done behind it."""

    to: int
    is_copy: bool = False
    is_count_reset: bool = False
    is_return: bool = False
    priority: int | None = None
    expires_at_ms: int | None = None
    due_ms: int | None = None
    takes_id: bool = False
    is_forward: bool = False
    operation: int = 0


class Outgoing:
    """Where messages are to go out yet.

    at_end: at the end of a command of many parts, None: at once; rest: more could go out there than
    one command may deliver, ticks go on with it; effort: about how many messages the command at
    hand has touched; is_due: ticks go on with what is due; is_limited: bytes in flight of a user
    have had a limit; held: where more could go out but for such limits, in turn; is_paused: nothing
    goes out, as the node is to move to another machine.
    """

    __slots__ = ("at_end", "effort", "held", "is_due", "is_limited", "is_paused", "rest")

    def __init__(self) -> None:
        self.at_end: dict[int, Queue | Subscription] | None = None
        self.rest: dict[int, Queue | Subscription] = {}
        self.effort = 0
        self.is_due = self.is_limited = self.is_paused = False
        self.held: dict[BytesInFlight, dict[int, Queue | Subscription]] = {}

    def may_go_on(self) -> bool:
        """Whether ticks have more to deliver."""
        return bool(self.rest) or any(limit.room_bytes > 0 for limit in self.held)


class State:
    """Connections, places and numbers. now_ms never runs backwards."""

    last_event = ""
    """What the node said of itself last, in the log: booted or stopped; "" nothing that is there.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.next_seq = self.next_number = 1
        self.ids = MessageIds(settings.node_index)
        self.memories = DeduplicationState(settings.producers_remembered)
        self.blocks = LiveIndex()
        self.order_clock = 0
        """The last time that a message of a global order was stamped with."""
        self.branches = Branches(settings.producers_remembered)
        self.decisions = Decisions()
        self.moves = Moves()
        self.identity, self.terms = Identity(), Terms()
        self.connections: dict[int, Connection] = {}
        self.queues: dict[str, Queue] = {}
        self.looking = ScanSlices[Candidates]()
        self.shares = Shares(settings)
        self.space = TopicSpace(settings, self.queues, self.shares)
        self.topics = self.space.topics
        self.places: dict[int, Queue | Subscription] = {}
        """What the log knows by number; subscriptions that are not durable have none."""
        self.watchers: dict[tuple[str, str], dict[int, None]] = {}
        """Connections that are notified of the consumers of a destination, by its kind and name."""
        # Of temporary destinations that are gone: no counter of all of them falls.
        self.files, self.audit, self.spreads, self.temporaries_gone = (
            Files(),
            AuditChain(),
            Spreads(),
            {kind: Counters() for kind in ("queue", "topic")},
        )
        self.scheduled: Scheduled | None = None
        self.schedules: Schedules | None = None
        self.sessions_open = self.waiting_bytes = self.temporaries_made = 0
        self.operator = self.operation = self.open_work_bytes = 0
        """The connection whose operation is done; which number it has in the audit, 0 for none;
        what open transactions held when it was counted (open_transactions.py)."""
        self.temporaries: dict[str, Queue] = {}
        """Queues that connections made for themselves (F-C6); the log knows nothing of them."""
        self.blocked = BlockedSends(settings.blocked_bytes_max, settings.blocked_ms_max)
        self.is_guarded = self.has_own_limits = settings.limits != NO_LIMITS
        """Whether sends have to look for limits and pauses: the node has limits of its own, or some
        destination has one."""
        self._guarded, self._has_gone = set[Queue | Topic](), False
        self.paged_like = b"", 0
        """Head and length of the message whose body left memory last."""
        self.awaiting_page_in: list[AwaitingPageIn] = []
        """Messages that wait for their bodies; their reader takes them away."""
        # those that wait until a queue knows the ids of what it has: queue/waiting_letters.py
        self.outgoing, self.awaiting_ids = Outgoing(), dict[Queue, deque[AwaitingPageIn]]()
        self.unfinished: deque[Callable[[Effects], bool]] = deque()
        """What ticks go on with: each does a slice, and tells whether there is more."""
        self.returning: list[Work] = []  # of transactions that have ended, given back in slices
        self.endings: dict[int, Queue | Subscription] = {}  # see queue/purge_slices.py
        self.browsed, self.settled_rest, self._wakes = BrowsedPlaces(), SettledRest(), 0
        self.due: list[tuple[int, int, Queue | Subscription]] = []
        """When a place has delayed messages to release, soonest first."""
        cluster = settings.cluster
        self.global_topics = frozenset(() if cluster is None else cluster.topics)
        self.global_queues = {} if cluster is None else {q.name: q for q in cluster.queues}
        self.configured = {(d.kind, d.name): d for d in settings.destinations}

    def go_on(self, fx: Effects) -> None:
        """A slice of what is not finished; each in its turn."""
        if self.unfinished:
            one = self.unfinished.popleft()
            if one(fx):
                self.unfinished.append(one)

    def wake_at(self, due_ms: int, place: Queue | Subscription) -> None:
        """Look at a place again at that time."""
        self._wakes += 1  # the order of the wishes, not of addresses, decides among equals (P3)
        heapq.heappush(self.due, (due_ms, self._wakes, place))

    def is_global(self, queue: str) -> bool:
        """Whether a queue is one queue with those of its name at other nodes (F-J4)."""
        return queue in self.global_queues

    def is_global_topic(self, topic: str) -> bool:
        """Whether what is published on a topic goes to subscribers at other nodes too (F-J3)."""
        if not self.global_topics:
            return False
        nearest = self.space.objects.nearest(topic)
        return nearest is not None and nearest.name in self.global_topics

    # time and numbers

    def at(self, now_ms: int) -> int:
        """Take over the time of a command, which begins."""
        self.outgoing.effort = self.looking.asked = self.spreads.given = 0
        if now_ms > self.now_ms:
            self.now_ms = now_ms
            self.looking.steps_left = LOOK_STEPS
        return self.now_ms

    def take_ids(self, count: int, fx: Effects) -> int:
        """The first of count new message ids."""
        ids = self.ids
        first = ids.next_id
        if first + count > ids.reserved_below - RESERVE_IDS // 2:
            below = ids.reserve(count)
            if below is not None:
                fx.records.append(reserved(below))
        ids.next_id = first + count
        return first

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
        """What waiting messages, those of prepared branches and what clients have open take in
        memory."""
        used = self.waiting_bytes - self.blocks.paged_bytes + self.branches.held_bytes
        return used + self.shares.quota_bytes

    @property
    def held_bytes(self) -> int:
        """The same, with open transactions, decisions and what waits for room."""
        others = self.open_work_bytes + self.decisions.size_bytes + self.blocked.size_bytes
        return self.resident_bytes + others

    @property
    def is_crowded(self) -> bool:
        """Whether bodies should leave memory."""
        used = self.waiting_bytes - self.blocks.paged_bytes + self.branches.held_bytes
        used += self.shares.quota_bytes
        return used > self.settings.paging_share * self.settings.memory_bytes_max

    def check_memory(self, size: int) -> None:
        """Refuse what would not fit."""
        limit = self.settings.memory_bytes_max
        if self.resident_bytes + size > limit:
            raise NodeFull(used=self.resident_bytes, limit=limit, key="max_memory_bytes")

    def check_open(self, size: int) -> None:
        """OpenMemoryLimit when so many bytes are too many for what a client opens."""
        self.space.tree.make_room(size)
        self.shares.check_memory(size)

    # places

    def destinations(self) -> list[Queue | Topic]:
        """All queues and topic objects."""
        return [*self.queues.values(), *self.topics.values()]

    def every_place(self) -> list[Queue | Subscription]:
        """All places where messages wait, those too that the log knows nothing of."""
        passing = [s for s in self.space.subscriptions.values() if not s.is_durable]
        return [*self.places.values(), *passing, *self.temporaries.values()]

    def destination(self, kind: str, name: str) -> Queue | Topic:
        """A queue or topic by kind and name."""
        table: dict[str, Queue] | dict[str, Topic]
        table, other = (self.queues, self.topics) if kind == "queue" else (self.topics, self.queues)
        found = table.get(name)
        if found is not None and not name.startswith(RELAY_PREFIX):
            return found
        if name in other:
            actual = "topic" if kind == "queue" else "queue"
            raise DestinationKindMismatch(destination=name, kind=actual, wanted=kind)
        raise DestinationNotFound(kind=kind, destination=name)

    def queue(self, name: str) -> Queue:
        """A queue by name, for a client that begins to use it."""
        found = self.destination("queue", name)
        assert isinstance(found, Queue)
        if found.control.is_gone:
            raise DestinationNotFound(kind="queue", destination=name)
        return found

    def define(self, definition: Definition) -> None:
        """A place begins to exist, from the configuration or from the log."""
        self.next_number = max(self.next_number, definition.number + 1)
        self._take(definition)
        if definition.kind == "queue":
            made = self._make_queue(definition)
            self.queues[made.name] = made
            made.count_in(self.space.totals[made.is_durable])
            if made.number:
                self.places[made.number] = made
            self.guard(made)
        elif definition.kind == "topic":
            topic, before = self._make_topic(definition), self.topics.get(definition.name)
            if before is not None and before is not self.space.base:
                self.undefine_destination(before)  # the log may tell of its heir before
            self.space.define(topic, self.now_ms)
            self.guard(topic)
        elif definition.kind == SCHEDULED:
            self.scheduled = self.places[definition.number] = Scheduled(
                definition.number, definition.name
            )
        elif definition.kind == "retained":
            self.space.place = self.places[definition.number] = Retained(
                definition.number, definition.name
            )
        else:
            owner = self.space.numbered(definition.topic)
            queue = self._queue_numbered(definition.queue)
            subscription = Subscription(owner, definition, queue=queue)
            self.space.add(subscription, self.now_ms)
            self.places[definition.number] = subscription

    def guard(self, target: Queue | Topic) -> None:
        """A destination has a limit or a pause now, or is gone; or has none any more. One that is
        gone counts for ever: somebody may have it open, or send to it in a transaction."""
        self._has_gone = self._has_gone or target.control.is_gone
        if target.control.is_guarded and not target.control.is_gone:
            self._guarded.add(target)
        else:
            self._guarded.discard(target)
        self.is_guarded = (
            self.has_own_limits or self._has_gone or bool(self._guarded or self.blocked.lines)
        )

    def scheduled_place(self, fx: Effects) -> Scheduled:
        """Where recurring messages wait for their next time; new when there was none before."""
        if self.scheduled is None:
            definition = Definition(self.take_number(), SCHEDULED, SCHEDULED_PLACE)
            self.define(definition)
            fx.records.append(defined(definition))
        assert self.scheduled is not None
        return self.scheduled

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
        self.shares.end(subscription.number, subscription.name)

    def undefine_destination(self, target: Queue | Topic) -> None:
        """A queue or topic is gone; nothing waits in it and nobody receives from it."""
        if target.control.life is Lifetime.TEMPORARY:
            gone = self.temporaries_gone[target.kind]
            gone.add(Counters(target.sent) if isinstance(target, Topic) else target.line.counters)
        target.control.end()
        self.guard(target)
        self.shares.end(target.number, target.name)
        if isinstance(target, Topic):
            self.space.undefine(target, self.now_ms)
        else:
            target.count_in(Totals())
            if self.queues.get(target.name) is target:  # the log may tell of its heir before
                del self.queues[target.name]
            self.places.pop(target.number, None)

    def definitions(self) -> list[Definition]:
        """Every place that the log speaks of, topics and queues before the subscriptions."""
        every = self.topics.values()
        logged = (t for t in every if t.number or t.control.life is not Lifetime.TEMPORARY)
        topics = [t.definition for t in logged]
        places = [place.definition for place in self.places.values()]
        last = [d for d in places if d.kind == "subscription"]
        return [*topics, *(d for d in places if d.kind != "subscription"), *last]

    def redefine(self, subscription: Subscription, definition: Definition) -> None:
        """What a durable subscription chooses, and where that goes, from now on."""
        self._take_anew(definition)
        subscription.queue = self._queue_numbered(definition.queue)
        subscription.look()
        self.space.redefined(subscription, definition)

    def _queue_numbered(self, number: int) -> Queue | None:
        found = self.places.get(number) if number else None
        return found if isinstance(found, Queue) else None

    # shares

    def _take(self, definition: Definition, owner: Owner = NO_OWNER) -> None:
        is_logged = definition.number > 0 or definition.made != Lifetime.TEMPORARY
        is_place = definition.kind in ("queue", "topic")  # a subscription's are its own
        taken = Taken(
            owner or self.shares.acting or definition.client_id or NO_OWNER,
            definition.size_bytes if is_logged else 0,
            place_bytes(definition.name + definition.topic_string) if is_place else 0,
        )
        self.shares.begin(definition.number, definition.name, taken)

    def _take_anew(self, definition: Definition) -> None:
        owner = self.shares.end(definition.number, definition.name)
        self._take(definition, owner)

    def _make_topic(self, definition: Definition) -> Topic:
        configured = self.configured.get(("topic", definition.name))
        if definition.name == BASE_TOPIC:
            self.space.base.number = definition.number
            self._configure(self.space.base, definition)
            return self.space.base
        topic = Topic(definition.number, definition.name, 0, definition.topic_string)
        self._configure(topic, definition)
        if configured is not None:
            topic.persistent_delivery = _delivery(configured.persistent_delivery)
            topic.non_persistent_delivery = _delivery(configured.non_persistent_delivery)
        return topic

    def _make_queue(self, definition: Definition) -> Queue:
        configured = self.configured.get(("queue", definition.name))
        queue = Queue(definition.number, definition.name, 0, 0, self.looking)
        if definition.name != DEAD_LETTER_QUEUE:
            queue.keep_order(configured, self.shares.take_groups)
        self._configure(queue, definition)
        return queue

    def reconfigure(self, target: Queue | Topic, definition: Definition) -> None:
        """What was set on a destination while the node ran holds from now on."""
        self._take_anew(definition)
        self._configure(target, definition)
        self.guard(target)
        for one in target.subscriptions if isinstance(target, Topic) else ():
            one.take_over()

    def _configure(self, target: Queue | Topic, definition: Definition) -> None:
        configured = self.configured.get((target.kind, target.name))
        is_last = target.kind == "queue" and target.name == DEAD_LETTER_QUEUE  # the end of the way
        limit = -1 if is_last else self._limit(configured)
        configure(target, configured, definition, limit, self.settings)

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
