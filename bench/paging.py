"""What a heap of waiting messages costs that does not fit into memory, with a real node.

    python bench/paging.py --count 1000000 --memory-mib 128

Fills a queue with so many messages of 1 KiB, empties it again and checks that all are there in
their order; once with the memory quota, then with one that holds all of them. Prints the most
memory that the node took, and the rate of receiving as a ratio of the two.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import hms
from hms.boot.bench.machine import peak_rss_bytes
from hms.testing import TestNode, node

MIB = 1 << 20
BATCH = 500
WAIT_S = 120
CONFIG = """
[node.node1]
heartbeat_s = 60
max_memory_bytes = "{memory_mib} MiB"
max_message_bytes = "1 MiB"
segment_bytes = "64 MiB"
[hms.queue.heap]
"""


def fill(address: str, count: int, size: int) -> float:
    """Send so many messages, each with its number; messages a second."""
    started, padding = time.monotonic(), bytes(size - 8)
    with hms.connect(address) as connection, connection.session() as session:
        producer = session.producer(hms.Queue("heap"))
        producer.send_many(i.to_bytes(8, "little") + padding for i in range(count))
    return count / (time.monotonic() - started)


def empty(address: str, count: int, size: int) -> float:
    """Receive all of them, in order; messages a second."""
    started = time.monotonic()
    with hms.connect(address) as connection, connection.session() as session:
        consumer = session.consumer(hms.Queue("heap"))
        for i in range(count):
            message = consumer.receive(WAIT_S)
            assert message is not None, f"{count - i} of {count} did not come"
            assert len(message.body) == size, f"message {i} has {len(message.body)} bytes"
            assert int.from_bytes(message.body[:8], "little") == i, f"message {i} is out of order"
        assert consumer.receive_nowait() is None, "there is one more than was sent"
    return count / (time.monotonic() - started)


def measured(options: Namespace, memory_mib: int) -> tuple[float, float, int]:
    """Rates of sending and receiving, and the node's peak memory in bytes."""
    with TemporaryDirectory(dir=options.folder) as folder:
        config = CONFIG.format(memory_mib=memory_mib)
        with node(Path(folder) / "store", config) as found:
            sent = fill(found.address, options.count, options.size)
            _say_waiting(found, options.count)
            received = empty(found.address, options.count, options.size)
            return sent, received, peak_rss_bytes(found.pid)


def _say_waiting(found: TestNode, count: int) -> None:
    with hms.connect(found.address) as connection:
        shown = connection.administer("queue.show", {"name": "heap"})
    assert shown["remaining"] == count, f"{shown['remaining']} of {count} wait"
    print(f"  {count} wait; {peak_rss_bytes(found.pid) / MIB:.0f} MiB at most so far", flush=True)


def main() -> None:
    """Measure with the quota and without."""
    options = _options()
    print(f"{options.count} messages of {options.size} bytes, quota {options.memory_mib} MiB")
    sent, received, peak = measured(options, options.memory_mib)
    print(f"paged: sent {sent:.0f}/s, received {received:.0f}/s, peak {peak / MIB:.0f} MiB")
    if options.only:
        return
    everything = 2 * options.count * (options.size + 1024) // MIB + 256
    plain_sent, plain, plain_peak = measured(options, everything)
    print(f"unpaged: sent {plain_sent:.0f}/s, received {plain:.0f}/s, {plain_peak / MIB:.0f} MiB")
    print(f"ratio: sending {sent / plain_sent:.2f}, receiving {received / plain:.2f}")


def _options() -> Namespace:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--memory-mib", type=int, default=128)
    parser.add_argument("--folder", default=".", help="a folder on the disk to be measured")
    parser.add_argument("--only", action="store_true", help="without the node that has memory")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
