"""Queues, topics and subscriptions: the places a message is sent to and waits at."""

from collections import deque

from hms.engine.line import Line
from hms.engine.messages import StoredMessage, selector_view
from hms.engine.selector import Selector
from hms.engine.sessions import Consumer
from hms.engine.settings import DEAD_LETTER_QUEUE
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


class Subscription(Place):
    """One subscriber's view of a topic; durable ones outlive their consumer and the node (F-E4)."""

    kind = "subscription"
    redelivery_limit: int

    def __init__(self, topic: "Topic", definition: Definition, is_durable: bool) -> None:
        super().__init__(definition.number, definition.name)
        self.topic = topic
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

    @property
    def is_durable(self) -> bool:
        """Whether it waits in the log too."""
        return self._is_durable

    def chooses(self, messages: list[StoredMessage], client_uid: int) -> list[bool] | None:
        """Which of the messages it takes; None for all of them."""
        if self.is_no_local and any(c.connection.uid == client_uid for c in self.consumers):
            return [False] * len(messages)
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
    """A topic (F-C2): what is sent goes to every subscription of that moment."""

    kind = "topic"

    def __init__(self, number: int, name: str, redelivery_limit: int) -> None:
        self.number = number
        self.name = name
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
        return Definition(self.number, "topic", self.name)

    def shared(self, name: str) -> Subscription | None:
        """The shared subscription of that name that is not durable (JMS 3.1 §4.3.2)."""
        for subscription in self.subscriptions:
            if subscription.is_shared and not subscription.is_durable and subscription.name == name:
                return subscription
        return None

    def durable(self, name: str) -> Subscription | None:
        """The durable subscription of that name."""
        for subscription in self.subscriptions:
            if subscription.is_durable and subscription.name == name:
                return subscription
        return None
