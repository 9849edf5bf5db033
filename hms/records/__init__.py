"""Records: what the log holds, written by the engine, read by recovery, stores and the history.

A record is (type, events, parts): the log stores the parts behind one another and gives the record
`events` consecutive log sequence numbers, one per event of a message, so that every event in the
history has a number of its own. Hot records are packed structures, rare ones msgpack.

    DEFINED     a queue, topic or durable subscription and the number it has in the log
    UNDEFINED   the same is gone
    SENT        a batch of messages as the client packed it, with where each one waits
    DELIVERED   ranges of messages were handed to a consumer
    ACKNOWLEDGED, FAILED, RELEASED   what became of them; FAILED counts as an attempt
    DISCARDED   messages left for another cause: see Cause
    GROUP       records that hold together or not at all: a commit, a dead-lettering
    RESERVED    message ids below this number may have been given away
    DICTIONARY  first record of every segment: all definitions and numbers so far
    NODE        the node booted or stopped
    MOVED       messages as they are, told again so that an old segment can go
    MEMORY      sends and commits that were taken, told again for the same reason
"""

from hms.records.definitions import (
    Definition,
    Dictionary,
    NodeEvent,
    decode_definition,
    decode_dictionary,
    decode_node_event,
    decode_number,
    defined,
    dictionary,
    node_event,
    reserved,
    undefined,
)
from hms.records.groups import Group, decode_group, group
from hms.records.kept import (
    Kept,
    Memory,
    ProducerTaken,
    Stay,
    decode_memory,
    decode_moved,
    memory,
    moved,
)
from hms.records.kinds import Cause, Landing, Record, RecordType
from hms.records.ranges import RANGES_HEAD, Ranges, decode_ranges, ranges
from hms.records.sent import (
    MESSAGES_PER_BATCH_MAX,
    PLACEMENT_BYTES_MAX,
    SENT_HEAD,
    Placement,
    Sent,
    bitmap,
    bits,
    decode_sent,
    sent,
)

__all__ = [
    "MESSAGES_PER_BATCH_MAX",
    "PLACEMENT_BYTES_MAX",
    "RANGES_HEAD",
    "SENT_HEAD",
    "Cause",
    "Definition",
    "Dictionary",
    "Group",
    "Kept",
    "Landing",
    "Memory",
    "NodeEvent",
    "Placement",
    "ProducerTaken",
    "Ranges",
    "Record",
    "RecordType",
    "Sent",
    "Stay",
    "bitmap",
    "bits",
    "decode_definition",
    "decode_dictionary",
    "decode_group",
    "decode_memory",
    "decode_moved",
    "decode_node_event",
    "decode_number",
    "decode_ranges",
    "decode_sent",
    "defined",
    "dictionary",
    "group",
    "memory",
    "moved",
    "node_event",
    "ranges",
    "reserved",
    "sent",
    "undefined",
]
