"""The sections of hms.conf that describe nodes: [domain], [node.NAME] and [svrgroup.NAME]."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from hms.boot import database_kinds, kinds, kinds_cluster
from hms.boot.sections.section import ABSENT, DAY_S, YEAR_S, Entry, Named, Section, Size, reads, why

__all__ = ["DOMAIN", "NODE", "SVRGROUP", "Domain", "Group", "Name", "Node", "WarmOrCold"]

Name = Annotated[str, reads(kinds.name)]
Addresses = Annotated[tuple[str, ...], reads(kinds.addresses)]
Rights = Annotated[str, reads(kinds.mode)]
Database = Annotated[str, reads(database_kinds.database)]
Secret = Annotated[str, reads(database_kinds.secret)]
TablePrefix = Annotated[str, reads(database_kinds.table_prefix)]
Host = Annotated[str, reads(kinds_cluster.host)]
PublicKey = Annotated[str, reads(kinds_cluster.public_key)]
WarmOrCold = Literal["WARM", "COLD"]


class Domain(Entry, frozen=True, kw_only=True):
    """The whole that this file describes."""

    name: Annotated[Name, why("The name of the domain in logs and listings.")] = "hms"
    maxsession: Annotated[
        int,
        Meta(ge=1, le=65_535),
        why("The most sessions a node of the domain may be told to allow."),
    ] = field(name="MAXSESSION", default=1024)
    config_master: Annotated[
        Name | None,
        why(
            "The only node where destinations are created, altered and deleted at run time.",
            otherwise="none: any node of the cluster",
            example="NODE1",
        ),
    ] = None


class Group(Named, frozen=True, kw_only=True):
    """A server group. The one of type HMS is the node's broker; without one its defaults hold."""

    nodename: Annotated[
        Name,
        why("The node it belongs to.", otherwise="the only node of this file", example="NODE1"),
    ] = field(name="NODENAME")
    svgtype: Annotated[
        Literal["HMS", "TMAX"],
        why("HMS is the broker, one on each node; TMAX holds application servers."),
    ] = field(name="SVGTYPE", default="HMS")
    hmsindex: Annotated[
        int,
        Meta(ge=1, le=255),
        why("First part of every message id, so that ids are unique; each node has its own."),
    ] = field(name="HMSINDEX", default=1)
    hmsmaxthr: Annotated[
        int, Meta(ge=1, le=64), why("General worker threads, which run what needs no storage.")
    ] = field(name="HMSMAXTHR", default=2)
    hmsmaxdbthr: Annotated[
        int, Meta(ge=1, le=64), why("Storage worker threads, which write and sync the log.")
    ] = field(name="HMSMAXDBTHR", default=4)
    hmsport: Annotated[
        int | None,
        Meta(ge=1, le=65_535),
        why(
            "The port where other nodes find it; a node with one is in the domain's cluster.",
            otherwise="none: the node is alone",
            example=7800,
        ),
    ] = field(name="HMSPORT", default=None)
    link_host: Annotated[
        Host, why("The address of that port; beyond loopback every node needs keys.")
    ] = "127.0.0.1"
    hmsheartbeat: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        why("Seconds of silence after which another node is taken as failed."),
    ] = field(name="HMSHEARTBEAT", default=10)
    hmsgqint: Annotated[
        float,
        Meta(ge=0.05, le=3600),
        why("Seconds between what nodes tell one another of their global queues."),
    ] = field(name="HMSGQINT", default=5)
    link_key_file: Annotated[
        Path | None,
        why(
            "The file with the node's key pair; hms config keys writes it. Relative to this file.",
            otherwise="none: links are not encrypted",
            example="var/NODE1/link.key",
        ),
    ] = None
    link_public_key: Annotated[
        PublicKey | None,
        why(
            "Its public key, by which the other nodes know it.",
            otherwise="none",
            example="rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        ),
    ] = None

    @property
    def link_address(self) -> str:
        """Where other nodes find the node."""
        host = f"[{self.link_host}]" if ":" in self.link_host else self.link_host
        return f"tcp://{host}:{self.hmsport}"


class Node(Named, frozen=True, kw_only=True):
    """One node: where it listens, where it stores, and its limits."""

    group: Group
    """Its broker."""

    listen: Annotated[
        Addresses,
        why("Addresses for clients; only loopback and ipc, as links are not encrypted yet."),
    ] = ("tcp://127.0.0.1:7700",)
    ipc_mode: Annotated[
        Rights,
        why("Who may connect to an ipc address, as rights of its file; 0660 lets the group."),
    ] = "0600"
    security: Annotated[
        Path | None,
        why(
            "The file with users, roles and permissions; hms config secure makes one.",
            otherwise="none: the node is open and trusts whoever reaches it",
            example="security.toml",
        ),
    ] = None
    store: Annotated[
        Path,
        why(
            "Directory of the log; relative to this file. One node owns one store.",
            otherwise="var/NAME/store",
            example="var/NODE1/store",
        ),
    ]
    database: Annotated[
        Database | None,
        why(
            'A database instead of the log: "postgresql://USER@HOST/NAME" or "sqlite:PATH".',
            otherwise="none: the log in store",
            example="postgresql://hms@127.0.0.1/hms",
        ),
    ] = None
    database_password: Annotated[
        Secret | None,
        why(
            'Where its password is, never the password itself: "env:NAME" or "file:PATH".',
            otherwise="none",
            example="env:HMS_DATABASE_PASSWORD",
        ),
    ] = None
    table_prefix: Annotated[
        TablePrefix | None,
        why(
            "What the tables' names begin with; nodes that share a database differ in it.",
            otherwise="NAME_ in small letters",
            example="node1_",
        ),
    ] = None
    database_lease_s: Annotated[
        float,
        Meta(ge=1, le=3600),
        why("How long a silent node keeps its claim on the tables; then another may take it."),
    ] = 15
    database_retry_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        why("How long a database that does not answer is waited for before the node stops."),
    ] = 60
    runtime: Annotated[
        Path,
        why(
            "Directory of the pid file and the node's log.",
            otherwise="the folder run beside the store",
            example="var/NODE1/run",
        ),
    ]
    boot: Annotated[
        WarmOrCold, why("WARM recovers what the store holds; COLD deletes it at every boot.")
    ] = field(name="BOOT", default="WARM")
    maxsession: Annotated[
        int,
        Meta(ge=1, le=65_535),
        why(
            "The most sessions open at once; one connection may have three quarters of them.",
            otherwise="MAXSESSION of [domain]",
            example=1024,
            engine="sessions_max",
        ),
    ] = field(name="MAXSESSION")
    heartbeat_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        why("After how long without a word a client's libzmq, or a node, is taken for lost."),
    ] = 10
    max_message_bytes: Annotated[
        Size,
        Meta(ge=1024, le=1 << 30),
        why(
            "The largest message; a larger one is refused when it is sent.",
            engine="message_bytes_max",
        ),
    ] = 16 << 20
    max_transaction_bytes: Annotated[
        Size,
        Meta(ge=1024, le=1 << 30),
        why(
            "The most one transaction sends; it is one record, at most half a segment.",
            engine="transaction_bytes_max",
        ),
    ] = 32 << 20
    transaction_idle_s: Annotated[
        float,
        Meta(ge=0, le=YEAR_S),
        why(
            "A local transaction is rolled back when nothing happens in it for so long. 0: never.",
            engine="transaction_idle_ms",
        ),
    ] = 0
    segment_bytes: Annotated[
        Size,
        Meta(ge=1 << 20, le=1 << 31, multiple_of=8),
        why("The size of one file of the log, given to the disk in advance."),
    ] = 64 << 20
    max_log_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 50),
        why("The most that log, reserve and history take, at least 8 segments. 0: no limit."),
    ] = 0
    history_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 50),
        why("How much of the past is kept beside the log; the oldest goes first. 0: none."),
    ] = 16 << 30
    history_age_s: Annotated[
        float,
        Meta(ge=0, le=10 * YEAR_S),
        why("How long the past is kept, from a segment's last record on. 0: as long as it fits."),
    ] = 0
    archive: Annotated[
        Literal["NONE", "REQUIRED"],
        why("REQUIRED keeps all of the past until hms history archive has it, beyond both limits."),
    ] = "NONE"
    abandoned_after_s: Annotated[
        float,
        Meta(ge=1, le=10 * YEAR_S),
        why(
            "When messages wait so long for a durable subscriber, status and the log tell of it.",
            engine="abandoned_after_ms",
        ),
    ] = 86_400
    max_memory_bytes: Annotated[
        Size,
        Meta(ge=1 << 20, le=1 << 40),
        why(
            "The most bytes of waiting messages; beyond it sending is refused.",
            engine="memory_bytes_max",
        ),
    ] = 1 << 30
    max_pending_bytes: Annotated[
        Size,
        Meta(ge=1 << 20, le=1 << 40),
        why(
            "What may wait for a subscriber that is not durable; beyond it its oldest go, counted.",
            engine="passing_bytes_max",
        ),
    ] = 64 << 20
    max_paged_messages: Annotated[
        int,
        Meta(ge=1000, le=1 << 32),
        why(
            "The most messages whose bodies wait in the log only; each takes about 300 bytes.",
            engine="paged_max",
        ),
    ] = 4_000_000
    max_messages: Annotated[
        int,
        Meta(ge=0, le=1 << 40),
        why("The most messages in all destinations together; 0 sets no limit."),
    ] = 0
    max_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 50),
        why("The most bytes of heads and bodies in all destinations together; 0 sets no limit."),
    ] = 0
    max_producers: Annotated[
        int,
        Meta(ge=0, le=1 << 24),
        why("The most producers open at once on the node; 0 sets no limit."),
    ] = 0
    limit_behavior: Annotated[
        Literal["REJECT_NEWEST", "FLOW_CONTROL"],
        why("What a full node does: it refuses what is sent, or lets it wait for room."),
    ] = "REJECT_NEWEST"
    flow_control_s: Annotated[
        float,
        Meta(ge=0.1, le=86_400),
        why(
            "How long a send waits for room at most, if its client does not give up before.",
            engine="blocked_ms_max",
        ),
    ] = 200
    max_blocked_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 40),
        why(
            "The most bytes of sends that wait for room; one more is refused at once.",
            engine="blocked_bytes_max",
        ),
    ] = 64 << 20
    auto_destinations: Annotated[
        bool, why("Whether a queue that does not exist is made by its first use.", engine="is_auto")
    ] = False
    auto_idle_s: Annotated[
        float,
        Meta(ge=1, le=10 * 365 * DAY_S),
        why(
            "How long such a queue stays when it is empty and nobody has it open.",
            engine="auto_idle_ms",
        ),
    ] = 600
    open_topics: Annotated[
        bool,
        why(
            "Whether any topic string may be used, also with no configured topic at or above it.",
            engine="is_topics_open",
        ),
    ] = False
    strict_topics: Annotated[
        bool,
        why(
            "Whether publishing on a topic with a level that is # or + is refused.",
            engine="is_topics_strict",
        ),
    ] = False
    topic_life_s: Annotated[
        float,
        Meta(ge=1, le=10 * 365 * DAY_S),
        why("How long a topic that nothing uses is remembered.", engine="topic_life_ms"),
    ] = 1800
    max_topics: Annotated[
        int,
        Meta(ge=1, le=1 << 24),
        why(
            "The most topics in use; one client may have three quarters of them.",
            engine="topics_max",
        ),
    ] = 100_000
    max_topic_length: Annotated[
        int,
        Meta(ge=1, le=1 << 14),
        why("The most characters of a topic string.", engine="topic_characters_max"),
    ] = 10_240
    max_topic_levels: Annotated[
        int,
        Meta(ge=1, le=1024),
        why("The most levels of a topic string.", engine="topic_levels_max"),
    ] = 256
    max_retained: Annotated[
        int,
        Meta(ge=0, le=1 << 24),
        why(
            "The most topics with a retained publication; one more is refused.",
            engine="retained_max",
        ),
    ] = 100_000
    max_retained_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 40),
        why(
            "The most bytes of retained publications; they stay in memory.",
            engine="retained_bytes_max",
        ),
    ] = 256 << 20
    max_requests: Annotated[
        int,
        Meta(ge=1, le=1 << 12),
        why(
            "The most frames of one producer that wait for their confirmation.",
            engine="frames_in_flight_max",
        ),
    ] = 64
    max_connections: Annotated[
        int,
        Meta(ge=1, le=100_000),
        why("The most connections of clients; fewer where the system allows fewer descriptors."),
    ] = 10_000
    max_consumers: Annotated[
        int,
        Meta(ge=1, le=1 << 20),
        why("The most consumers open at once on the node.", engine="consumers_max"),
    ] = 1 << 16
    max_schedules: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        why("The most schedules that send messages again and again.", engine="schedules_max"),
    ] = 100_000
    max_file_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 50),
        why("The most bytes of files that messages bring, beside the log; then they are refused."),
    ] = 16 << 30
    file_life_s: Annotated[
        float,
        Meta(ge=60, le=10 * YEAR_S),
        why(
            "How long a file is kept that stopped to come, or that no message names.",
            engine="file_life_ms",
        ),
    ] = 86_400
    blocktime: Annotated[
        float,
        Meta(ge=0, le=86_400),
        why("How long a call waits when neither caller nor service says it; 0: for ever."),
    ] = field(name="BLOCKTIME", default=30)
    prefetch_max: Annotated[
        int,
        Meta(ge=1, le=65_535),
        why(
            "The most messages on their way to a consumer: sent, not received by its application.",
            engine="prefetch_max",
        ),
    ] = 1 << 13
    prefetch_bytes: Annotated[
        Size,
        Meta(ge=1, le=1 << 31),
        why("The same in bytes, where a consumer does not say it; one message is always allowed."),
    ] = 16 << 20
    prefetch_bytes_max: Annotated[
        Size,
        Meta(ge=1, le=1 << 31),
        why("The most that a consumer may say as its prefetch_bytes.", engine="prefetch_bytes_max"),
    ] = 64 << 20
    max_selectors: Annotated[
        int,
        Meta(ge=1, le=65_536),
        why(
            "The most consumers with selectors of a queue: what is sent there asks each of them.",
            engine="selectors_max",
        ),
    ] = 1000
    redelivery_limit: Annotated[
        int,
        Meta(ge=-1, le=10_000),
        why(
            "So many failed deliveries make a message a dead letter: 3 tries it 3 times; -1 never.",
            engine="redelivery_limit",
        ),
    ] = 3
    recovery_interval_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        why("How often branches in doubt are looked for; each ends within two of these intervals."),
    ] = 10
    log_file: Annotated[
        Path,
        why(
            "Where the node writes what happens to it.",
            otherwise="NAME.log in runtime",
            example="var/NODE1/run/NODE1.log",
        ),
    ]
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], why("How much it writes there.")
    ] = "INFO"


DOMAIN = Section(("domain",), Domain, "[domain]")

NODE = Section(
    ("node",),
    Node,
    "[node.NODE1]",
    shown=("listen",),
    later={
        "HMSINDEX": "stands in the node's [svrgroup.NAME]",
        "HMSMAXTHR": "stands in the node's [svrgroup.NAME]",
        "HMSMAXDBTHR": "stands in the node's [svrgroup.NAME]",
        "TMAXDIR": f"is not needed: paths are relative to hms.conf; {ABSENT}",
        "APPDIR": f"is not needed: [server.NAME] has python_path; {ABSENT}",
        "curve_secret_key": f"links are not encrypted: {ABSENT}",
        "users": f"logins are not checked: {ABSENT}",
    },
)

SVRGROUP = Section(
    ("svrgroup",),
    Group,
    "[svrgroup.hms01]",
    shown=("NODENAME", "SVGTYPE"),
    later={
        "HMSNAME": f"a node has one HMS, and no session asks for it by name: {ABSENT}",
        "OPENINFO": f"the store is the log in the node's store directory: {ABSENT}",
        "HMSMAXBULKTHR": ABSENT,
        "HMSMAXBULKSIZE": ABSENT,
        "HMSOPT": ABSENT,
        "HMSSUBSCFG": "subscriptions stand in [hms.subscription.NAME]",
        "HMSMSGLIVE": f"{ABSENT}; give ttl_s when sending",
        "RESTART": f"{ABSENT}; MAXRSTART of [server.NAME] rules restarts",
    },
)
