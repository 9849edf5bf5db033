"""The topic space: topic objects, the topics in use, and who subscribes to what.

How a topic is said (PUBSUB §5): by the name of a topic object, by a topic string, or by both,
joined. A name that is no topic object's is a topic string. Unless topics are open, a topic object
has to stand at a topic or above it, so that a slip of the pen is refused and not a topic of its own
that nobody ever reads.
"""

from collections.abc import Iterable
from functools import partial

from hms.engine.admin.counters import Totals
from hms.engine.flow.shares import NO_OWNER, Shares
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Retained, Subscription, Topic
from hms.engine.security.authority import Authority
from hms.engine.settings import EngineSettings
from hms.engine.topic import (
    Delivery,
    Pattern,
    RetainedStore,
    Scheme,
    TopicIndex,
    TopicLimits,
    TopicNode,
    TopicObjects,
    TopicTree,
    Wants,
    check_topic,
    is_given,
    join_topic,
)
from hms.engine.topic.choices import Choices
from hms.engine.topic.delivery_mode import NON_PERSISTENT_DEFAULT, PERSISTENT_DEFAULT
from hms.engine.topic.recipients import Audience
from hms.engine.topic.topic_strings import refused
from hms.errors.catalogue import DestinationKindMismatch, DestinationNotFound
from hms.records import Definition

BASE_TOPIC = "HMS.BASE.TOPIC"
RETAINED_PLACE = "HMS.RETAINED"
_SHOWN = 255
STILL_MS, STILL_TRIES = 500, 10_000
AUDIENCE_ENTRIES_MAX = 200_000
"""So many subscriptions, counted for each topic that they are found for, are kept at hand."""
DRAFTS_MAX, DRAFT_LIFE_MS = 8, 5000
"""Audiences that are made in slices: so many, each for so long since its last slice."""
CHARACTERS_PER_ENTRY = 100
"""So many of a topic string count as one."""


class Still:
    """A commit for which subscriptions do not change until then."""

    __slots__ = ("tries_left", "until_ms", "work")

    def __init__(self, work: object, until_ms: int) -> None:
        self.work, self.until_ms, self.tries_left = work, until_ms, STILL_TRIES


class TopicSpace:
    """What is known of topics. The tree, what is retained and the index are kept in step here."""

    def __init__(self, settings: EngineSettings, queues: dict[str, Queue], shares: Shares) -> None:
        self._settings = settings
        self.selecting_count = 0
        """Subscriptions with a selector."""
        self._shares = shares
        self._queues = queues
        self.limits = TopicLimits(settings.topic_characters_max, settings.topic_levels_max)
        self._orders = 0
        self.topics: dict[str, Topic] = {}
        self.base = Topic(0, BASE_TOPIC, settings.redelivery_limit)
        """Whose attributes count where no topic object stands."""
        self.objects: TopicObjects[Topic] = TopicObjects()
        self.tree: TopicTree[StoredMessage] = TopicTree(shares)
        self.retained: RetainedStore[StoredMessage] = RetainedStore(
            self.tree, settings.retained_max, settings.retained_bytes_max
        )
        self.place: Retained | None = None
        """Where retained publications stay; None before the first one."""
        self.index: TopicIndex[Subscription] = TopicIndex()
        self.subscriptions: dict[int, Subscription] = {}
        """By their order, which is that of their beginning."""
        self.expiring: dict[int, Subscription] = {}
        """Those of them that end at a time."""
        self._named: dict[tuple[str, Scheme, str, bool], Subscription] = {}
        self._audiences: dict[str, Audience] = {}
        self._audience_entries = 0
        self._last_audience: Audience | None = None
        """Where many topics have the same subscriptions, all of them have one audience."""
        self._drafts: dict[str, tuple[Choices, int]] = {}
        """What slices have found for audiences that are not complete, by topic, and when."""
        self._redefined_count = 0
        self.still: Still | None = None
        """A commit for which subscriptions are not to change."""
        self.authority: Authority | None = None
        self.made_by = ""
        """The user whose command is applied now, where logins are checked: the owner of what it
        makes."""
        """Who may have what, of a node that checks logins; None: everybody may have everything."""
        self.version = 0
        """Grows when a subscription changes."""
        self.totals = {True: Totals(), False: Totals()}
        """Of all queues and subscriptions, the durable ones and the others."""

    # topic objects

    def define(self, topic: Topic, now_ms: int) -> None:
        """A topic object begins to count."""
        self.topics[topic.name] = topic
        if topic is self.base:
            return
        self.objects.add(topic.string, topic)
        node = self.tree.node(topic.string, now_ms, is_known=True)
        node.objects += 1
        self.tree.touched(node, now_ms)

    def undefine(self, topic: Topic, now_ms: int) -> None:
        """A topic object counts no more; nobody subscribes by it."""
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
        self.objects.remove(topic.string, topic)
        node = self.tree.find(topic.string)
        if node is not None:
            node.objects -= 1
            self.tree.touched(node, now_ms)

    def numbered(self, number: int) -> Topic:
        """A topic object by its number in the log; 0 is the node's own."""
        return next((t for t in self.topics.values() if t.number == number), self.base)

    def defines(self, number: int) -> bool:
        """Whether a topic object has this number in the log."""
        return any(t.number == number for t in self.topics.values())

    def nearest_number(self, topic: str) -> int:
        """The number in the log of the topic object at a topic or above it."""
        nearest = self.objects.nearest(topic)
        return self.base.number if nearest is None else nearest.number

    def delivery(self, topic: str, *, is_persistent: bool) -> Delivery:
        """Who has to take a publication: as the nearest object says that says it (TO-02, PD-04)."""
        for found in (*self.objects.above(topic), self.base):
            own = found.persistent_delivery if is_persistent else found.non_persistent_delivery
            if own is not None:
                return own
        return PERSISTENT_DEFAULT if is_persistent else NON_PERSISTENT_DEFAULT

    # how topics are said

    def publication(self, name: str, string: str) -> tuple[Topic, str]:
        """The topic object and the topic for a publisher's words; every character is literal."""
        topic = check_topic(self._said(name, string), self.limits)
        if self._settings.is_topics_strict and Pattern(topic, limits=self.limits).is_wildcard:
            raise refused(topic, "a level that is # or + cannot be published on: topics are strict")
        nearest = self.objects.nearest(topic)
        if nearest is None and not self._settings.is_topics_open:
            raise DestinationNotFound(kind="topic", destination=topic[:_SHOWN])
        return nearest or self.base, topic

    def wanted(self, name: str, string: str, scheme: str) -> tuple[Topic, Pattern]:
        """The topic object and the pattern for a subscriber's words."""
        kind = Scheme.__members__.get(scheme or Scheme.TOPIC.value)
        if kind is None:
            raise refused(name or string, f"{scheme} is no scheme; use TOPIC or CHARACTER")
        pattern = Pattern(self._said(name, string), kind, self.limits)
        if not self._settings.is_topics_open and not self.objects.reaches(pattern):
            raise DestinationNotFound(kind="topic", destination=pattern.text[:_SHOWN])
        return self.objects.nearest_to(pattern) or self.base, pattern

    def _said(self, name: str, string: str) -> str:
        found = self.topics.get(name)
        if found is not None and found is not self.base:
            return join_topic(found.string, string, self.limits)
        if is_given(name) and is_given(string):
            raise DestinationNotFound(kind="topic", destination=name)
        if name in self._queues:
            raise DestinationKindMismatch(destination=name, kind="queue", wanted="topic")
        return join_topic(name, string, self.limits)

    def audience(self, topic: str, now_ms: int) -> Audience:
        """Who gets what comes now on a topic; the same as before until a subscription changes."""
        found = self._audiences.get(topic)
        if found is None or now_ms >= found.until_ms:
            wanting = self._wanting(topic, now_ms)
            found = self._found(wanting, topic)
            self._audience_entries += 1 + len(topic) // CHARACTERS_PER_ENTRY
            if found is not self._last_audience:
                self._last_audience = found
                self._audience_entries += len(wanting)
            if self._audience_entries > AUDIENCE_ENTRIES_MAX:
                self._audiences.clear()
                self._audience_entries = 0
            self._audiences[topic] = found
        return found

    def prepare_some(self, topic: str, now_ms: int, steps: int) -> bool:
        """So many selectors of what audience() will find, where there are more; whether it has to
        come again."""
        if self.selecting_count <= steps:
            return False
        wanting, withheld = self._allowed(self._wanting(topic, now_ms), topic)
        if self._is_last(wanting, withheld):
            return False
        selecting = [s for s in wanting if s.selector is not None]
        choices = self._choices_for(topic, len(selecting))
        has_more = choices.turn_into(selecting, steps)
        self._drafts[topic] = choices, now_ms
        if len(self._drafts) > DRAFTS_MAX:
            del self._drafts[next(iter(self._drafts))]
        return has_more

    def _wanting(self, topic: str, now_ms: int) -> list[Subscription]:
        return [s for s in self.index.match(topic) if not s.is_special or _wants_now(s, now_ms)]

    def _choices_for(self, topic: str, count: int) -> Choices:
        """What the choices of so many on a topic are made from."""
        draft, last = self._drafts.pop(topic, None), self._last_audience
        if draft is not None:
            return draft[0]
        if last is None or not last.selecting.is_near(count):
            return Choices()
        return last.selecting.copy()

    def _allowed(
        self, wanting: list[Subscription], topic: str
    ) -> tuple[list[Subscription], list[Subscription]]:
        """Those that may have what comes on a topic, and the others."""
        if self.authority is None:
            return wanting, []
        withheld = [s for s in wanting if not self.is_allowed(s, topic)]
        hidden = set(withheld)
        return [s for s in wanting if s not in hidden] if hidden else wanting, withheld

    def _is_last(self, wanting: list[Subscription], withheld: list[Subscription]) -> bool:
        """Whether the last audience is that of these."""
        last = self._last_audience
        return (
            last is not None
            and last.redefined_count == self._redefined_count
            and last.subscriptions == wanting
            and last.withheld == withheld
        )

    def _found(self, wanting: list[Subscription], topic: str) -> Audience:
        """The audience of these; the last one, when it is the same."""
        wanting, withheld = self._allowed(wanting, topic)
        if self._last_audience is not None and self._is_last(wanting, withheld):
            return self._last_audience
        found = Audience(wanting, partial(self._choices_for, topic))
        found.withheld, found.redefined_count = withheld, self._redefined_count
        return found

    def has_audience(self, topic: str, now_ms: int) -> bool:
        """Whether audience() finds it at once."""
        found = self._audiences.get(topic)
        return found is not None and now_ms < found.until_ms

    def redefined(self, subscription: Subscription, definition: Definition) -> None:
        """What it chooses from now on."""
        self._take(subscription, -1)
        subscription.redefine(definition)
        self._take(subscription, 1)
        self._redefined_count += 1
        self.changed()

    def is_allowed(self, subscription: Subscription, topic: str) -> bool:
        """Whether its owner may have what is published on a topic, where it is put (PUBSUB PS-04).
        What has no owner is the administrator's."""
        owner, authority = subscription.definition.owner, self.authority
        if authority is None or not owner:
            return True
        queue = "" if subscription.queue is None else subscription.queue.name
        return authority.may_receive(owner, topic, queue)

    def changed(self) -> None:
        """A subscription is not what it was."""
        self.version += 1
        self._audiences.clear()
        self._audience_entries = 0

    def hold_still(self, work: object, now_ms: int) -> None:
        """Nobody else subscribes, or ends a subscription, until this transaction is committed, or
        for half a second: what it publishes was made ready again and again, as others came."""
        if self.still is None or self.still.work is not work:
            self.still = Still(work, now_ms + STILL_MS)

    def is_still(self, works: Iterable[object], now_ms: int) -> bool:
        """Whether who has these transactions waits with what changes subscriptions."""
        still = self.still
        if still is None or any(work is still.work for work in works):
            return False
        still.tries_left -= 1
        if now_ms >= still.until_ms or not still.tries_left:
            self.still = None
        return self.still is not None

    # who uses a topic

    def opened(self, topic: str, now_ms: int) -> TopicNode[StoredMessage]:
        """One more producer; TopicLimit."""
        node = self.tree.node(topic, now_ms)
        node.producers += 1
        return node

    def closed(self, node: TopicNode[StoredMessage], now_ms: int) -> None:
        """One producer less."""
        node.producers -= 1
        self.tree.touched(node, now_ms)

    def add(self, subscription: Subscription, now_ms: int) -> None:
        """A subscription begins; TopicLimit, and nothing has changed, when its topic is one too
        many."""
        pattern = subscription.pattern
        if not pattern.is_wildcard:
            node = self.tree.node(pattern.topic, now_ms, is_known=subscription.is_durable)
            node.subscribers += 1
        subscription.owner = self._shares.acting or subscription.definition.client_id or NO_OWNER
        self._take(subscription, 1)
        if subscription.line.groups is not None:
            subscription.line.groups.on_memory = self._shares.take_groups
        self._orders += 1
        subscription.order = self._orders
        self.subscriptions[subscription.order] = subscription
        self.index.add(pattern, subscription.order, subscription)
        subscription.count_in(self.totals[subscription.is_durable])
        self.changed()
        if subscription.ends_at_ms:
            self.expiring[subscription.order] = subscription
        if subscription.is_durable:  # in the log a new one may come before the end of the old one
            self._named[subscription.key] = subscription
        elif subscription.name and subscription.is_shared:  # who shares none has the name alone
            self._named.setdefault(subscription.key, subscription)
        subscription.topic.subscriptions.append(subscription)

    def remove(self, subscription: Subscription, now_ms: int) -> None:
        """It gets nothing more."""
        pattern = subscription.pattern
        subscription.count_in(Totals())
        del self.subscriptions[subscription.order]
        self._take(subscription, -1)
        self.expiring.pop(subscription.order, None)
        self.index.remove(pattern, subscription.order)
        self.changed()
        if self._named.get(subscription.key) is subscription:
            del self._named[subscription.key]
        subscription.topic.subscriptions.remove(subscription)
        node = None if pattern.is_wildcard else self.tree.find(pattern.topic)
        if node is not None:
            node.subscribers -= 1
            self.tree.touched(node, now_ms)

    def _take(self, subscription: Subscription, sign: int) -> None:
        count, is_defined = sign * subscription.memory_bytes, subscription.is_durable
        self.selecting_count += sign * (subscription.selector is not None)
        self._shares.take_memory(subscription.owner, count, is_defined=is_defined)

    def named(self, pattern: Pattern, name: str, *, is_durable: bool) -> Subscription | None:
        """The subscription of that name for that pattern."""
        return self._named.get((pattern.text, pattern.scheme, name, is_durable))

    def prune(self, now_ms: int) -> list[str]:
        """Take away the topics that nothing has used for their life."""
        for topic, (_, at_ms) in [*self._drafts.items()]:
            if now_ms - at_ms > DRAFT_LIFE_MS:
                del self._drafts[topic]
        return self.tree.prune(now_ms - self._settings.topic_life_ms)


def _wants_now(subscription: Subscription, now_ms: int) -> bool:
    return subscription.wants is not Wants.REQUEST and not subscription.is_over(now_ms)
