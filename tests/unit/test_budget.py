"""What the largest legal instance of each command costs while it holds the engine's lock (P8).

Steps are calls, counted and not timed, so they are the same on any machine. A command may cost what
its own frame, its transaction or what its consumer has out allows, but not what waits. Beside a
light load on a real node: bench/budget.py.
"""

import sys

import pytest

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.store.files import FileStore
from hms.wire import structures as wire
from hms.wire.frames import Kind, decode_delivery
from hms.wire.packed_messages import unpack_delivered
from tests.support import largest
from tests.support.hello import hello_of
from tests.support.largest import LARGEST, commands_of_the_protocol
from tests.support.memory import MemoryNode

FEW, MANY = 300, 1200
GROWTH_MAX = 1.3
CALLS_MAX = 250_000
"""About 50 ms."""
GROWING = {
    "Administer": "queue.purge records all that it discards as one",
    "DeleteTemporary": "what waits in a temporary queue ends with it",
    "Unsubscribe": "what waits for a subscription ends with it",
}
SETTINGS = EngineSettings(
    message_bytes_max=1 << 20,
    transaction_bytes_max=2 << 20,
    destinations=(
        DestinationSettings("queue", "long"),
        DestinationSettings("queue", "work"),
        DestinationSettings("topic", "news"),
    ),
)


class Counted:
    """The most calls in one hold of the lock."""

    def __init__(self):
        self.calls = self.most = 0

    def begin(self):
        self.calls = 0
        sys.setprofile(self._count)

    def _count(self, _frame, event, _argument):
        if event in ("call", "c_call"):
            self.calls += 1

    def end(self, _by):
        sys.setprofile(None)
        self.most = max(self.most, self.calls)


class Node(MemoryNode):
    """Its storage workers do their jobs when step() is called."""

    def __init__(self, folder):
        self.jobs = []
        super().__init__(SETTINGS, files=FileStore(folder, 1 << 30))

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
        answers = self.node.send(self.name, kind, payload)
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
        assert len(self.delivered) >= messages
        found, self.delivered = self.delivered[-messages:], []
        return found


@pytest.fixture(autouse=True)
def _smaller(monkeypatch):
    """An eighth of what is legal is enough to count what one costs."""
    monkeypatch.setattr(largest, "OUT_MAX", 1024)
    monkeypatch.setattr(largest, "TRANSACTION_BYTES", 1 << 19)


def cost(name, waiting, folder):
    """The most calls under one hold that the command, and what follows from it, takes."""
    node = Node(folder)
    peer = Peer(node, 1)
    kind, payload = LARGEST[name](peer, waiting)
    node.broker._holds = holds = Counted()
    peer = "stranger" if kind is Kind.HELLO else peer.name
    node.send(peer, kind, payload)
    for _ in range(20):  # slices of what is left
        node.now_ms += 1
        node.broker._tick()
        node.step()
    return holds.most


def test_every_command_of_the_protocol_has_a_largest_instance():
    """A new command comes with one, so that somebody has thought of what it may cost."""
    assert set(LARGEST) == commands_of_the_protocol()


@pytest.mark.parametrize("name", sorted(LARGEST))
def test_what_a_command_costs_does_not_grow_with_what_waits(name, tmp_path):
    """What waits is bounded by memory alone; nothing that reads all of it may hold the lock."""
    few = cost(name, FEW, tmp_path / "few")
    many = cost(name, MANY, tmp_path / "many")

    assert many <= CALLS_MAX
    if name in GROWING:
        assert many > GROWTH_MAX * few, "it does not grow any more: strike it off the list"
    else:
        assert many <= GROWTH_MAX * few + 100
