"""Queues, topics and subscriptions: the places a message is sent to and waits at."""

from collections import deque

from hms.engine.line import Line
from hms.engine.messages import StoredMessage, selector_view
from hms.engine.selector import Selector
from hms.engine.sessions import Consumer
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.topics import NO_LIMITS, Delivery, Pattern, Scheme, Wants
from hms.records import Definition


class Place:
    """A line of messages and its consumers: what a queue and a subscription have in common."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.line = Line(number, name)
        self.consumers: list[Consumer] = []
        self.redelivery_delay_ms = 0
        self.dead_letter = DEAD_LETTER_QUEUE
        self.expired_to = ""
        self.turn = 0
        """Whose turn it is among the consumers."""

    @property
    def name(self) -> str:
        """The name operators see."""
        return self.line.name

    @property
    def is_durable(self) -> bool:
        """Its persistent messages, deliveries and acknowledgements are in the log."""
        return True


class Queue(Place):
    """A queue (F-C1). redelivery_limit -1: none. messages_max 0: no limit of its own."""

    kind = "queue"

    def __init__(self, number: int, name: str, redelivery_limit: int, messages_max: int) -> None:
        super().__init__(number, name)
        self.redelivery_limit = redelivery_limit
        self.messages_max = messages_max
        self.producers = 0
        self.candidates: dict[Consumer, deque[StoredMessage]] = {}
        """For each consumer with a selector, what waits and matches, in order of arrival."""

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        return Definition(self.number, "queue", self.name)

    def attach(self, consumer: Consumer) -> None:
        """A consumer comes; one with a selector looks at all that waits, once."""
        self.consumers.append(consumer)
        if consumer.selector is not None:
            waiting = self.line.open_index()
            self.candidates[consumer] = deque(
                m for m in self.line.in_order() if m.id in waiting and consumer.wants(m)
            )

    def detach(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self.consumers.remove(consumer)
        self.candidates.pop(consumer, None)
        if not self.candidates:
            self.line.close_index()

    def offer(self, messages: list[StoredMessage]) -> None:
        """Show messages that begin to wait to the consumers with selectors."""
        for consumer, found in self.candidates.items():
            found.extend(m for m in messages if consumer.wants(m))

    def offer_again(self, messages: list[StoredMessage]) -> None:
        """Show messages that wait again, before what came later."""
        for consumer, found in self.candidates.items():
            again = [m for m in messages if consumer.wants(m)]
            if again:
                known = {m.id for m in again}
                rest = [m for m in found if m.id not in known]
                merged = sorted([*again, *rest], key=lambda m: (-m.priority, m.seq))
                self.candidates[consumer] = deque(merged)


class Retained(Queue):
    """Where retained publications stay: in the log like a queue's messages, with no consumer."""

    kind = "retained"

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name, redelivery_limit=-1, messages_max=0)

    @property
    def definition(self) -> Definition:
        """How the log knows it."""
        return Definition(self.number, "retained", self.name)


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
        is_durable: bool,
        queue: Queue | None = None,
    ) -> None:
        super().__init__(definition.number, definition.name)
        self.topic = topic
        text = definition.topic_string or topic.string
        self.pattern = Pattern(text, Scheme(definition.scheme or Scheme.TOPIC), NO_LIMITS)
        self.queue = queue
        self.order = 0
        self.missed = 0
        """Publications that its queue had no room for."""
        self.redefine(definition)
        self.redelivery_limit = topic.redelivery_limit
        self.redelivery_delay_ms = topic.redelivery_delay_ms
        self.dead_letter = topic.dead_letter
        self.expired_to = topic.expired_to
        self.is_removed = False
        self._is_durable = is_durable

    def redefine(self, definition: Definition) -> None:
        """What it chooses from now on; what waits stays."""
        self.definition = definition
        self.selector = Selector(definition.selector) if definition.selector else None
        self.is_no_local = definition.is_no_local
        self.is_shared = definition.is_shared
        self.wants = Wants(definition.retained or Wants.ALL)
        life_ms = definition.life_ms
        self.ends_at_ms = definition.created_ms + life_ms if life_ms else 0

    @property
    def key(self) -> tuple[str, Scheme, str, bool]:
        """What finds it again: one name, for one pattern."""
        return self.pattern.text, self.pattern.scheme, self.name, self._is_durable

    @property
    def said_topic(self) -> str:
        """Its topic as a client says it: the topic object's name, or the pattern."""
        is_object = self.pattern.text == self.topic.string
        return self.topic.name if is_object else self.pattern.text

    def is_over(self, now_ms: int) -> bool:
        """Whether its life has ended (SU-11): it gets nothing more."""
        return 0 < self.ends_at_ms <= now_ms

    @property
    def is_durable(self) -> bool:
        """Whether it waits in the log too."""
        return self._is_durable

    def is_local(self, client_uid: int) -> bool:
        """Whether it does not want what this client publishes (F-E7)."""
        return self.is_no_local and any(c.connection.uid == client_uid for c in self.consumers)

    def chooses(self, messages: list[StoredMessage]) -> list[bool] | None:
        """Which of the messages its selector lets through; None for all of them."""
        selector = self.selector
        if selector is None:
            return None
        names = selector.names
        return [selector.matches(selector_view(m, names)) is True for m in messages]

    def attach(self, consumer: Consumer) -> None:
        """The subscriber comes."""
        self.consumers.append(consumer)

    def detach(self, consumer: Consumer) -> None:
        """The subscriber goes; a durable subscription stays."""
        self.consumers.remove(consumer)


class Topic:
    """A topic object (F-C2, F-C19): what is sent at its topic string, or below it, goes to every
    subscription of that moment and has its attributes. None: as the topic object above has it."""

    kind = "topic"

    def __init__(self, number: int, name: str, redelivery_limit: int, string: str = "") -> None:
        self.number = number
        self.name = name
        self.string = string or name
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
        return Definition(self.number, "topic", self.name, topic_string=string)

    def durable(self, name: str) -> Subscription | None:
        """The durable subscription of that name at this very topic."""
        for subscription in self.subscriptions:
            is_here = subscription.pattern.text == self.string
            if is_here and subscription.is_durable and subscription.name == name:
                return subscription
        return None
