"""What the engine is told at boot; all sizes in bytes, all times in milliseconds."""

from dataclasses import dataclass, field

from hms.engine.cluster.cluster_settings import ClusterSettings
from hms.engine.flow.destination_control import NO_LIMITS, Limits
from hms.engine.groups.message_sort import SortSettings
from hms.engine.schedule.schedule_plans import NO_CALENDAR, Calendar

DEAD_LETTER_QUEUE = "HMS.DLQ"
REPLAY_QUEUE = "HMS.REPLAY"
"""Where a node keeps how far replays into it have come."""


@dataclass(frozen=True, slots=True)
class DestinationSettings:
    """A configured queue or topic. is_warm None and redelivery_limit None: as the node has it."""

    kind: str
    name: str
    is_warm: bool | None = None
    redelivery_limit: int | None = None
    dead_letter: str | None = None
    """The queue that gets what fails here; "" discards it. These three None: as the node has it."""
    messages_max: int = 0
    redelivery_delay_ms: int | None = None
    expired_to: str | None = None
    """The queue that gets what expires here; "" discards it (F-C10)."""
    topic_string: str = ""
    """Of a topic; "" is its name."""
    persistent_delivery: str = ""
    non_persistent_delivery: str = ""
    """Of a topic: a Delivery; "" is as the topic above has it."""
    bytes_max: int = 0
    message_bytes_max: int = 0
    producers_max: int = 0
    active_max: int = 0
    """Of a queue: so many consumers get messages at once; 0 any number (F-C13)."""
    backups_max: int = 0
    """Maximum number of standby consumers."""
    limit_behavior: str = "REJECT_NEWEST"
    export_name: str = ""
    sort: SortSettings | None = None
    """Of a queue: the property that orders what waits (F-C15)."""
    is_gathering: bool = False
    """Groups are gathered to lists (F-C17)."""
    group_life_ms: int = -1
    """How long a list may wait to be whole; -1 for ever."""


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """A durable subscription that exists from boot (F-E5). scheme: of the topic's wildcards;
    queue: where what it takes is put; correlation_id: what it then carries."""

    name: str
    topic: str
    selector: str = ""
    scheme: str = "TOPIC"
    queue: str = ""
    correlation_id: str = ""
    retained: str = "ALL"
    sort: SortSettings | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A node's limits. redelivery_limit: so many failures and a message is dead; -1 none."""

    node_index: int = 1
    is_warm: bool = True
    redelivery_limit: int = 3
    redelivery_delay_ms: int = 0
    dead_letter: str = DEAD_LETTER_QUEUE
    expired_to: str = ""
    """What holds for destinations that do not say it."""
    memory_bytes_max: int = 1 << 30
    paging_share: float = 0.75
    """From this share of the memory on, bodies are left in the log (F-C12)."""
    abandoned_after_ms: int = 86_400_000
    """When messages have waited so long for a durable subscriber that does not come, somebody
    should know (F-H5)."""
    message_bytes_max: int = 16 << 20
    transaction_bytes_max: int = 32 << 20
    transaction_idle_ms: int = 0
    """So long a local transaction may stay open without a send or receipt; 0 for ever."""
    sessions_max: int = 1024
    consumers_max: int = 65_536
    selectors_max: int = 1000
    """Consumers with selectors of a queue."""
    prefetch_max: int = 8192
    prefetch_bytes_max: int = 64 << 20
    frames_in_flight_max: int = 64
    producers_remembered: int = 10_000
    definitions_bytes_max: int = 4 << 20
    """What all queues, topics and durable subscriptions may take in a segment's dictionary."""
    passing_bytes_max: int = 64 << 20
    """What may wait for a subscriber that is not durable; beyond it the oldest is discarded."""
    is_topics_open: bool = False
    """Whether a topic needs no configured one at or above it."""
    is_topics_strict: bool = False
    """Whether publishing on a topic that a pattern cannot name alone is refused (PUBSUB WC-08)."""
    topic_life_ms: int = 1_800_000
    topics_max: int = 100_000
    topic_characters_max: int = 10_240
    topic_levels_max: int = 256
    retained_max: int = 100_000
    retained_bytes_max: int = 256 << 20
    limits: Limits = NO_LIMITS
    """Of all destinations together (F-C11)."""
    paged_max: int = 4_000_000
    """So many messages may wait whose bodies are in the log only; each takes some memory."""
    blocked_ms_max: int = 200_000
    """A send waits no longer for room, nor longer than its own client does."""
    blocked_bytes_max: int = 64 << 20
    """What all sends that wait for room may take."""
    is_auto: bool = False
    """Whether a queue is made by its first use (F-C5), and stays until it was idle so long."""
    auto_idle_ms: int = 600_000
    schedules_max: int = 100_000
    keeps_temporary: bool = False
    """Whether the log has temporary destinations, as another machine may go on with it (F-C6)."""
    file_life_ms: int = 86_400_000
    """How long a file is kept that no message names."""
    is_sender_told: bool = False
    """Whether each message says which user sent it."""
    calendar: Calendar = NO_CALENDAR
    """Knows cron expressions and time zones."""
    destinations: tuple[DestinationSettings, ...] = field(default=())
    subscriptions: tuple[SubscriptionSettings, ...] = field(default=())
    cluster: ClusterSettings | None = None
    """The other nodes that this one acts with; None: it is alone."""
