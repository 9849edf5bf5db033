"""The sections of hms.conf that describe nodes: [domain], [node.NAME] and [svrgroup.NAME]."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from hms.boot import database_kinds, kinds, kinds_cluster
from hms.boot.sections.section import ABSENT, DAY_S, YEAR_S, Entry, Named, Section, Size, key, reads

__all__ = ["DOMAIN", "NODE", "SVRGROUP", "Domain", "Group", "Name", "Node", "WarmOrCold"]

Name = Annotated[str, reads(kinds.name)]
Addresses = Annotated[tuple[str, ...], reads(kinds.addresses)]
Rights = Annotated[str, reads(kinds.mode)]
GroupName = Annotated[str, reads(kinds.group)]
AnchorWay = Annotated[tuple[str, ...], reads(kinds.anchor_way)]
QueueName = Annotated[str, reads(kinds.destination_or_none)]
Database = Annotated[str, reads(database_kinds.database)]
Secret = Annotated[str, reads(database_kinds.secret)]
TablePrefix = Annotated[str, reads(database_kinds.table_prefix)]
Host = Annotated[str, reads(kinds_cluster.host)]
PublicKey = Annotated[str, reads(kinds_cluster.public_key)]
WarmOrCold = Literal["WARM", "COLD"]


class Domain(Entry, frozen=True, kw_only=True):
    """The whole that this file describes."""

    name: Name = "hms"
    """The name of the domain in logs and listings."""
    maxsession: Annotated[int, Meta(ge=1, le=65_535)] = field(name="MAXSESSION", default=1024)
    """The most sessions a node of the domain may be told to allow."""
    config_master: Annotated[
        Name | None, key(otherwise="none: any node of the cluster", example="NODE1")
    ] = None
    """The only node where destinations are created, altered and deleted at run time."""


class Group(Named, frozen=True, kw_only=True):
    """A server group. The one of type HMS is the node's broker; without one its defaults hold."""

    nodename: Annotated[Name, key(otherwise="the only node of this file", example="NODE1")] = field(
        name="NODENAME"
    )
    """The node it belongs to."""
    svgtype: Literal["HMS", "TMAX"] = field(name="SVGTYPE", default="HMS")
    """HMS is the broker, one on each node; TMAX holds application servers."""
    hmsindex: Annotated[int, Meta(ge=1, le=255)] = field(name="HMSINDEX", default=1)
    """First part of every message id, so that ids are unique; each node has its own."""
    hmsmaxthr: Annotated[int, Meta(ge=1, le=64)] = field(name="HMSMAXTHR", default=2)
    """General worker threads, which run what needs no storage."""
    hmsmaxdbthr: Annotated[int, Meta(ge=1, le=64)] = field(name="HMSMAXDBTHR", default=4)
    """Storage worker threads, which write and sync the log."""
    hmsport: Annotated[
        int | None, Meta(ge=1, le=65_535), key(otherwise="none: the node is alone", example=7800)
    ] = field(name="HMSPORT", default=None)
    """The port where other nodes find it; a node with one is in the domain's cluster."""
    link_host: Host = "127.0.0.1"
    """The address of that port; beyond loopback every node needs keys."""
    hmsheartbeat: Annotated[float, Meta(ge=0.1, le=3600)] = field(name="HMSHEARTBEAT", default=10)
    """Seconds of silence after which another node is taken as failed."""
    hmsgqint: Annotated[float, Meta(ge=0.05, le=3600)] = field(name="HMSGQINT", default=5)
    """Seconds between what nodes tell one another of their global queues."""
    link_key_file: Annotated[
        Path | None, key(otherwise="none: links are not encrypted", example="var/NODE1/link.key")
    ] = None
    """The file with the node's key pair; hms config keys writes it. Relative to this file."""
    link_public_key: Annotated[
        PublicKey | None, key(otherwise="none", example="rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")
    ] = None
    """Its public key, by which the other nodes know it."""

    @property
    def link_address(self) -> str:
        """Where other nodes find the node."""
        host = f"[{self.link_host}]" if ":" in self.link_host else self.link_host
        return f"tcp://{host}:{self.hmsport}"


class Node(Named, frozen=True, kw_only=True):
    """One node: where it listens, where it stores, and its limits."""

    group: Group  # its broker, which is no key

    listen: Addresses = ("tcp://127.0.0.1:7700",)
    """Addresses for clients, loopback and ipc only; or names of [listener.NAME], encrypted."""
    ipc_mode: Rights = "0600"
    """Who may connect to an ipc address, as rights of its file; 0660 lets the group."""
    ipc_group: Annotated[
        GroupName | None, key(otherwise="none: that of the node's user", example="hms-clients")
    ] = None
    """The group of that file, which the node's user is in; ipc_mode 0660 lets it in."""
    security: Annotated[
        Path | None,
        key(
            otherwise="none: the node is open and trusts anyone who reaches it",
            example="security.toml",
        ),
    ] = None
    """The file with users, roles and permissions; hms config secure makes one."""
    sender_identity: Annotated[bool, key(engine="is_sender_told")] = False
    """A secured node writes into each message which user sent it; what a client says there goes."""
    allow_debugger: bool = False
    """Whether other processes of its user may look into a secured node's memory; for a fault."""
    store: Annotated[Path, key(otherwise="var/NAME/store", example="var/NODE1/store")]
    """Directory of the log; relative to this file. One node owns one store."""
    backups: Annotated[
        Path | None,
        key(otherwise="none: commands are told where, and nobody looks", example="/backup/NODE1"),
    ] = None
    """Folder of the node's backups: of hms backup, hms doctor and the console."""
    shared: bool = False
    """Other machines mount the store too: hms boot --standby waits there to take it over."""
    lease_s: Annotated[float, Meta(ge=3, le=120)] = 5
    """How long the owner of a shared store may be silent before a standby takes it over."""
    failover_check_timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 5
    """How long each further check of a silent owner or primary takes."""
    failover_check_count: Annotated[int, Meta(ge=0, le=1000)] = 0
    """So many further checks have to fail, behind lease_s, before another machine takes over."""
    replica: Annotated[
        Name | None, key(otherwise="none: the node has one copy of its log", example="a")
    ] = None
    """Which [replica.NAME] this machine is."""
    confirm: Literal["MAJORITY", "ALL"] = "MAJORITY"
    """How many of the copies that count must have synced a record before it is confirmed."""
    copies_min: Annotated[
        int | None,
        Meta(ge=1, le=7),
        key(otherwise="1 with up to two SYNC replicas, else 2", example=2),
    ] = None
    """With fewer copies that count nothing is confirmed; 2: a machine alone waits."""
    replica_timeout_s: Annotated[float, Meta(ge=0.5, le=3600)] = 2
    """A replica that is silent for so long counts no more, when a confirmation waits for it."""
    replica_lost_s: Annotated[float, Meta(ge=1, le=86_400)] = 60
    """The same when nothing waits; at least as long."""
    replica_window_bytes: Annotated[Size, Meta(ge=8 << 20, le=16 << 30)] = 64 << 20
    """The most bytes of the log on their way to a replica; one with more gets the rest from the
    files, and does not count until it has all."""
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 30
    """How long what was begun has to end before another replica leads as planned."""
    failback: Literal["MANUAL", "AUTO"] = "MANUAL"
    """AUTO: the replica with engine_roll = "ACTIVE" leads again by itself, as planned."""
    failback_after_s: Annotated[float, Meta(ge=1, le=86_400)] = 60
    """When it has had everything for so long."""
    database: Annotated[
        Database | None,
        key(otherwise="none: the log in store", example="postgresql://hms@127.0.0.1/hms"),
    ] = None
    """A database instead of the log: "postgresql://USER@HOST/NAME" or "sqlite:PATH"."""
    database_password: Annotated[
        Secret | None, key(otherwise="none", example="env:HMS_DATABASE_PASSWORD")
    ] = None
    """Where its password is, never the password itself: "env:NAME" or "file:PATH"."""
    table_prefix: Annotated[
        TablePrefix | None, key(otherwise="NAME_ in small letters", example="node1_")
    ] = None
    """What the tables' names begin with; nodes that share a database differ in it."""
    database_lease_s: Annotated[float, Meta(ge=1, le=3600)] = 15
    """How long a silent node keeps its claim on the tables; then another may take it."""
    database_retry_s: Annotated[float, Meta(ge=0, le=86_400)] = 60
    """How long a database that does not answer is waited for before the node stops."""
    runtime: Annotated[
        Path, key(otherwise="the folder run beside the store", example="var/NODE1/run")
    ]
    """Directory of the pid file and the node's log."""
    boot: WarmOrCold = field(name="BOOT", default="WARM")
    """WARM recovers what the store holds; COLD deletes it at every boot."""
    maxsession: Annotated[
        int,
        Meta(ge=1, le=65_535),
        key(otherwise="MAXSESSION of [domain]", example=1024, engine="sessions_max"),
    ] = field(name="MAXSESSION")
    """The most sessions open at once; one connection may have three quarters of them."""
    heartbeat_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10
    """After how long without a word a client's libzmq, or a node, is taken for lost."""
    max_message_bytes: Annotated[
        Size, Meta(ge=1024, le=1 << 30), key(engine="message_bytes_max")
    ] = 16 << 20
    """The largest message; a larger one is refused when it is sent."""
    max_transaction_bytes: Annotated[
        Size, Meta(ge=1024, le=1 << 30), key(engine="transaction_bytes_max")
    ] = 32 << 20
    """The most one transaction sends, 256 bytes a message at least; at most half a segment."""
    transaction_idle_s: Annotated[
        float, Meta(ge=0, le=YEAR_S), key(engine="transaction_idle_ms")
    ] = 0
    """A local transaction is rolled back when nothing happens in it for so long. 0: never."""
    segment_bytes: Annotated[Size, Meta(ge=1 << 20, le=1 << 31, multiple_of=8)] = 64 << 20
    """The size of one file of the log, given to the disk in advance."""
    max_log_bytes: Annotated[Size, Meta(ge=0, le=1 << 50)] = 0
    """The most that log, reserve and history take, at least 8 segments. 0: no limit."""
    history_bytes: Annotated[Size, Meta(ge=0, le=1 << 50)] = 16 << 30
    """How much of the past is kept beside the log, and 20,000 segments at most; the oldest goes
    first. 0: none."""
    history_age_s: Annotated[float, Meta(ge=0, le=10 * YEAR_S)] = 0
    """How long the past is kept, from a segment's last record on. 0: as long as it fits."""
    audit_keep_s: Annotated[float, Meta(ge=0, le=100 * YEAR_S)] = 400 * 86_400
    """How long records of a secured node's audit are kept behind the history. 0: forever."""
    audit_anchor: Annotated[
        AnchorWay | None, key(otherwise="none: hms audit anchor prints it", example="syslog")
    ] = None
    """Where number and hash of the audit's last record are sent every hour."""
    archive: Literal["NONE", "REQUIRED"] = "NONE"
    """REQUIRED keeps all of the past until hms history archive has it, beyond both limits."""
    abandoned_after_s: Annotated[
        float, Meta(ge=1, le=10 * YEAR_S), key(engine="abandoned_after_ms")
    ] = 86_400
    """When messages wait so long for a durable subscriber, status and the log tell of it."""
    max_memory_bytes: Annotated[
        Size, Meta(ge=1 << 20, le=1 << 40), key(engine="memory_bytes_max")
    ] = 1 << 30
    """The most bytes of waiting messages; beyond it sending is refused. Not given: at most half
    of what the node's container or unit may take, and at least 256 MiB below it."""
    max_pending_bytes: Annotated[
        Size, Meta(ge=1 << 20, le=1 << 40), key(engine="passing_bytes_max")
    ] = 64 << 20
    """What may wait for a subscriber that is not durable; beyond it its oldest go, counted."""
    max_paged_messages: Annotated[int, Meta(ge=1000, le=1 << 32), key(engine="paged_max")] = (
        4_000_000
    )
    """The most messages whose bodies wait in the log only; each takes about 300 bytes."""
    max_messages: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    """The most messages in all destinations together; 0 sets no limit."""
    max_bytes: Annotated[Size, Meta(ge=0, le=1 << 50)] = 0
    """The most bytes of heads and bodies in all destinations together; 0 sets no limit."""
    max_producers: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    """The most producers open at once on the node; 0 sets no limit."""
    limit_behavior: Literal["REJECT_NEWEST", "FLOW_CONTROL"] = "REJECT_NEWEST"
    """What a full node does: it refuses what is sent, or lets it wait for room."""
    flow_control_s: Annotated[float, Meta(ge=0.1, le=86_400), key(engine="blocked_ms_max")] = 200
    """How long a send waits for room at most, if its client does not give up before."""
    max_blocked_bytes: Annotated[Size, Meta(ge=0, le=1 << 40), key(engine="blocked_bytes_max")] = (
        64 << 20
    )
    """The most bytes of sends that wait for room; one more is refused at once."""
    auto_destinations: Annotated[bool, key(engine="is_auto")] = False
    """Whether a queue that does not exist is made by its first use."""
    auto_idle_s: Annotated[float, Meta(ge=1, le=10 * 365 * DAY_S), key(engine="auto_idle_ms")] = 600
    """How long such a queue stays when it is empty and nobody has it open."""
    open_topics: Annotated[bool, key(engine="is_topics_open")] = False
    """Whether any topic string may be used, also with no configured topic at or above it."""
    strict_topics: Annotated[bool, key(engine="is_topics_strict")] = False
    """Whether publishing on a topic with a level that is # or + is refused."""
    topic_life_s: Annotated[float, Meta(ge=1, le=10 * 365 * DAY_S), key(engine="topic_life_ms")] = (
        1800
    )
    """How long a topic that nothing uses is remembered."""
    max_topics: Annotated[int, Meta(ge=1, le=1 << 24), key(engine="topics_max")] = 100_000
    """The most topics in use; one client may have three quarters of them."""
    max_topic_length: Annotated[int, Meta(ge=1, le=1 << 14), key(engine="topic_characters_max")] = (
        10_240
    )
    """The most characters of a topic string."""
    max_topic_levels: Annotated[int, Meta(ge=1, le=1024), key(engine="topic_levels_max")] = 256
    """The most levels of a topic string."""
    max_retained: Annotated[int, Meta(ge=0, le=1 << 24), key(engine="retained_max")] = 100_000
    """The most topics with a retained publication; one more is refused."""
    max_retained_bytes: Annotated[
        Size, Meta(ge=0, le=1 << 40), key(engine="retained_bytes_max")
    ] = 256 << 20
    """The most bytes of retained publications; they stay in memory."""
    max_requests: Annotated[int, Meta(ge=1, le=1 << 12), key(engine="frames_in_flight_max")] = 64
    """The most frames of one producer that wait for their confirmation."""
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """The most connections of clients; fewer where the system allows fewer descriptors."""
    max_connections_per_address: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The most of them from one other machine, of IPv6 from one /64; 0 sets no limit."""
    max_consumers: Annotated[int, Meta(ge=1, le=1 << 20), key(engine="consumers_max")] = 1 << 16
    """The most consumers open at once on the node."""
    max_schedules: Annotated[int, Meta(ge=0, le=1_000_000), key(engine="schedules_max")] = 100_000
    """The most schedules that send messages again and again."""
    max_file_bytes: Annotated[Size, Meta(ge=0, le=1 << 50)] = 16 << 30
    """The most bytes of files that messages bring, beside the log; then they are refused."""
    file_life_s: Annotated[float, Meta(ge=60, le=10 * YEAR_S), key(engine="file_life_ms")] = 86_400
    """How long a file is kept that stopped to come, or that no message names."""
    blocktime: Annotated[float, Meta(ge=0, le=86_400)] = field(name="BLOCKTIME", default=30)
    """How long a call waits when neither caller nor service says it; 0: forever."""
    prefetch_max: Annotated[int, Meta(ge=1, le=65_535), key(engine="prefetch_max")] = 1 << 13
    """The most messages on their way to a consumer: sent, not received by its application."""
    prefetch_bytes: Annotated[Size, Meta(ge=1, le=1 << 31)] = 16 << 20
    """The same in bytes, where a consumer does not say it; one message is always allowed."""
    prefetch_bytes_max: Annotated[
        Size, Meta(ge=1, le=1 << 31), key(engine="prefetch_bytes_max")
    ] = 64 << 20
    """The most that a consumer may say as its prefetch_bytes."""
    max_selectors: Annotated[int, Meta(ge=1, le=65_536), key(engine="selectors_max")] = 1000
    """The most consumers with selectors of a queue: what is sent there asks each of them."""
    redelivery_limit: Annotated[int, Meta(ge=-1, le=10_000), key(engine="redelivery_limit")] = 3
    """So many failed deliveries make a message a dead letter: 3 tries it 3 times; -1 never."""
    redelivery_delay_s: Annotated[
        float, Meta(ge=0, le=86_400), key(engine="redelivery_delay_ms")
    ] = 0
    """Pause before a failed message is tried again, where its destination does not say it."""
    dead_letter: Annotated[QueueName, key(engine="dead_letter")] = "HMS.DLQ"
    """The queue for dead letters of destinations that do not say it; "" discards them."""
    expired_to: Annotated[QueueName, key(engine="expired_to")] = ""
    """The queue for what expires at destinations that do not say it; "" discards it."""
    recovery_interval_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10
    """How often branches in doubt are looked for; each ends within two of these intervals."""
    watchdog_s: Annotated[float, Meta(ge=1, le=3600)] = 30
    """Main loop, workers or log without progress for so long: the node is taken for hung."""
    log_file: Annotated[
        Path, key(otherwise="NAME.log in runtime", example="var/NODE1/run/NODE1.log")
    ]
    """Where the node writes what happens to it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """How much it writes there."""
    log_format: Literal["", "TEXT", "JSON", "text", "json"] = ""
    """JSON: an event a line, fields by name; TEXT: for people; "": JSON but at a terminal."""
    log_payloads: bool = False
    """Whether services that fail log what they were given, bodies and properties; for a fault."""
    log_syslog: bool = False
    """The machine's system log gets each line too; without lines of server processes."""
    log_max_bytes: Annotated[Size, Meta(ge=0, le=1 << 40)] = 64 << 20
    """A log_file of this size is compressed and a new one begun. 0: never for its size."""
    log_age_s: Annotated[float, Meta(ge=0, le=10 * YEAR_S)] = 7 * DAY_S
    """The same when its first line is so old. 0: never for its age."""
    log_files: Annotated[int, Meta(ge=1, le=1000)] = 10
    """So many files of the past are kept beside it; the oldest goes first."""


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
        "replica_keep_bytes": "nothing is kept for a replica that is away, which gets what the log "
        "needs when it comes; history_bytes bounds what is behind the log",
        "replica_alarm_s": "is replica_behind_s of [alerts]",
        "take_over": f"a shared store is taken over by hms boot --standby; {ABSENT}",
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
