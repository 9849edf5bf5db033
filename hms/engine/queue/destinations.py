"""Queues, topics and subscriptions: the places a message is sent to and waits at."""

from collections import Counter
from collections.abc import Callable

from hms.engine.admin.counters import Totals
from hms.engine.effects import Effects
from hms.engine.flow.destination_control import Control, Limits
from hms.engine.flow.shares import NO_OWNER, Owner
from hms.engine.groups.assembly import GroupAssembly
from hms.engine.groups.candidates import Candidates
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.groups.message_sort import Entry, MessageSort
from hms.engine.groups.scan_slices import ScanSlices
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConnectionView, ConsumerView
from hms.engine.queue.pending_list import PendingList
from hms.engine.selector import KEPT_LIMITS, Selector
from hms.engine.selector.selector_fields import selector_view
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings
from hms.engine.text_sizes import text_bytes
from hms.engine.topic import NO_LIMITS, Delivery, Pattern, Scheme, Wants
from hms.records import Definition, Placement

PROXY_PREFIX, RELAY_PREFIX = "HMS.FOR.", "HMS.TO."
"""What the names of subscriptions and queues that stand for other nodes begin with."""
SCHEDULED = "scheduled"
"""The kind of the place where recurring messages wait for their next time."""
NOBODY = -1
"""No client has that number; 0 is the node itself."""
PLACE_BYTES = 4000


def place_bytes(name: str) -> int:
    """What a destination or subscription of that name takes in memory at most, beside messages."""
    return PLACE_BYTES + 2 * text_bytes(name)


class Place:
    """A line of messages and its consumers: what a queue and a subscription have in common."""

    kind: str

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        """The name operators see."""
        self.is_durable = number > 0
        """Its persistent messages, deliveries and acknowledgements are in the log."""
        self.line = PendingList(number, name)
        self.consumers: list[ConsumerView] = []
        self.priorities: tuple[int, ...] = ()
        """Of its consumers, each once, the highest first."""
        self._priority_counts: Counter[int] = Counter()
        self.left: list[ConsumerView] = []
        """Closed ones whose applications still have messages; see departures.py."""
        self.control = Control()
        self.redelivery_delay_ms = 0
        self.dead_letter = DEAD_LETTER_QUEUE
        self.expired_to = ""
        self.holds = 0
        """So many commands of operators keep its messages from consumers (held_places.py)."""
        self.turn = 0
        """Whose turn it is among the consumers."""
        self.feed: Callable[[Effects], None] | None = None
        """Of a queue that is one with others of its name: called when it was dispatched."""

    def count_in(self, totals: Totals) -> None:
        """It is one of the places of a node, and counts there and no longer where it did."""
        for sums, sign in ((self.line.totals, -1), (totals, 1)):
            sums.places += sign
            sums.consumers += sign * len(self.consumers)
        self.line.count_in(totals)

    @property
    def takes_packed(self) -> bool:
        """What a boot found may wait as it lies in the log: nothing here looks at each message."""
        groups = self.line.groups
        return self.line.sort is None and (groups is None or groups.gathering is None)

    @property
    def holders(self) -> list[ConsumerView]:
        """Who may have messages that are not settled, besides open transactions."""
        return [*self.consumers, *self.left]

    @property
    def has_selectors(self) -> bool:
        """Not every consumer wants every message."""
        return False

    def first_for(self, _consumer: ConsumerView) -> Entry | None:
        """The first message that the consumer may take and others may too."""
        return self.line.first()

    def has_groups(self) -> bool:
        """Groups or global orders are here, so that messages go out one by one."""
        groups = self.line.groups
        return groups is not None and groups.waiting_count > 0

    def _came(self, consumer: ConsumerView) -> None:
        self.consumers.append(consumer)
        self.line.totals.consumers += 1
        self._count_priority(consumer.priority, 1)

    def _count_priority(self, priority: int, change: int) -> None:
        counts = self._priority_counts
        counts[priority] += change
        if counts[priority] == max(change, 0):  # it is the first, or was the last
            self.priorities = tuple(sorted(+counts, reverse=True))

    def _gone(self, consumer: ConsumerView) -> None:
        self.consumers.remove(consumer)
        self.line.totals.consumers -= 1
        self._count_priority(consumer.priority, -1)
        if self.line.groups is not None:
            self.line.groups.consumer_left(consumer)


class Queue(Place):
    """A queue (F-C1). redelivery_limit -1: none. messages_max 0: no limit of its own."""

    kind = "queue"

    def __init__(
        self,
        number: int,
        name: str,
        redelivery_limit: int,
        messages_max: int,
        looking: ScanSlices[Candidates] | None = None,
    ) -> None:
        super().__init__(number, name)
        self.redelivery_limit = redelivery_limit
        self._looking = ScanSlices[Candidates]() if looking is None else looking
        if messages_max:
            self.control.set_limits(Limits(messages_max))
        self.producers = 0
        self.backups: list[ConsumerView] = []
        """Those that take over when an active consumer leaves, in the order in which they came."""
        self.candidates: dict[ConsumerView, Candidates] = {}
        """For each consumer with a selector, what waits and matches."""

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        return self.control.define(Definition(self.number, "queue", self.name))

    def attach(self, consumer: ConsumerView) -> None:
        """A consumer comes: it gets messages, or stands by until an active one leaves (F-C13)."""
        if self._has_active_place():
            self._activate(consumer)
        else:
            self.backups.append(consumer)

    def _has_active_place(self) -> bool:
        limit = self.control.limits.active_max
        return not limit or len(self.consumers) < limit

    def promote(self) -> None:
        """Backups take over the places of active consumers that are free."""
        while self.backups and self._has_active_place():
            self._activate(self.backups.pop(0))

    def _activate(self, consumer: ConsumerView) -> None:
        """It gets messages from now on; with a selector it looks at all that waits, once."""
        self._came(consumer)
        if consumer.selector is not None:
            self.candidates[consumer] = Candidates(self, consumer, self._looking)

    def detach(self, consumer: ConsumerView) -> None:
        """A consumer goes, and a backup takes over from it."""
        if consumer in self.backups:
            self.backups.remove(consumer)
            return
        candidates = self.candidates.pop(consumer, None)
        if candidates is not None:
            candidates.close()
        self._gone(consumer)
        left = None if self.candidates else self.line.close_scan()
        if left is not None:
            self._looking.left.append(left)
        self.promote()

    @property
    def has_selectors(self) -> bool:
        """Not every consumer wants every message."""
        return bool(self.candidates)

    def first_for(self, consumer: ConsumerView) -> Entry | None:
        """The first message that the consumer may take and others may too."""
        own = self.candidates.get(consumer)
        return self.line.first() if own is None else own.first()

    def offer(self, messages: list[StoredMessage]) -> None:
        """Show messages that wait, or wait again, to the consumers with selectors; those of groups
        are shown when they are the first."""
        if not self.candidates or not messages:
            return
        self._looking.asked += len(self.candidates)
        groups = self.line.groups
        alone = messages if groups is None else [m for m in messages if not groups.knows(m)]
        if alone:
            offer = self.line.open_scan().offer(alone)
            for found in self.candidates.values():
                found.offer(offer)

    offer_again = offer

    def keep_order(
        self, configured: DestinationSettings | None, on_memory: Callable[[int], None]
    ) -> None:
        """Groups and global orders count here from now on, and what the configuration has of it;
        on_memory: told of the bytes that they take."""
        groups = self.line.groups = MessageGroups(self.line)
        groups.on_memory = on_memory
        groups.on_free = self._freed
        self.line.count_keys(on_memory)
        if configured is None:
            return
        if configured.sort is not None:
            self.line.sort_by(MessageSort(configured.sort))
        if configured.is_gathering:
            groups.gathering = GroupAssembly(configured.group_life_ms)

    def _freed(self, message: StoredMessage) -> None:
        self._looking.asked += len(self.candidates)
        if self.candidates:
            offer = self.line.open_scan().offer([message])
            for found in self.candidates.values():
                found.offer(offer)


class Retained(Queue):
    """Where retained publications stay: in the log like a queue's messages, with no consumer."""

    kind = "retained"
    takes_packed = False

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name, redelivery_limit=-1, messages_max=0)

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        return Definition(self.number, "retained", self.name)


class Scheduled(Queue):
    """Where recurring messages wait for their next time: in the log, with no consumer."""

    kind = SCHEDULED
    takes_packed = False

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name, redelivery_limit=-1, messages_max=0)

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        return Definition(self.number, SCHEDULED, self.name)


class Subscription(Place):
    """One subscriber's view of a topic; durable ones outlive their consumer and the node (F-E4).

    topic: the topic object whose attributes it has; pattern: what it wants, fixed for ever (CT-07);
    queue: where what it takes is put instead of waiting here; order: its place among the others.
    """

    kind = "subscription"
    redelivery_limit: int

    def __init__(
        self,
        topic: "Topic",
        definition: Definition,
        queue: Queue | None = None,
    ) -> None:
        super().__init__(definition.number, definition.name)
        self.topic = topic
        self.control = topic.control
        text = definition.topic_string or topic.string
        self.pattern = Pattern(text, Scheme(definition.scheme or Scheme.TOPIC), NO_LIMITS)
        self.queue = queue
        self.order = 0
        self.missed = 0
        """Publications that its queue had no room for."""
        self.withheld = 0
        """Publications that its owner may not have."""
        self.placement = Placement(self.number, b"")
        """How the log says that it gets all messages of a batch."""
        self.is_proxy = definition.name.startswith(PROXY_PREFIX)
        """It stands for subscriptions of another node of the cluster."""
        self.redefine(definition)
        if self.is_shared:
            self.line.groups = MessageGroups(self.line)
        self.take_over()
        self.is_removed = False
        self.owner: Owner = NO_OWNER
        """Whose share of the node's limits it takes."""
        self._last_client = (NOBODY, definition.client_id)

    def take_over(self) -> None:
        """Have what its topic object has now."""
        topic = self.topic
        self.redelivery_limit = topic.redelivery_limit
        self.redelivery_delay_ms = topic.redelivery_delay_ms
        self.dead_letter = topic.dead_letter
        self.expired_to = topic.expired_to

    def redefine(self, definition: Definition) -> None:
        """What it chooses from now on; what waits stays."""
        self.definition = definition
        text = definition.selector  # as an older version may have taken it
        self.selector = Selector(text, KEPT_LIMITS) if text else None
        self.is_no_local = definition.is_no_local
        self.is_shared = definition.is_shared
        self.wants = Wants(definition.retained or Wants.ALL)
        life_ms = definition.life_ms
        self.ends_at_ms = definition.created_ms + life_ms if life_ms else 0
        self.look()

    def look(self) -> None:
        """Learn whether it is as most are, by any sender at any time: of 65,000 the others are
        looked at then."""
        is_limited = self.is_no_local or self.ends_at_ms or self.queue
        is_unlike = self.is_proxy or self.pattern.is_wildcard or self.wants is Wants.REQUEST
        self.is_special = bool(is_limited or is_unlike)
        """For more than its selector."""
        self.is_usual = not (self.is_special or self.selector)

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory at most, beside its messages."""
        selector_bytes = self.selector.memory_bytes if self.selector is not None else 0
        return place_bytes(self.name) + self.pattern.memory_bytes + selector_bytes

    @property
    def key(self) -> tuple[str, Scheme, str, bool]:
        """What finds it again: one name, for one pattern."""
        return self.pattern.text, self.pattern.scheme, self.name, self.is_durable

    @property
    def said_topic(self) -> str:
        """Its topic as a client says it: the topic object's name, or the pattern."""
        is_object = self.pattern.text == self.topic.string
        return self.topic.name if is_object else self.pattern.text

    def is_over(self, now_ms: int) -> bool:
        """Whether its life has ended (SU-11): it gets nothing more."""
        return 0 < self.ends_at_ms <= now_ms

    def is_local(self, publisher: ConnectionView) -> bool:
        """Whether it does not want what this client publishes (F-E7): that of a consumer's own
        connection or, while it has no consumer, of the last one; a client id names a client over
        all of its connections, and the one that made it over a crash too."""
        if not self.is_no_local:
            return False
        clients = [(c.connection.uid, c.connection.client_id) for c in self.consumers]
        return any(
            publisher.uid == uid or (client_id and publisher.client_id == client_id)
            for uid, client_id in clients or [self._last_client]
        )

    def chooses(self, messages: list[StoredMessage]) -> list[bool] | None:
        """Which of the messages its selector lets through; None for all of them."""
        selector = self.selector
        if selector is None:
            return None
        names = selector.names
        return [selector.matches(selector_view(m, names)) is True for m in messages]

    def attach(self, consumer: ConsumerView) -> None:
        """The subscriber comes."""
        self._came(consumer)
        self._last_client = consumer.connection.uid, consumer.connection.client_id

    def detach(self, consumer: ConsumerView) -> None:
        """The subscriber goes; a durable subscription stays."""
        self._gone(consumer)


class Topic:
    """A topic object (F-C2, F-C19): what is sent at its topic string, or below it, goes to every
    subscription of that moment and has its attributes. None: as the topic object above has it."""

    kind = "topic"

    def __init__(self, number: int, name: str, redelivery_limit: int, string: str = "") -> None:
        self.number = number
        self.name = name
        self.string = string or name
        self.control = Control()
        self.persistent_delivery: Delivery | None = None
        self.non_persistent_delivery: Delivery | None = None
        self.redelivery_limit = redelivery_limit
        self.redelivery_delay_ms = 0
        self.dead_letter = DEAD_LETTER_QUEUE
        self.expired_to = ""
        self.subscriptions: list[Subscription] = []
        self.producers = 0
        self.sent = 0

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        string = "" if self.string == self.name else self.string
        return self.control.define(Definition(self.number, "topic", self.name, topic_string=string))

    def durable(self, name: str) -> Subscription | None:
        """The durable subscription of that name at this very topic."""
        for subscription in self.subscriptions:
            is_here = subscription.pattern.text == self.string
            if is_here and subscription.is_durable and subscription.name == name:
                return subscription
        return None
