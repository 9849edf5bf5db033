"""A node with a fault of the kind that the wire fuzz has to find. As a program's prefix:
PYTHON faulty_node.py FAULT PYTHON -P -m hms.boot.node OPTIONS…
"""

import os
import sys

import msgspec

from hms.engine.cluster import cluster_messages
from hms.engine.engine import Engine
from hms.engine.queue import settlement
from hms.server import broker, gateway
from hms.server.doors import native_door
from hms.server.links import cluster_door
from hms.wire.frames import Kind

HOARD = []


def decoder():
    """A header that cannot be read raises something else than an HmsError."""
    native_door.DECODERS[Kind.NOTICE] = msgspec.msgpack.decode


def word():
    """The same, of what another node says."""

    def unguarded(data):
        return cluster_messages._decode(data[4:]), []

    cluster_door.decode_message = unguarded


def parts():
    """A frame of one part is taken for one of two."""
    decode = gateway.decode_envelope

    def trusting(parts, *rest):
        return decode((parts[0], parts[1]), *rest)

    gateway.decode_envelope = trusting


def handle():
    """A settlement believes that its consumer is there."""
    acknowledge = Engine.acknowledge

    def trusting(self, connection, consumer, *rest):
        assert self.state.connection(connection).consumers[consumer]
        return acknowledge(self, connection, consumer, *rest)

    Engine.acknowledge = trusting


def walk():
    """Ranges are walked through, however wide they are."""
    settlement.WIDE = 1 << 70


def hoard():
    """What cannot be read is kept."""
    unreadable = broker.Broker._unreadable

    def hoarding(self, *arguments):
        HOARD.append(bytes(1 << 20))
        return unreadable(self, *arguments)

    broker.Broker._unreadable = hoarding


FAULTS = {one.__name__: one for one in (decoder, word, parts, handle, walk, hoard)}


def main(fault, words_of_node):
    """Boot the node."""
    from hms.boot import node

    FAULTS[fault]()
    code = node.main(words_of_node)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("hms.boot.node") + 1 :])
