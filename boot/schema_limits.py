"""The keys of hms.conf that limit what waits: of a node, of queues and topics alike, of a queue."""

from hms.boot import kinds, kinds_topics
from hms.boot.keys import Key

BEHAVIORS = ("FLOW_CONTROL", "REMOVE_OLDEST", "REJECT_NEWEST", "REMOVE_LOW_PRIORITY")

OF_NODE = (
    Key(
        "max_paged_messages",
        kinds.integer(1000, 1 << 32),
        4_000_000,
        "The most messages whose bodies wait in the log only; each takes about 300 bytes.",
    ),
    Key(
        "max_messages",
        kinds.integer(0, 1 << 40),
        0,
        "The most messages in all destinations together; 0 sets no limit.",
    ),
    Key(
        "max_bytes",
        kinds.size(0, 1 << 50),
        0,
        "The most bytes of heads and bodies in all destinations together; 0 sets no limit.",
    ),
    Key(
        "max_producers",
        kinds.integer(0, 1 << 24),
        0,
        "The most producers open at once on the node; 0 sets no limit.",
    ),
    Key(
        "limit_behavior",
        kinds.choice("REJECT_NEWEST", "FLOW_CONTROL"),
        "REJECT_NEWEST",
        "What a full node does: it refuses what is sent, or lets it wait for room.",
    ),
    Key(
        "flow_control_s",
        kinds.number(0.1, 86_400),
        200,
        "How long a send waits for room at most, if its client does not give up before.",
    ),
    Key(
        "max_blocked_bytes",
        kinds.size(0, 1 << 40),
        "64 MiB",
        "The most bytes of sends that wait for room; one more is refused at once.",
    ),
    Key(
        "auto_destinations",
        kinds_topics.boolean,
        False,  # noqa: FBT003 - the default
        "Whether a queue that does not exist is made by its first use.",
    ),
    Key(
        "auto_idle_s",
        kinds.number(1, 10 * 365 * 86_400),
        600,
        "How long such a queue stays when it is empty and nobody has it open.",
    ),
)

OF_DESTINATION = (
    Key(
        "max_messages",
        kinds.integer(0, 1 << 40),
        0,
        "The most messages that wait; 0 sets no limit but the node's memory.",
    ),
    Key(
        "max_bytes",
        kinds.size(0, 1 << 50),
        0,
        "The most bytes of heads and bodies that wait; 0 sets no limit but the node's memory.",
    ),
    Key(
        "max_message_bytes",
        kinds.size(0, 1 << 30),
        0,
        "The largest message; 0 is max_message_bytes of the node.",
    ),
    Key(
        "max_producers",
        kinds.integer(0, 1 << 24),
        0,
        "The most producers open at once; 0 sets no limit.",
    ),
    Key(
        "limit_behavior",
        kinds.choice(*BEHAVIORS),
        "REJECT_NEWEST",
        "What is done when it is full: who sends waits or is refused, or what waits is removed.",
    ),
    Key(
        "export_name",
        kinds.destination_or_none,
        "",
        'The name by which clients look it up; "" is its own name.',
    ),
)

OF_QUEUE = (
    Key(
        "max_active_consumers",
        kinds.integer(0, 1 << 20),
        0,
        "So many consumers get messages at once; 0 sets no limit.",
    ),
    Key(
        "max_backup_consumers",
        kinds.integer(0, 1 << 20),
        0,
        "So many more wait to take over when an active one leaves; one more is refused.",
    ),
)
