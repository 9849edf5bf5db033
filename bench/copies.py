"""How often a body is copied on its way: `python -m bench.copies`; 64 KiB and 1 MiB, exact counts.

Each copy of a large body goes into memory of its own. With a low MALLOC_MMAP_THRESHOLD_ the heap
asks the system for that memory each time and gives it back, so every page of it is touched first
once: page faults of a process, by the pages of a body, are the copies that it made. What the kernel
copies (sockets, the log's file) is not counted, nor what goes into memory that is kept.

    send      one by one into an empty queue, each confirmed: client, node
    deliver   the same bodies to a consumer that receives and acknowledges: node, client

They are durable, of the type bytes, through a local socket, with what is shipped otherwise. A count
is the mean over the bodies, and what goes beside a body is part of it: less than a tenth of a copy.
"""

import argparse
import ctypes
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import hms
from hms.testing import node

__all__ = ["Copies", "main", "measured"]

_ROOT = Path(__file__).resolve().parent.parent
_THRESHOLD_BYTES = 32 << 10
_WARM_UP = 4
_QUEUE = "bodies"
_NO_HUGE_PAGES = 41
"""prctl's PR_SET_THP_DISABLE, which children inherit: one fault would be for 512 pages."""


class Copies(NamedTuple):
    """Of each body."""

    send_client: float
    send_node: float
    deliver_node: float
    deliver_client: float


def measured(size: int, bodies: int = 20) -> Copies:
    """The copies of a body of so many bytes."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(_THRESHOLD_BYTES)
    ctypes.CDLL(None).prctl(_NO_HUGE_PAGES, 1, 0, 0, 0)
    try:
        with node(config={"hms": {"queue": {_QUEUE: {}}}}) as running:
            sent = _alone("send", running.address, running.pid, size, bodies)
            received = _alone("receive", running.address, running.pid, size, bodies)
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]
        ctypes.CDLL(None).prctl(_NO_HUGE_PAGES, 0, 0, 0, 0)
    return Copies(*sent, *reversed(received))


def _alone(part: str, address: str, node_pid: int, size: int, bodies: int) -> tuple[float, float]:
    """A client in a process of its own: its copies and the node's."""
    command = [sys.executable, "-m", "bench.copies", "--part", part, "--address", address]
    command += ["--node", str(node_pid), "--size", str(size), "--bodies", str(bodies)]
    told = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True).stdout
    own, of_node = told.split()
    return float(own), float(of_node)


def _faults_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])


def _part(part: str, address: str, node_pid: int, size: int, bodies: int) -> None:
    """Send or receive; the copies of this process and of the node for each body."""
    body = os.urandom(size)
    own = of_node = 0
    with hms.connect(address) as connection, connection.session() as session:
        producer = session.producer(_QUEUE) if part == "send" else None
        consumer = None if producer else session.consumer(_QUEUE, prefetch=1)
        for n in range(_WARM_UP + bodies):
            if n == _WARM_UP:
                own = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                of_node = _faults_of(node_pid)
            if producer is not None:
                producer.send(body)
                continue
            assert consumer is not None
            message = consumer.receive(timeout_s=60)
            assert message is not None
            assert len(message.body) == size
            del message  # AUTO acknowledges it
        own = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - own
        of_node = _faults_of(node_pid) - of_node
    pages = -(-size // mmap.PAGESIZE) * bodies
    print(own / pages, of_node / pages)


def main() -> None:
    """A row for each size."""
    made = argparse.ArgumentParser(description="How often a body is copied.")
    made.add_argument("--size", type=int, default=0, help="bytes; 64 KiB and 1 MiB if not given")
    made.add_argument("--bodies", type=int, default=20)
    made.add_argument("--part", choices=("send", "receive"), help=argparse.SUPPRESS)
    made.add_argument("--address", help=argparse.SUPPRESS)
    made.add_argument("--node", type=int, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.part:
        _part(options.part, options.address, options.node, options.size, options.bodies)
        return
    print("   bytes  send: client  node    deliver: node  client")
    for size in [options.size] if options.size else [64 << 10, 1 << 20]:
        copies = measured(size, options.bodies)
        print(
            f"{size:8}  {copies.send_client:12.2f}  {copies.send_node:4.2f}  "
            f"{copies.deliver_node:15.2f}  {copies.deliver_client:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
