"""A node in memory with files, and a client of it that speaks the protocol by hand."""

from dataclasses import replace

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.broker import INTERNAL, TICK
from hms.store.files import FileStore
from hms.wire import structures as wire
from hms.wire.frames import Kind, decode_delivery
from hms.wire.packed_messages import unpack_delivered
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode

SETTINGS = EngineSettings(
    message_bytes_max=1 << 20,
    transaction_bytes_max=2 << 20,
    destinations=(
        DestinationSettings("queue", "long"),
        DestinationSettings("queue", "work"),
        DestinationSettings("topic", "news"),
    ),
)


class Node(MemoryNode):
    """Its storage workers do their jobs when step() is called."""

    def __init__(self, folder, **settings):
        self.jobs = []
        super().__init__(replace(SETTINGS, **settings), files=FileStore(folder, 1 << 30))

    def submit(self, job):
        self.jobs.append(job)
        return True

    def step(self):
        while self.jobs:
            self.jobs.pop(0)()
        super().step()


class Peer:
    """A client of a node in memory."""

    def __init__(self, node, number):
        self.node, self.name = node, f"peer{number}"
        self.delivered = []
        self.ask(Kind.HELLO, wire.encode(hello_of(number)))
        self.request(wire.OpenSession(1, 2))

    def ask(self, kind, payload):
        return self._read(self.node.send(self.name, kind, payload))

    def _read(self, answers):
        found = None
        for envelope, data in answers:
            if envelope.kind is Kind.DELIVER:
                _, count, at = decode_delivery(data)
                self.delivered += [row.message_id for row, *_ in unpack_delivered(data, count, at)]
            elif envelope.kind is Kind.REPLY:
                found = wire.decode_reply(data)
        return found

    def request(self, request):
        return self.ask(Kind.REQUEST, wire.encode(request))

    def wait_for(self, messages):
        while self.node.engine.is_behind:  # one command delivers some, ticks the rest
            self.node.broker.handle(INTERNAL, [TICK])
            self.node.step()
            self._read(self.node.outlet.take(self.name))
        assert len(self.delivered) >= messages
        found, self.delivered = self.delivered[-messages:], []
        return found
