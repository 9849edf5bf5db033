"""A whole load on a node, and what it took: messages that wait, and more that pass through."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import hms
from hms.testing import node as booted
from tests.support.byte_proxy import ByteProxy
from tests.support.waiting import wait_until

WAIT_S = 120
AT_ONCE, AT_ONCE_BYTES = 250, 1 << 20
SIZES = {
    "segment_bytes": "1 MiB",
    "max_message_bytes": "64 KiB",
    "max_transaction_bytes": "128 KiB",
}
CONFIG = {"hms": {"queue": {"kept": {}, "passing": {}}}, "node": {"node1": SIZES}}


@dataclass(frozen=True, slots=True)
class Whole:
    """size: bytes of a body; backlog: messages that wait; passing: that are sent and consumed;
    durable: the share of all of them that is."""

    size: int
    backlog: int
    passing: int
    durable: float = 1.0


@dataclass(frozen=True, slots=True)
class Taken:
    """In bytes; logged, network: of what passed."""

    counted: int
    live: int
    process: int
    logged: int
    network: int
    store: int


def _counted(proxy):
    """Bytes in both directions so far."""
    return len(proxy.said) + proxy.heard


def _process_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


class _Counting(ByteProxy):
    """Counts what the node says too."""

    def __init__(self, target):
        self.heard = 0
        super().__init__(target, self._count)

    def _count(self, data):
        self.heard += len(data)
        return data


def measured(load):
    """Run it on a node of its own."""
    with booted(config=CONFIG) as node:
        proxy = _Counting(node.address)
        try:
            with hms.connect(proxy.address, request_timeout_s=WAIT_S, reconnect=False) as conn:
                return _measured(load, node, conn, proxy)
        finally:
            proxy.close()


def _send(session, queue, load, count):
    """In parts of a frame; the share of each that is durable comes first."""
    at_once = max(1, min(AT_ONCE, AT_ONCE_BYTES // load.size))
    durable = round(count * load.durable)
    for kind, wanted in ((True, durable), (False, count - durable)):
        producer = session.producer(queue, persistent=kind)
        for begin in range(0, wanted, at_once):
            part = (os.urandom(load.size) for _ in range(min(at_once, wanted - begin)))
            producer.send_many(part)


def _measured(load, node, conn, proxy):
    with conn.session() as session:
        _send(session, "kept", load, load.backlog)
        begun, logged = _counted(proxy), _logged(conn)
        consumer, left = session.consumer("passing"), load.passing
        while left:
            part = min(left, AT_ONCE)
            _send(session, "passing", load, part)
            left -= part
            while part:
                part -= len(consumer.receive_many(part, WAIT_S))
    logged_of = wait_until(lambda: _acknowledged(conn, load), WAIT_S)
    found = wait_until(lambda: _settled(conn), WAIT_S)
    return Taken(
        counted=found["waiting_bytes"],
        live=found["live_bytes"],
        process=_process_bytes(node.pid),
        logged=logged_of - logged,
        network=_counted(proxy) - begun,
        store=sum(found[f"{part}_bytes"] for part in ("log", "pinned", "history")),
    )


def _logged(conn):
    """Without what cleaning has written again."""
    status = conn.administer("status")
    return status["appended_bytes"] - status["rewritten_bytes"]


def _acknowledged(conn, load):
    rows = conn.administer("queue.show", {"name": "passing"})
    return rows["acknowledged"] == load.passing and _logged(conn)


def _settled(conn):
    """The log was cleaned as far as it is: two looks that agree."""
    first, second = conn.administer("status"), conn.administer("status")
    names = ("live_bytes", "log_bytes", "pinned_bytes", "history_bytes")
    return second if all(first[one] == second[one] for one in names) else None
