"""Every section and key of hms.conf: what it may be, its default, and why it is there.

The reader in config.py, the sample file and docs/reference/configuration.md follow this table; a
test holds them together. `later` names words of Tmax, or of what is to come, refused with a reason.
"""

from hms.boot import kinds, kinds_topics
from hms.boot.keys import ABSENT, Key, Section
from hms.boot.schema_cluster import QUEUE_CLUSTER, TOPIC_CLUSTER
from hms.boot.schema_limits import OF_DESTINATION, OF_QUEUE
from hms.boot.schema_node import DOMAIN, NODE, SVRGROUP, WARM_COLD
from hms.boot.schema_order import OF_GROUPS, OF_SORT
from hms.boot.schema_resources import RESOURCE
from hms.boot.schema_topics import OF_SUBSCRIPTION, OF_TOPIC

__all__ = [
    "DOMAIN",
    "LATER_SECTIONS",
    "NODE",
    "QUEUE",
    "RESOURCE",
    "SECTIONS",
    "SERVER",
    "SERVICE",
    "SUBSCRIPTION",
    "SVRGROUP",
    "TOPIC",
    "Key",
    "Section",
]

_SVGNAME = Key(
    "SVGNAME",
    kinds.name,
    None,
    "The server group, and so the node, where it lives.",
    otherwise="every node of this file",
)

SERVER = Section(
    ("server",),
    "Server processes that run a module's services; booted and watched by the node.",
    (
        Key("module", kinds.module, None, "The module with the services.", is_required=True),
        _SVGNAME,
        Key("MIN", kinds.integer(0, 256), 1, "Processes started at boot and kept running."),
        Key(
            "MAX",
            kinds.integer(1, 256),
            None,
            "The most processes of this server.",
            otherwise="MIN, at least 1",
        ),
        Key(
            "python_path",
            kinds.directories,
            ["."],
            "Folders where the module is looked for, first of all; relative to this file.",
        ),
        Key(
            "restart_delay_s",
            kinds.number(0, 3600),
            1,
            "Pause before an ended process is started again, so that a fault does not spin.",
        ),
        Key(
            "restart_delay_max_s",
            kinds.number(0, 3600),
            30,
            "The pause doubles with every restart within GPERIOD, up to this.",
        ),
        Key(
            "MAXRSTART",
            kinds.integer(-1, 10_000),
            5,
            "Restarts within GPERIOD before the node gives up; -1 never gives up.",
        ),
        Key("GPERIOD", kinds.integer(1, 86_400), 60, "Seconds over which MAXRSTART counts."),
        Key(
            "idle_s",
            kinds.number(0.1, 86_400),
            60,
            "A process above MIN ends when for so long not all were busy.",
        ),
        Key(
            "environment",
            kinds.variables,
            [],
            "Variables of its processes beside the node's own, each written NAME=VALUE.",
        ),
    ),
    later={
        "CLOPT": f"{ABSENT}; a module reads its own settings",
        "RESTART": f"{ABSENT}; MAXRSTART = 0 never restarts",
        "CONV": ABSENT,
    },
)

SERVICE = Section(
    ("service",),
    "What holds for one service by name.",
    (
        Key(
            "timeout_s",
            kinds.number(0, 86_400),
            0,
            "The longest run; past it the caller gets TPESVCERR and the process ends. 0: none.",
        ),
        Key(
            "blocktime_s",
            kinds.number(0, 86_400),
            0,
            "How long a call of it waits that does not say so itself; 0: BLOCKTIME of the node.",
        ),
        Key(
            "PRIO",
            kinds.integer(1, 100),
            50,
            "Of two calls that wait for one server the one of the higher PRIO goes first.",
        ),
        Key(
            "concurrency",
            kinds.integer(0, 10_000),
            0,
            "So many calls of it run at once, whatever number of servers there is; 0: no limit.",
        ),
        Key(
            "AUTOTRAN",
            kinds_topics.boolean,
            False,  # noqa: FBT003 - the file's own word
            "Whether a call without a transaction, or a listener's message, begins one.",
        ),
    ),
    later={
        "SVCTIME": "is written timeout_s",
        "SVRNAME": f"is not needed: a server offers the services of its module; {ABSENT}",
    },
)

_QUOTAS = {"max_consumers": "is written max_active_consumers"}
_GLOBAL = dict.fromkeys(("GQTHR", "GQMAXREQ", "GQFULL"), "is for queues")
_TYPE = {"TYPE": "is told by the section: [hms.queue.NAME] or [hms.topic.NAME]"}
_BOOT = Key(
    "BOOT", WARM_COLD, None, "WARM or COLD for this one alone.", otherwise="BOOT of the node"
)
_REDELIVERY = (
    Key(
        "redelivery_limit",
        kinds.integer(-1, 10_000),
        None,
        "So many failed deliveries make a message a dead letter: 3 tries it 3 times; -1 never.",
        otherwise="redelivery_limit of the node",
    ),
    Key(
        "redelivery_delay_s",
        kinds.number(0, 86_400),
        0,
        "Pause before a failed message is tried again; those behind it do not wait for it.",
    ),
    Key(
        "dead_letter",
        kinds.destination_or_none,
        "HMS.DLQ",
        'The queue that gets a message whose redelivery_limit is reached; "" discards it.',
    ),
    Key(
        "expired_to",
        kinds.destination_or_none,
        "",
        'The queue that gets what expires here; "" discards it.',
    ),
)

QUEUE = Section(
    ("hms", "queue"),
    "A queue: each message goes to one consumer and waits until it is taken.",
    (
        _SVGNAME,
        _BOOT,
        *_REDELIVERY,
        *OF_DESTINATION,
        *OF_QUEUE,
        *OF_SORT,
        *OF_GROUPS,
        Key(
            "listener",
            kinds.service,
            "",
            'The service that the node calls for every message; "" leaves them to consumers.',
        ),
        Key(
            "listener_sessions",
            kinds.integer(1, 256),
            1,
            "Sessions that feed it: one keeps the order, more run side by side.",
        ),
        *QUEUE_CLUSTER,
    ),
    later={**_QUOTAS, **_TYPE},
)

TOPIC = Section(
    ("hms", "topic"),
    "A topic: each message goes to every subscriber of that moment.",
    (_SVGNAME, _BOOT, *_REDELIVERY, *OF_DESTINATION, *OF_TOPIC, *TOPIC_CLUSTER),
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
    "A durable subscription that exists from boot, before its first consumer comes.",
    (
        *OF_SUBSCRIPTION,
        *OF_SORT,
        Key(
            "selector",
            kinds.selector,
            "",
            'Which messages it takes; "" takes all. Its consumers give the same one.',
        ),
        Key(
            "SVGNAME",
            kinds.name,
            None,
            "The server group, and so the node, where it exists.",
            otherwise="every node of its topic",
        ),
    ),
    later={
        "BOOT": "is that of its topic",
        "no_local": ABSENT,
        "client_id": ABSENT,
        "GLOBAL": "is that of its topic",
        **_GLOBAL,
    },
)

SECTIONS = (DOMAIN, NODE, SVRGROUP, SERVER, SERVICE, RESOURCE, QUEUE, TOPIC, SUBSCRIPTION)

LATER_SECTIONS = {
    "gateway": "is not needed: HMSPORT of [svrgroup.NAME] makes a cluster",
    "routing": ABSENT,
    "rq": f"{ABSENT}; use [hms.queue.NAME]",
    "cluster": "is not needed: HMSPORT of [svrgroup.NAME] makes one of the nodes of the file",
    "bridge": f"bridges: {ABSENT}",
    "user": f"logins are not checked: {ABSENT}",
    "group": f"logins are not checked: {ABSENT}",
    "acl": f"logins are not checked: {ABSENT}",
    "store": "stands in [node.NAME] as a key",
}
