"""The keys of hms.conf that say in which order messages go out, and which belong together."""

from hms.boot import kinds, kinds_topics
from hms.boot.keys import Key
from hms.engine.groups.message_sort import SortType

OF_SORT = (
    Key(
        "sort_key",
        kinds_topics.text,
        "",
        'The property that orders what waits; "" keeps the order of arrival.',
    ),
    Key(
        "sort_type",
        kinds.choice(*(kind.value for kind in SortType)),
        "STRING",
        "What type the property has; a queue refuses a message with another one.",
    ),
    Key(
        "sort_direction",
        kinds.choice("ASCENDING", "DESCENDING"),
        "ASCENDING",
        "Whether the smallest or the largest comes first.",
    ),
)

OF_GROUPS = (
    Key(
        "message_group",
        kinds.choice("PASS", "GATHER"),
        "PASS",
        "Whether the messages of a group pass one by one, or wait until they are one list.",
    ),
    Key(
        "group_expiry_s",
        kinds.number(-1, 100 * 366 * 86_400),
        -1,
        "How long a list may wait to be whole; then its messages are dead letters. -1: for ever.",
    ),
)
