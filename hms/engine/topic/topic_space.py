"""The topic space: topic objects, the topics in use, and who subscribes to what.

How a topic is said (PUBSUB §5): by the name of a topic object, by a topic string, or by both,
joined. A name that is no topic object's is a topic string. Unless topics are open, a topic object
has to stand at a topic or above it, so that a slip of the pen is refused and not a topic of its own
that nobody ever reads.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

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
    check_topic,
    is_given,
    join_topic,
)
from hms.engine.topic.audience_draft import AudienceDraft, Change, renewed
from hms.engine.topic.choices import Choices
from hms.engine.topic.crowd import Crowd
from hms.engine.topic.delivery_mode import NON_PERSISTENT_DEFAULT, PERSISTENT_DEFAULT
from hms.engine.topic.recipients import Audience
from hms.engine.topic.topic_strings import is_own, refused
from hms.errors.catalogue import DestinationKindMismatch, DestinationNotFound
from hms.records import Definition

BASE_TOPIC = "HMS.BASE.TOPIC"
RETAINED_PLACE = "HMS.RETAINED"
_SHOWN, _ALL = 255, 1 << 62
OWN_TOPIC = "topics below HMS/ are the node's own, and only it publishes there; use another level"
STILL_MS, STILL_TRIES = 500, 10_000
AUDIENCE_ENTRIES_MAX = 200_000
"""So many subscriptions, counted for each topic that they are found for, are kept at hand."""
DRAFTS_MAX, DRAFT_LIFE_MS = 8, 5000
"""Audiences that are made in slices: so many, each for so long since its last slice."""
KEPT_MIN, KEPT_MAX, KEPT_LIFE_MS = 1024, 8, 60_000
"""Audiences of so many subscriptions are kept when they change: so many, each for so long since it
was made."""
CHANGES_MAX, CHANGES_AT_ONCE = 4096, 256
"""Of subscriptions: so many are known, and so many are worked into an audience at once."""
CHARACTERS_PER_ENTRY = 100
"""So many of a topic string count as one."""


class Still:
    """A commit for which subscriptions do not change until then."""

    __slots__ = ("tries_left", "until_ms", "work")

    def __init__(self, work: object, until_ms: int) -> None:
        self.work, self.until_ms, self.tries_left = work, until_ms, STILL_TRIES


class _Kept(NamedTuple):
    """An audience, as it was at a version of the topic space; used_ms: when that was."""

    audience: Audience
    version: int
    used_ms: int


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
        self._durables: dict[str, list[Subscription]] = {}
        self._named: dict[tuple[str, Scheme, str, bool], Subscription] = {}
        self._audiences: dict[str, Audience] = {}
        self._audience_entries = 0
        self._last_audience: Audience | None = None
        """Where many topics have the same subscriptions, all of them have one audience."""
        self._drafts: dict[str, tuple[AudienceDraft, int, int]] = {}
        """Audiences that are not complete, by topic; the version that they know, and when that
        was."""
        self._kept: dict[str, _Kept] = {}
        """Large audiences by topic, as they were."""
        self._changes: deque[Change | None] = deque(maxlen=CHANGES_MAX)
        """The last ones, one for each version."""
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
        if is_own(topic):
            raise refused(topic, OWN_TOPIC)
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
        is_known = self._settings.is_topics_open or pattern.is_own
        if not is_known and not self.objects.reaches(pattern):
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

    def matching(self, topic: str) -> Sequence[Subscription]:
        """The subscriptions that a topic has."""
        found = self.index.match(topic)
        return [one for one in found if one.pattern.is_own] if is_own(topic) else found

    def audience(self, topic: str, now_ms: int) -> Audience:
        """Who gets what comes now on a topic; the same as before until a subscription changes."""
        found = self._audiences.get(topic)
        if found is None or now_ms >= found.until_ms:
            self.prepare_some(topic, now_ms, _ALL)
            found = self._audiences[topic]
        return found

    def prepare_some(self, topic: str, now_ms: int, steps: int) -> bool:
        """A slice of what audience() will find, of so many selectors or a little more; whether it
        has to come again."""
        if self.has_audience(topic, now_ms):
            return False
        found = None if topic in self._drafts else self._renewed(topic, now_ms)
        if found is None:
            draft = self._draft(topic)
            if draft.go_on(steps, now_ms):
                self._drafts[topic] = draft, self.version, now_ms
                if len(self._drafts) > DRAFTS_MAX:
                    del self._drafts[next(iter(self._drafts))]
                return True
            found = draft.audience(now_ms, self._redefined_count)
        self._keep(topic, found, now_ms)
        return False

    def _draft(self, topic: str) -> AudienceDraft:
        """The draft for a topic, which is told what has changed, or a new one where that is not
        known, which begins with what the other has learned."""
        draft, version, _ = self._drafts.pop(topic, (None, 0, 0))
        if draft is not None:
            changes = self._changes_since(version, topic)
            if changes is not None:
                draft.changes += changes
                return draft
        learned = None if draft is None else draft.choices
        return AudienceDraft(
            self.matching(topic),
            partial(self._choices_for, topic, learned),
            None if self.authority is None else partial(self.is_allowed, topic=topic),
            self._last_if_same,
        )

    def _renewed(self, topic: str, now_ms: int) -> Audience | None:
        """The audience that was kept for a topic, with what has changed since; None where it is
        made anew."""
        kept = self._kept.get(topic)
        changes = None if kept is None else self._changes_since(kept.version, topic)
        if kept is None or changes is None or len(changes) > CHANGES_AT_ONCE:
            return None
        is_allowed = None if self.authority is None else partial(self.is_allowed, topic=topic)
        return renewed(kept.audience, changes, is_allowed, now_ms)

    def _changes_since(self, version: int, topic: str) -> list[Change] | None:
        """Of the subscriptions of a topic; None when that is not known any more."""
        count = self.version - version
        if count > len(self._changes):
            return None
        found = []
        for change in islice(reversed(self._changes), count):
            if change is None:
                return None
            if _matches(change.subscription.pattern, topic):
                found.append(change)
        return found[::-1]

    def _keep(self, topic: str, found: Audience, now_ms: int) -> None:
        """This is the audience of a topic."""
        self._audience_entries += 1 + len(topic) // CHARACTERS_PER_ENTRY
        if found is not self._last_audience:
            self._last_audience = found
            self._audience_entries += len(found.subscriptions)
        if self._audience_entries > AUDIENCE_ENTRIES_MAX:
            self._audiences.clear()
            self._audience_entries = 0
        self._audiences[topic] = found
        if len(found.subscriptions) >= KEPT_MIN:
            self._kept.pop(topic, None)
            self._kept[topic] = _Kept(found, self.version, now_ms)
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def _choices_for(self, topic: str, learned: Choices | None, count: int) -> Choices:
        """What the choices of so many on a topic are made from."""
        kept, last = self._kept.get(topic), self._last_audience
        if learned is not None and learned.members:
            return learned
        for one in (kept.audience if kept is not None else None, last):
            if one is not None and one.selecting.is_near(count):
                return one.selecting.copy()
        return Choices()

    def _last_if_same(self, crowd: Crowd, withheld: list[Subscription]) -> Audience | None:
        """The last audience, if it is that of these."""
        last = self._last_audience
        is_same = (
            last is not None
            and last.redefined_count == self._redefined_count
            and last.subscriptions == crowd.every
            and last.withheld == withheld
        )
        return last if is_same else None

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

    def has_rights(self, subscription: Subscription) -> bool:
        """Whether its owner may have anything of what it asks for, where it is put."""
        owner, authority = subscription.definition.owner, self.authority
        if authority is None or not owner:
            return True
        queue = "" if subscription.queue is None else subscription.queue.name
        return authority.may_receive_some(owner, subscription.pattern, queue)

    def changed(self, change: Change | None = None) -> None:
        """A subscription came or went; None: one is, or all are, not what they were."""
        self.version += 1
        self._changes.append(change)
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
        self.changed(Change(subscription, is_added=True))
        if subscription.ends_at_ms:
            self.expiring[subscription.order] = subscription
        if subscription.is_durable:  # in the log a new one may come before the end of the old one
            self._named[subscription.key] = subscription
            self._durables.setdefault(subscription.name, []).append(subscription)
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
        self.changed(Change(subscription, is_added=False))
        if self._named.get(subscription.key) is subscription:
            del self._named[subscription.key]
        alike = self._durables.get(subscription.name, [])
        if subscription in alike:
            alike.remove(subscription)
            if not alike:
                del self._durables[subscription.name]
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

    def durables(self, name: str) -> Sequence[Subscription]:
        """The durable subscriptions of that name, in the order of their beginning."""
        return self._durables.get(name, ())

    def prune(self, now_ms: int) -> list[str]:
        """Take away the topics that nothing has used for their life."""
        for topic, (_, _, at_ms) in [*self._drafts.items()]:
            if now_ms - at_ms > DRAFT_LIFE_MS:
                del self._drafts[topic]
        for topic, kept in [*self._kept.items()]:
            if now_ms - kept.used_ms > KEPT_LIFE_MS:
                del self._kept[topic]
        return self.tree.prune(now_ms - self._settings.topic_life_ms)


def _matches(pattern: Pattern, topic: str) -> bool:
    if is_own(topic) and not pattern.is_own:
        return False
    return pattern.matches(topic) if pattern.is_wildcard else pattern.topic == topic
