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
    PREPARED    a branch of a distributed transaction waits for its outcome; ENDED: it is gone
    HEURISTIC   an operator completed it, and its transaction manager does not know that yet
    DECIDED     a distributed transaction is to be committed; FORGOTTEN: it is, everywhere
    OFFERED, ARRIVED, OFFER_ENDED   how messages go from one node's queue to another's
    ENTRIES     what was created, altered and deleted at run time at any node of the cluster
    PEERS       which offers were made and taken, told at boot and again for the same reason
    IDENTITY    which store it is and which boots wrote it, told at each boot
"""

from hms.records.branches import (
    Decided,
    Ended,
    Heuristic,
    Prepared,
    PreparedBatch,
    decided,
    decode_decided,
    decode_ended,
    decode_heuristic,
    decode_prepared,
    ended,
    forgotten,
    heuristic,
    prepared,
)
from hms.records.definitions import (
    Definition,
    NodeEvent,
    Snapshot,
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
from hms.records.identity import Identity, Writer, decode_identity, identity
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
from hms.records.moves import (
    Arrived,
    Entry,
    Offered,
    OfferEnded,
    PeerMemory,
    Peers,
    arrived,
    decode_arrived,
    decode_entries,
    decode_offer_ended,
    decode_offered,
    decode_peers,
    entries,
    offer_ended,
    offered,
    peers,
)
from hms.records.ranges import RANGES_HEAD, Ranges, decode_ranges, ranges
from hms.records.sent import (
    MESSAGES_PER_BATCH_MAX,
    PLACEMENT_BYTES_MAX,
    PLACEMENTS_MAX,
    SENT_HEAD,
    Placement,
    Sent,
    bitmap,
    bits,
    decode_sent,
    sent,
    sent_to_queue,
)

__all__ = [
    "MESSAGES_PER_BATCH_MAX",
    "PLACEMENTS_MAX",
    "PLACEMENT_BYTES_MAX",
    "RANGES_HEAD",
    "SENT_HEAD",
    "Arrived",
    "Cause",
    "Decided",
    "Definition",
    "Ended",
    "Entry",
    "Group",
    "Heuristic",
    "Identity",
    "Kept",
    "Landing",
    "Memory",
    "NodeEvent",
    "OfferEnded",
    "Offered",
    "PeerMemory",
    "Peers",
    "Placement",
    "Prepared",
    "PreparedBatch",
    "ProducerTaken",
    "Ranges",
    "Record",
    "RecordType",
    "Sent",
    "Snapshot",
    "Stay",
    "Writer",
    "arrived",
    "bitmap",
    "bits",
    "decided",
    "decode_arrived",
    "decode_decided",
    "decode_definition",
    "decode_dictionary",
    "decode_ended",
    "decode_entries",
    "decode_group",
    "decode_heuristic",
    "decode_identity",
    "decode_memory",
    "decode_moved",
    "decode_node_event",
    "decode_number",
    "decode_offer_ended",
    "decode_offered",
    "decode_peers",
    "decode_prepared",
    "decode_ranges",
    "decode_sent",
    "defined",
    "dictionary",
    "ended",
    "entries",
    "forgotten",
    "group",
    "heuristic",
    "identity",
    "memory",
    "moved",
    "node_event",
    "offer_ended",
    "offered",
    "peers",
    "prepared",
    "ranges",
    "reserved",
    "sent",
    "sent_to_queue",
    "undefined",
]
