"""The keys of hms.conf that concern topics: of a node, of a topic and of a subscription."""

from hms.boot import kinds, kinds_topics
from hms.boot.keys import Key

TOPICS = (
    Key(
        "open_topics",
        kinds_topics.boolean,
        False,  # noqa: FBT003 - the default
        "Whether any topic string may be used, also with no configured topic at it or above it.",
    ),
    Key(
        "strict_topics",
        kinds_topics.boolean,
        False,  # noqa: FBT003 - the default
        "Whether publishing on a topic with a level that is # or + is refused.",
    ),
    Key(
        "topic_life_s",
        kinds.number(1, 10 * 365 * 86_400),
        1800,
        "How long a topic that nothing uses is remembered.",
    ),
    Key(
        "max_topics",
        kinds.integer(1, 1 << 24),
        100_000,
        "The most topics in use; one more is refused.",
    ),
    Key(
        "max_topic_length",
        kinds.integer(1, 16_384),
        10_240,
        "The most characters of a topic string.",
    ),
    Key(
        "max_topic_levels",
        kinds.integer(1, 1024),
        256,
        "The most levels of a topic string.",
    ),
    Key(
        "max_retained",
        kinds.integer(0, 1 << 24),
        100_000,
        "The most topics with a retained publication; one more is refused.",
    ),
    Key(
        "max_retained_bytes",
        kinds.size(0, 1 << 40),
        "256 MiB",
        "The most bytes of retained publications; they stay in memory.",
    ),
)

_DELIVERY = kinds.choice("ALL", "ALLDUR", "ALLAVAIL")

OF_TOPIC = (
    Key(
        "topic_string",
        kinds_topics.topic_string,
        None,
        "Where it stands among the topics; fixed once the node has booted with it.",
        otherwise="its name",
    ),
    Key(
        "persistent_delivery",
        _DELIVERY,
        None,
        "Which subscriptions have to take a persistent publication, or nobody gets it.",
        otherwise="that of the topic above; at last ALLDUR",
    ),
    Key(
        "non_persistent_delivery",
        _DELIVERY,
        None,
        "Which subscriptions have to take any other publication, or nobody gets it.",
        otherwise="that of the topic above; at last ALLAVAIL",
    ),
)

OF_SUBSCRIPTION = (
    Key(
        "topic",
        kinds_topics.topic_string,
        None,
        "The topic, by its name or its topic string, with wildcards if need be.",
        is_required=True,
    ),
    Key(
        "scheme",
        kinds.choice("TOPIC", "CHARACTER"),
        "TOPIC",
        "How the wildcards of topic are written: + and # for levels, or * and ? for characters.",
    ),
    Key(
        "queue",
        kinds.destination_or_none,
        "",
        'The queue that gets what it takes; "" keeps it for subscribers of its name.',
    ),
    Key(
        "correlation_id",
        kinds_topics.text,
        "",
        'The correlation id of what it puts into the queue; "" leaves the sender\'s.',
    ),
    Key(
        "retained",
        kinds.choice("ALL", "NEW"),
        "ALL",
        "Whether it gets what is retained when it begins, or only what comes.",
    ),
)
