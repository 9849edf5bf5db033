"""The sections of hms.conf that describe destinations: queues, topics and subscriptions."""

from typing import Annotated, Literal, Self, TypeVar

from msgspec import Meta, field
from msgspec.structs import replace

from hms.boot import kinds, kinds_topics
from hms.boot.sections.node_sections import Name, Node, WarmOrCold
from hms.boot.sections.process_sections import Home
from hms.boot.sections.section import ABSENT, YEAR_S, Named, Section, Size, key, reads
from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.groups.message_sort import SortType
from hms.engine.topic import Delivery, Scheme

__all__ = ["QUEUE", "SUBSCRIPTION", "TOPIC", "Queue", "Subscription", "Topic"]

QueueName = Annotated[str, reads(kinds.destination_or_none)]
_T = TypeVar("_T")
ServiceName = Annotated[str, reads(kinds.service)]
Selector = Annotated[str, reads(kinds.selector)]
Text = Annotated[str, reads(kinds_topics.text)]
TopicString = Annotated[str, reads(kinds_topics.topic_string)]
SortKey = Annotated[
    Text,
    Meta(description='The property that orders what waits; "" keeps the order of arrival.'),
]
SortedBy = Annotated[
    SortType,
    Meta(description="What type the property has; a queue refuses a message with another one."),
]
SortDirection = Annotated[
    Literal["ASCENDING", "DESCENDING"],
    Meta(description="Whether the smallest or the largest comes first."),
]


class _Destination(Named, frozen=True, kw_only=True):
    """What queues and topics have in common; what is None is as the node has it."""

    svgname: Home = field(name="SVGNAME", default=None)
    boot: Annotated[WarmOrCold | None, key(otherwise="BOOT of the node", example="WARM")] = field(
        name="BOOT", default=None
    )
    """WARM or COLD for this one alone."""
    redelivery_limit: Annotated[
        int | None,
        Meta(ge=-1, le=10_000),
        key(otherwise="redelivery_limit of the node", example=3, engine="redelivery_limit"),
    ] = None
    """So many failed deliveries make a message a dead letter: 3 tries it 3 times; -1 never."""
    redelivery_delay_s: Annotated[
        float | None,
        Meta(ge=0, le=86_400),
        key(otherwise="redelivery_delay_s of the node", example=5, engine="redelivery_delay_ms"),
    ] = None
    """Pause before a failed message is tried again; those behind it do not wait for it."""
    dead_letter: Annotated[
        QueueName | None,
        key(otherwise="dead_letter of the node", example="HMS.DLQ", engine="dead_letter"),
    ] = None
    """The queue that gets a message whose redelivery_limit is reached; "" discards it."""
    expired_to: Annotated[
        QueueName | None,
        key(otherwise="expired_to of the node", example="HMS.DLQ", engine="expired_to"),
    ] = None
    """The queue that gets what expires here; "" discards it."""
    max_messages: Annotated[int, Meta(ge=0, le=1 << 40), key(engine="messages_max")] = 0
    """The most messages that wait; 0 sets no limit but the node's memory."""
    max_bytes: Annotated[Size, Meta(ge=0, le=1 << 50), key(engine="bytes_max")] = 0
    """The most bytes of heads and bodies that wait; 0 sets no limit but the node's memory."""
    max_message_bytes: Annotated[Size, Meta(ge=0, le=1 << 30), key(engine="message_bytes_max")] = 0
    """The largest message; 0 is max_message_bytes of the node."""
    max_producers: Annotated[int, Meta(ge=0, le=1 << 24), key(engine="producers_max")] = 0
    """The most producers open at once; 0 sets no limit."""
    limit_behavior: Annotated[LimitBehavior, key(engine="limit_behavior")] = (
        LimitBehavior.REJECT_NEWEST
    )
    """When it is full: senders wait or are refused, or messages that wait are removed."""
    export_name: Annotated[QueueName, key(engine="export_name")] = ""
    """The name by which clients look it up; "" is its own name."""

    def on(self, node: Node | None) -> Self:
        """The same with what the node decides filled in."""
        if node is None:
            return self
        return replace(
            self,
            boot=self.boot or node.boot,
            redelivery_limit=_or(self.redelivery_limit, node.redelivery_limit),
            redelivery_delay_s=_or(self.redelivery_delay_s, node.redelivery_delay_s),
            dead_letter=_or(self.dead_letter, node.dead_letter),
            expired_to=_or(self.expired_to, node.expired_to),
        )


def _or(own: _T | None, of_node: _T) -> _T:
    return of_node if own is None else own


class Queue(_Destination, frozen=True, kw_only=True):
    """A queue: each message goes to one consumer and waits until it is taken."""

    max_active_consumers: Annotated[int, Meta(ge=0, le=1 << 20), key(engine="active_max")] = 0
    """So many consumers get messages at once; 0 sets no limit."""
    max_backup_consumers: Annotated[int, Meta(ge=0, le=1 << 20), key(engine="backups_max")] = 0
    """Maximum number of standby consumers, which take over when an active one leaves."""
    sort_key: SortKey = ""
    sort_type: SortedBy = SortType.STRING
    sort_direction: SortDirection = "ASCENDING"
    message_group: Literal["PASS", "GATHER"] = "PASS"
    """Whether the messages of a group pass one by one, or wait until they are one list."""
    group_expiry_s: Annotated[float, Meta(ge=-1, le=100 * YEAR_S)] = -1
    """How long a list may wait to be whole; then its messages are dead letters. -1: forever."""
    listener: ServiceName = ""
    """The service that the node calls for every message; "" leaves them to consumers."""
    listener_sessions: Annotated[int, Meta(ge=1, le=256)] = 1
    """Sessions that feed it: one keeps the order, more run side by side."""
    global_: Literal["Y", "N"] = field(name="GLOBAL", default="N")
    """Y: one queue with those of its name at other nodes; a message is at one of them."""
    gqthr: Annotated[int, Meta(ge=1, le=1_000_000)] = field(name="GQTHR", default=100)
    """Messages to have ready for each consumer; a shorter queue asks other nodes."""
    gqmaxreq: Annotated[int, Meta(ge=1, le=1_000_000)] = field(name="GQMAXREQ", default=1000)
    """The most messages that come for one request."""
    gqfull: Annotated[int, Meta(ge=0, le=1 << 40)] = field(name="GQFULL", default=10_000)
    """From so many waiting messages on it gives to shorter ones unasked; 0 never."""
    delivery: Literal["EVERYWHERE", "LOCAL_PREFERRED", "LOCAL_ONLY"] = "EVERYWHERE"
    """Whose consumers get them: any node's; others' if there is none here; this node's only."""


class Topic(_Destination, frozen=True, kw_only=True):
    """A topic: each message goes to every subscriber of that moment."""

    topic_string: Annotated[
        TopicString | None, key(otherwise="its name", example="news", engine="topic_string")
    ] = None
    """Where it stands among the topics; fixed once the node has booted with it."""
    persistent_delivery: Annotated[
        Delivery | None,
        key(
            otherwise="that of the topic above; at last ALLDUR",
            example="ALLDUR",
            engine="persistent_delivery",
        ),
    ] = None
    """Which subscriptions have to take a persistent publication, or nobody gets it."""
    non_persistent_delivery: Annotated[
        Delivery | None,
        key(
            otherwise="that of the topic above; at last ALLAVAIL",
            example="ALLAVAIL",
            engine="non_persistent_delivery",
        ),
    ] = None
    """Which subscriptions have to take any other publication, or nobody gets it."""
    global_: Literal["Y", "N"] = field(name="GLOBAL", default="N")
    """Y: what is published here or below goes to subscribers at other nodes too."""


class Subscription(Named, frozen=True, kw_only=True):
    """A durable subscription that exists from boot, before its first consumer comes."""

    topic: Annotated[TopicString, key(example="news", engine="topic")]
    """The topic, by its name or its topic string, with wildcards if need be."""
    scheme: Annotated[Scheme, key(engine="scheme")] = Scheme.TOPIC
    """How wildcards of topic are written: + and # for levels, or * and ? for characters."""
    queue: Annotated[QueueName, key(engine="queue")] = ""
    """The queue that gets what it takes; "" keeps it for subscribers of its name."""
    correlation_id: Annotated[Text, key(engine="correlation_id")] = ""
    """The correlation id of what it puts into the queue; "" leaves the sender's."""
    retained: Annotated[Literal["ALL", "NEW"], key(engine="retained")] = "ALL"
    """Whether it gets what is retained when it begins, or only what comes."""
    sort_key: SortKey = ""
    sort_type: SortedBy = SortType.STRING
    sort_direction: SortDirection = "ASCENDING"
    selector: Annotated[Selector, key(engine="selector")] = ""
    """Which messages it takes; "" takes all. Its consumers give the same one."""
    svgname: Annotated[Name | None, key(otherwise="every node of its topic", example="hms01")] = (
        field(name="SVGNAME", default=None)
    )
    """The server group, and so the node, where it exists."""


_GLOBAL = dict.fromkeys(("GQTHR", "GQMAXREQ", "GQFULL"), "is for queues")
_TYPE = {"TYPE": "is told by the section: [hms.queue.NAME] or [hms.topic.NAME]"}

QUEUE = Section(
    ("hms", "queue"),
    Queue,
    "[hms.queue.orders]",
    read_name=kinds.destination,
    later={"max_consumers": "is written max_active_consumers", **_TYPE},
)

TOPIC = Section(
    ("hms", "topic"),
    Topic,
    "[hms.topic.news]",
    read_name=kinds.destination,
    later={
        "multicast": ABSENT,
        "subscriptions": "stand in sections of their own: [hms.subscription.NAME]",
        "max_consumers": "topics have no limit of subscribers; max_consumers of the node holds",
        **dict.fromkeys(("max_active_consumers", "max_backup_consumers"), "is for queues"),
        **_GLOBAL,
        **_TYPE,
    },
)

SUBSCRIPTION = Section(
    ("hms", "subscription"),
    Subscription,
    "# [hms.subscription.billing]",
    read_name=kinds.destination,
    later={
        "BOOT": "is that of its topic",
        "no_local": ABSENT,
        "client_id": ABSENT,
        "GLOBAL": "is that of its topic",
        **_GLOBAL,
    },
)
