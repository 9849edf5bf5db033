"""The keys of hms.conf that make several nodes one: of server groups, queues and topics."""

from hms.boot import kinds
from hms.boot.keys import Key
from hms.boot.kinds_cluster import host, public_key

GROUP_CLUSTER = (
    Key(
        "HMSPORT",
        kinds.integer(1, 65_535),
        None,
        "The port where other nodes find it; a node with one is in the domain's cluster.",
        otherwise="none: the node is alone",
    ),
    Key(
        "link_host",
        host,
        "127.0.0.1",
        "The address of that port; beyond loopback every node needs keys.",
    ),
    Key(
        "HMSHEARTBEAT",
        kinds.number(0.1, 3600),
        10,
        "Seconds of silence after which another node is taken as failed.",
    ),
    Key(
        "HMSGQINT",
        kinds.number(0.05, 3600),
        5,
        "Seconds between what nodes tell one another of their global queues.",
    ),
    Key(
        "link_key_file",
        kinds.directory,
        None,
        "The file with the node's key pair; hms config keys writes it. Relative to this file.",
        otherwise="none: links are not encrypted",
    ),
    Key(
        "link_public_key",
        public_key,
        None,
        "Its public key, by which the other nodes know it.",
        otherwise="none",
    ),
)

QUEUE_CLUSTER = (
    Key(
        "GLOBAL",
        kinds.choice("Y", "N"),
        "N",
        "Y: one queue with those of its name at other nodes; a message is at one of them.",
    ),
    Key(
        "GQTHR",
        kinds.integer(1, 1_000_000),
        100,
        "Messages to have ready for each consumer; a shorter queue asks other nodes.",
    ),
    Key(
        "GQMAXREQ",
        kinds.integer(1, 1_000_000),
        1000,
        "The most messages that come for one request.",
    ),
    Key(
        "GQFULL",
        kinds.integer(0, 1 << 40),
        10_000,
        "From so many waiting messages on it gives to shorter ones unasked; 0 never.",
    ),
    Key(
        "delivery",
        kinds.choice("EVERYWHERE", "LOCAL_PREFERRED", "LOCAL_ONLY"),
        "EVERYWHERE",
        "Whose consumers get them: any node's; others' if there is none here; this node's only.",
    ),
)

TOPIC_CLUSTER = (
    Key(
        "GLOBAL",
        kinds.choice("Y", "N"),
        "N",
        "Y: what is published here or below goes to subscribers at other nodes too.",
    ),
)
