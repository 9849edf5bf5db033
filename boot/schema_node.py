"""The sections of hms.conf that describe nodes: [domain], [node.NAME] and [svrgroup.NAME]."""

from hms.boot import database_kinds, kinds
from hms.boot.keys import ABSENT, Key, Section
from hms.boot.schema_cluster import GROUP_CLUSTER
from hms.boot.schema_limits import OF_NODE
from hms.boot.schema_topics import TOPICS

WARM_COLD = kinds.choice("WARM", "COLD")

DOMAIN = Section(
    ("domain",),
    "The whole that this file describes.",
    (
        Key("name", kinds.name, "hms", "The name of the domain in logs and listings."),
        Key(
            "MAXSESSION",
            kinds.integer(1, 65_535),
            1024,
            "The most sessions a node of the domain may be told to allow.",
        ),
        Key(
            "config_master",
            kinds.name,
            None,
            "The only node where destinations are created, altered and deleted at run time.",
            otherwise="none: any node of the cluster",
        ),
    ),
    is_named=False,
)

NODE = Section(
    ("node",),
    "One node: where it listens, where it stores, and its limits.",
    (
        Key(
            "listen",
            kinds.addresses,
            ["tcp://127.0.0.1:7700"],
            "Addresses for clients; only loopback and ipc, as links are not encrypted yet.",
        ),
        Key(
            "ipc_mode",
            kinds.mode,
            "0600",
            "Who may connect to an ipc address, as rights of its file; 0660 lets the group.",
        ),
        Key(
            "store",
            kinds.directory,
            None,
            "Directory of the log; relative to this file. One node owns one store.",
            otherwise="var/NAME/store",
        ),
        Key(
            "database",
            database_kinds.database,
            None,
            'A database instead of the log: "postgresql://USER@HOST/NAME" or "sqlite:PATH".',
            otherwise="none: the log in store",
        ),
        Key(
            "database_password",
            database_kinds.secret,
            None,
            'Where its password is, never the password itself: "env:NAME" or "file:PATH".',
            otherwise="none",
        ),
        Key(
            "table_prefix",
            database_kinds.table_prefix,
            None,
            "What the tables' names begin with; nodes that share a database differ in it.",
            otherwise="NAME_ in small letters",
        ),
        Key(
            "database_lease_s",
            kinds.number(1, 3600),
            15,
            "How long a silent node keeps its claim on the tables; then another may take it.",
        ),
        Key(
            "database_retry_s",
            kinds.number(0, 86_400),
            60,
            "How long a database that does not answer is waited for before the node stops.",
        ),
        Key(
            "runtime",
            kinds.directory,
            None,
            "Directory of the pid file and the node's log.",
            otherwise="the folder run beside the store",
        ),
        Key(
            "BOOT",
            WARM_COLD,
            "WARM",
            "WARM recovers what the store holds; COLD deletes it at every boot.",
        ),
        Key(
            "MAXSESSION",
            kinds.integer(1, 65_535),
            None,
            "The most sessions open at once; one connection may have three quarters of them.",
            otherwise="MAXSESSION of [domain]",
        ),
        Key(
            "heartbeat_s",
            kinds.number(0.1, 3600),
            10,
            "After how long without a word a client's libzmq, or a node, is taken for lost.",
        ),
        Key(
            "max_message_bytes",
            kinds.size(1 << 10, 1 << 30),
            "16 MiB",
            "The largest message; a larger one is refused when it is sent.",
        ),
        Key(
            "max_transaction_bytes",
            kinds.size(1 << 10, 1 << 30),
            "32 MiB",
            "The most one transaction sends; it is one record, at most half a segment.",
        ),
        Key(
            "transaction_idle_s",
            kinds.number(0, 366 * 86_400),
            0,
            "A local transaction is rolled back when nothing happens in it for so long. 0: never.",
        ),
        Key(
            "segment_bytes",
            kinds.size(1 << 20, 2 << 30, multiple=8),
            "64 MiB",
            "The size of one file of the log, given to the disk in advance.",
        ),
        Key(
            "max_log_bytes",
            kinds.size(0, 1 << 50),
            0,
            "The most that the log, its reserve and its history take, at least 8 segments. "
            "0: no limit.",
        ),
        Key(
            "history_bytes",
            kinds.size(0, 1 << 50),
            "16 GiB",
            "How much of the past is kept beside the log; the oldest goes first. 0: none.",
        ),
        Key(
            "history_age_s",
            kinds.number(0, 10 * 366 * 86_400),
            0,
            "How long the past is kept, from a segment's last record on. 0: as long as it fits.",
        ),
        Key(
            "archive",
            kinds.choice("NONE", "REQUIRED"),
            "NONE",
            "REQUIRED keeps all of the past until hms history archive has it, beyond both limits.",
        ),
        Key(
            "abandoned_after_s",
            kinds.number(1, 10 * 366 * 86_400),
            86_400,
            "When messages wait so long for a durable subscriber, status and the log tell of it.",
        ),
        Key(
            "max_memory_bytes",
            kinds.size(1 << 20, 1 << 40),
            "1 GiB",
            "The most bytes of waiting messages; beyond it sending is refused.",
        ),
        Key(
            "max_pending_bytes",
            kinds.size(1 << 20, 1 << 40),
            "64 MiB",
            "What may wait for a subscriber that is not durable; beyond it its oldest go, counted.",
        ),
        *OF_NODE,
        *TOPICS,
        Key(
            "max_requests",
            kinds.integer(1, 4096),
            64,
            "The most frames of one producer that wait for their confirmation.",
        ),
        Key(
            "max_connections",
            kinds.integer(1, 100_000),
            10_000,
            "The most connections of clients; fewer where the system allows fewer descriptors.",
        ),
        Key(
            "max_consumers",
            kinds.integer(1, 1 << 20),
            65_536,
            "The most consumers open at once on the node.",
        ),
        Key(
            "max_schedules",
            kinds.integer(0, 1_000_000),
            100_000,
            "The most schedules that send messages again and again.",
        ),
        Key(
            "max_file_bytes",
            kinds.size(0, 1 << 50),
            "16 GiB",
            "The most bytes of files that messages bring, beside the log; then they are refused.",
        ),
        Key(
            "file_life_s",
            kinds.number(60, 10 * 366 * 86_400),
            86_400,
            "How long a file is kept that stopped to come, or that no message names.",
        ),
        Key(
            "BLOCKTIME",
            kinds.number(0, 86_400),
            30,
            "How long a call waits when neither caller nor service says it; 0: for ever.",
        ),
        Key(
            "prefetch_max",
            kinds.integer(1, 65_535),
            8192,
            "The most messages on their way to a consumer: sent, not received by its application.",
        ),
        Key(
            "prefetch_bytes",
            kinds.size(1, 1 << 31),
            "16 MiB",
            "The same in bytes, where a consumer does not say it; one message is always allowed.",
        ),
        Key(
            "prefetch_bytes_max",
            kinds.size(1, 1 << 31),
            "64 MiB",
            "The most that a consumer may say as its prefetch_bytes.",
        ),
        Key(
            "max_selectors",
            kinds.integer(1, 65_536),
            1000,
            "The most consumers with selectors of a queue: what is sent there asks each of them.",
        ),
        Key(
            "redelivery_limit",
            kinds.integer(-1, 10_000),
            3,
            "So many failed deliveries make a message a dead letter: 3 tries it 3 times; -1 never.",
        ),
        Key(
            "recovery_interval_s",
            kinds.number(0.1, 3600),
            10,
            "How often branches in doubt are looked for; each ends within two of these intervals.",
        ),
        Key(
            "log_file",
            kinds.directory,
            None,
            "Where the node writes what happens to it.",
            otherwise="NAME.log in runtime",
        ),
        Key(
            "log_level",
            kinds.choice("DEBUG", "INFO", "WARNING", "ERROR"),
            "INFO",
            "How much it writes there.",
        ),
    ),
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
    "A server group. The one of type HMS is the node's broker; without one its defaults hold.",
    (
        Key(
            "NODENAME",
            kinds.name,
            None,
            "The node it belongs to.",
            otherwise="the only node of this file",
        ),
        Key(
            "SVGTYPE",
            kinds.choice("HMS", "TMAX"),
            "HMS",
            "HMS is the broker, one on each node; TMAX holds application servers.",
        ),
        Key(
            "HMSINDEX",
            kinds.integer(1, 255),
            1,
            "First part of every message id, so that ids are unique; each node has its own.",
        ),
        Key(
            "HMSMAXTHR",
            kinds.integer(1, 64),
            2,
            "General worker threads, which run what needs no storage.",
        ),
        Key(
            "HMSMAXDBTHR",
            kinds.integer(1, 64),
            4,
            "Storage worker threads, which write and sync the log.",
        ),
        *GROUP_CLUSTER,
    ),
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
