"""What the log costs at boot and over time, with a real node.

    python bench/log.py live     --count 1000000   boot with so many waiting messages of 1 KiB
    python bench/log.py settled  --count 5000000   boot with 10,000 waiting among so many settled
    python bench/log.py cap      --count 10000000  so many messages through a log of 1 GiB

Boot times are a ratio to reading the same files by a bare script in the same run, and to the boot
of an empty store. The last one prints the disk that was used and the rate of each slice.
"""

import statistics
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import hms
from hms.boot.bench.machine import peak_rss_bytes
from hms.testing import TestNode, node

MIB = 1 << 20
BATCH = 500
CONFIG = """
[node.node1]
heartbeat_s = 60
max_memory_bytes = "{memory_mib} MiB"
max_message_bytes = "1 MiB"
segment_bytes = "64 MiB"
{more}
[hms.queue.kept]
[hms.queue.busy]
"""


@contextmanager
def running(options: Namespace, more: str = "") -> Iterator[TestNode]:
    """A node on a disk, not in memory."""
    with TemporaryDirectory(dir=options.folder) as folder:
        config = CONFIG.format(memory_mib=options.memory_mib, more=more)
        with node(Path(folder) / "store", config) as found:
            yield found


def fill(address: str, queue: str, count: int, size: int) -> None:
    """Send so many messages."""
    body = bytes(size)
    with hms.connect(address) as connection, connection.session() as session:
        producer = session.producer(hms.Queue(queue))
        for start in range(0, count, BATCH):
            producer.send_many([body] * min(BATCH, count - start))


def empty(address: str, queue: str, count: int) -> None:
    """Receive and acknowledge so many."""
    with hms.connect(address) as connection, connection.session() as session:
        consumer = session.consumer(hms.Queue(queue))
        for n in range(count):
            assert consumer.receive(60) is not None, f"{count - n} of {count} did not come"


def flow(address: str, count: int, size: int) -> None:
    """Send so many messages while another thread receives them."""
    receiver = threading.Thread(target=empty, args=(address, "busy", count))
    receiver.start()
    fill(address, "busy", count, size)
    receiver.join()


def boot_s(found: TestNode) -> float:
    """Seconds from the start of the process to the word that it is ready."""
    started = time.monotonic()
    found.boot(warm=True)
    return time.monotonic() - started


def read_s(store: Path) -> tuple[float, int]:
    """Seconds to read the log's files, and their bytes."""
    started, size = time.monotonic(), 0
    for file in sorted(store.glob("*.log")):
        if file.stem.isdigit():
            with file.open("rb", buffering=0) as stream:
                while data := stream.read(4 * MIB):
                    size += len(data)
    return time.monotonic() - started, size


def boots(found: TestNode, options: Namespace) -> None:
    """Boot a few times and tell the ratios."""
    found.stop()
    ours, bare, size = [], [], 0
    for _ in range(options.runs):
        seconds, size = read_s(found.store)
        bare.append(seconds)
        ours.append(boot_s(found))
        rss = peak_rss_bytes(found.pid)
        found.stop()
    boot, reading = statistics.median(ours), statistics.median(bare)
    print(f"log: {size / MIB:.0f} MiB in {len(list(found.store.glob('*.log')))} files")
    print(f"reading it: {reading:.2f} s; booting: {boot:.2f} s, peak {rss / MIB:.0f} MiB")
    with running(options) as other:
        other.stop()
        nothing = statistics.median([_empty_boot(other) for _ in range(options.runs)])
    print(f"an empty store boots in {nothing:.2f} s")
    print(f"ratio to reading: {(boot - nothing) / reading:.1f}")


def _empty_boot(other: TestNode) -> float:
    seconds = boot_s(other)
    other.stop()
    return seconds


def live(options: Namespace) -> None:
    """All of it waits."""
    with running(options) as found:
        fill(found.address, "kept", options.count, options.size)
        boots(found, options)


def settled(options: Namespace) -> None:
    """Ten thousand wait, the others came and went."""
    with running(options) as found:
        fill(found.address, "kept", 10_000, options.size)
        flow(found.address, options.count, options.size)
        boots(found, options)
        found.boot(warm=True)
        empty(found.address, "kept", 10_000)
        print("all of the 10000 are there")


def cap(options: Namespace) -> None:
    """A log of 1 GiB and a history of 1 GiB, while messages pass."""
    more = 'max_log_bytes = "1 GiB"\nhistory_bytes = "1 GiB"'
    with running(options, more) as found:
        fill(found.address, "kept", 1000, options.size)
        rates, most = [], 0
        slice_count = options.count // options.slices
        for _ in range(options.slices):
            started = time.monotonic()
            flow(found.address, slice_count, options.size)
            rates.append(slice_count / (time.monotonic() - started))
            used = sum(file.stat().st_size for file in found.store.iterdir())
            most = max(most, used)
            print(f"{rates[-1]:,.0f} messages/s, disk {used / MIB:.0f} MiB", flush=True)
        print(f"most disk used: {most / MIB:.0f} MiB")
        print(f"last slice to first: {rates[-1] / rates[0]:.2f}")
        empty(found.address, "kept", 1000)


def main() -> int:
    """See the module."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["live", "settled", "cap"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--memory-mib", type=int, default=1024)
    parser.add_argument("--folder", help="a directory on the disk that is measured")
    options = parser.parse_args()
    {"live": live, "settled": settled, "cap": cap}[options.what](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
