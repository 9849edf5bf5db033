"""A consumer that goes on receiving gets everything, whatever the conditions are (P11).

Every size, kind of destination, way of receiving and prefetch, in cells that cover each pair of
them; HMS_DRAIN=full runs the whole product. A cell sends more than the default prefetch or 16 MiB,
receives all of it without settling in between where that is up to it, and then finds nothing more.
"""

import asyncio
import os
import queue
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

import hms
import hms.aio
import hms.testing
from tests.support.pairwise import pairwise
from tests.support.waiting import wait_until

LIMIT = 4 << 20
"""The largest message; the nodes of a cluster have a lower one."""
HEAD_BYTES_MAX = 256
COUNTS = {0: 1_500, 1: 1_500, 1 << 10: 1_500, 33 << 10: 520, 64 << 10: 270, 1 << 20: 18, LIMIT: 6}
"""Of a size, how many: above the default prefetch, or above 16 MiB."""
FEW = 200
"""Of small messages, where each one, or a few, cost a call or a way to the node and back."""
AXES = {
    "size": tuple(COUNTS),
    "place": ("queue", "durable", "shared", "topic", "global", "paged", "database"),
    "how": ("AUTO", "CLIENT", "DUPS_OK", "NONE", "tx", "listener", "service", "asyncio"),
    "prefetch": (None, 1, 10),
}
IS_FULL = os.environ.get("HMS_DRAIN") == "full"
CELLS = [dict(zip(AXES, row, strict=True)) for row in product(*AXES.values())]
CELLS = CELLS if IS_FULL else pairwise(AXES)
WAIT_S = 60
HERE = Path(__file__).parent
HEARTBEAT = {"heartbeat_s": WAIT_S}
"""Who loses the connection on a slow machine has messages again, or, with NONE, no more."""
NODE = HEARTBEAT | {"auto_destinations": True, "open_topics": True, "max_message_bytes": LIMIT}
CONFIGS = {
    "log": {"node": {"node1": NODE | {"max_pending_bytes": "512 MiB"}}},
    "paged": {"node": {"node1": NODE | {"max_memory_bytes": "12 MiB"}}},
    "database": {"node": {"node1": NODE}},
    "global": {
        "node": {"node1": HEARTBEAT},
        "hms": {"queue": {"everywhere": {"GLOBAL": "Y", "GQTHR": 5, "GQMAXREQ": 50}}},
    },
}


class Nodes:
    """A node for each kind of store, booted when the first cell needs it, shared by its cells."""

    def __init__(self, folder, stack):
        self._folder, self._stack = folder, stack
        self._known = {}
        self.book = folder / "book"

    def clients(self, place):
        """A connection that sends, and one that receives, with its address: of a global queue at
        another node."""
        kind = place if place in CONFIGS else "log"
        if kind not in self._known:
            nodes = self._boot(kind)
            sending, receiving = (
                self._stack.enter_context(hms.connect(one.address)) for one in (nodes[0], nodes[-1])
            )
            self._known[kind] = sending, receiving, nodes[-1].address
        return self._known[kind]

    def _boot(self, kind):
        config = CONFIGS[kind]
        if kind == "database":
            url = f"sqlite:{self._folder / 'messages.db'}"
            config = {"node": {"node1": NODE | {"database": url}}}
        started = hms.testing.node(
            self._folder / kind,
            config,
            serve=["drain_services"],
            python_path=[HERE],
            nodes=2 if kind == "global" else 1,
        )
        return self._stack.enter_context(started).nodes

    def heard(self, cell):
        """What the service wrote down of a cell."""
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return [int(n) for name, n in map(str.split, lines) if name == cell]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """See there."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        booted = Nodes(tmp_path_factory.mktemp("drain"), stack)
        patch.setenv("HMS_DRAIN_BOOK", str(booted.book))
        yield booted


def _name(cell):
    return "-".join(str(value) for value in cell.values())


@pytest.mark.parametrize("cell", CELLS, ids=_name)
def test_a_willing_consumer_gets_everything(nodes, cell):
    """30 of 108 such cells stopped for ever, with every feature proved on its own."""
    sending, receiving, address = nodes.clients(cell["place"])
    count = COUNTS[cell["size"]]
    if count > 1_000 and (cell["how"] == "service" or cell["prefetch"]):
        count = FEW

    def send():
        body = bytes(min(cell["size"], sending.link.limits.message_bytes_max - HEAD_BYTES_MAX))
        with sending.session() as session:
            out = session.producer(_where(cell), persistent=cell["place"] != "topic")
            numbered = (
                hms.Message(body, properties={"n": n, "cell": _name(cell)}) for n in range(count)
            )
            out.send_many(numbered)

    is_topic = isinstance(_where(cell), hms.Topic)
    if not is_topic:  # all of it waits when the consumer comes, else bodies never leave memory
        send()
    send = send if is_topic else bool
    if cell["how"] == "asyncio":
        got = asyncio.run(_awaited(cell, address, send, count))
    elif cell["how"] == "service":
        got = _served(cell, receiving, send, count, nodes)
    elif cell["how"] == "listener":
        got = _listened(cell, receiving, send, count)
    else:
        got = _received(cell, receiving, send, count)

    if cell["place"] == "global":
        got.sort()  # parts of it wait at two nodes
    assert got == list(range(count))


def _where(cell):
    if cell["place"] == "global":
        return hms.Queue("everywhere")
    is_topic = cell["place"] in ("durable", "shared", "topic")
    return (hms.Topic if is_topic else hms.Queue)(f"drain-{_name(cell)}")


def _options(cell):
    options = {} if cell["prefetch"] is None else {"prefetch": cell["prefetch"]}
    if cell["place"] == "durable":
        return options | {"durable": "d"}
    return options | {"shared": True, "name": "s"} if cell["place"] == "shared" else options


def _consumer(session, cell, **more):
    make = session.subscriber if isinstance(_where(cell), hms.Topic) else session.consumer
    return make(_where(cell), **_options(cell), **more)


def _received(cell, receiving, send, count):
    """Settled only when all is here; in AUTO, DUPS_OK and NONE by the library."""
    how, got = cell["how"], []
    kind = {"transacted": True} if how == "tx" else {"ack": hms.AckMode[how]}
    with receiving.session(**kind) as session, _consumer(session, cell) as consumer:
        send()
        while len(got) < count:
            message = consumer.receive(timeout_s=WAIT_S)
            assert message is not None, f"nothing more after {len(got)} of {count}"
            got.append(message.property("n"))
        assert consumer.receive(0) is None
        if how == "tx":
            session.commit()
        elif how == "CLIENT":
            session.ack()
    return got


def _listened(cell, receiving, send, count):
    """On the session's own thread."""
    heard = queue.SimpleQueue()
    with receiving.session() as session, _consumer(session, cell) as consumer:
        consumer.listen(lambda message: heard.put(message.property("n")))
        send()
        got = [heard.get(timeout=WAIT_S) for _ in range(count)]
        consumer.listen(None)
        assert heard.empty()
    return got


def _served(cell, receiving, send, count, nodes):
    """In a server process."""
    with (
        receiving.session(asynchronous=True) as session,
        _consumer(session, cell, listener="DRAIN"),
    ):
        send()
        wait_until(lambda: len(nodes.heard(_name(cell))) >= count, WAIT_S)
    return nodes.heard(_name(cell))


async def _awaited(cell, address, send, count):
    """In an event loop."""
    async with hms.aio.connect(address) as conn, conn.session() as session:
        consumer = await _consumer(session, cell)
        await asyncio.to_thread(send)
        got = []
        while len(got) < count:
            message = await consumer.receive(timeout_s=WAIT_S)
            assert message is not None, f"nothing more after {len(got)} of {count}"
            got.append(message.property("n"))
        assert await consumer.receive(0) is None
    return got
