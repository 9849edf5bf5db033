"""What a boot costs beside reading the same bytes: `python -m bench.recovery`.

A store is written with so many live messages in one queue, as clients send them: in batches, or one
by one (`--batch 1`). Then two things take turns, each in a process of its own: to read the log's
files from their first byte to their last, and to recover an engine from them, as a node does at
boot. Both find the files in the system's cache, so the ratio is that of the work. The size of the
process afterwards says what the messages take in memory.

    python -m bench.recovery --messages 1000000 --size 200 --pairs 5
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from hms.boot.recovering import recover
from hms.engine.engine import Engine
from hms.engine.settings import EngineSettings
from hms.records import Definition, Placement, Record, Sent, Snapshot, dictionary, sent
from hms.store.journal import Journal
from hms.wire.packed_messages import ROW, pack_messages

__all__ = ["main", "recovered", "write_store"]

_ROOT = Path(__file__).resolve().parent.parent
_QUEUE = Definition(1, "queue", "standing")
_WINDOW_BYTES = 4 << 20
_COMMIT_BYTES = 16 << 20
_MEMORY_BYTES = 8 << 30


class Boot(msgspec.Struct):
    """What one process did: CPU and time, messages found, and its size at the end."""

    seconds: float
    cpu_s: float
    messages: int
    resident_mib: int


def write_store(path: Path, messages: int, size: int, batch: int, segment_bytes: int) -> None:
    """A log in which so many messages wait in one queue."""
    journal = Journal.open(path, segment_bytes=segment_bytes, node_uid=1)
    for _ in journal.recover():
        pass
    journal.start(lambda: _stored(dictionary(Snapshot([_QUEUE], ids_below=messages + 1))))
    one = (ROW.pack(0, size, 0, 0, 4, 0, 0, 0), b"", bytes(size))
    pending = 0
    for first in range(1, messages + 1, batch):
        count = min(batch, messages + 1 - first)
        pack = memoryview(pack_messages([one] * count))
        told = (first, 1_000, 7, 1, first, count)
        head = Sent(1, *told, is_forwarded=False, placements=_HERE, pack=pack, first_seq=first)
        journal.append(*_stored(sent(head)))
        pending += len(pack)
        if pending > _COMMIT_BYTES:
            journal.commit()
            pending = 0
    journal.commit()
    journal.close()


_HERE = [Placement(1, b"")]


def _stored(record: Record) -> tuple[int, int, tuple[bytes | memoryview, ...]]:
    return record.type, record.events, tuple(record.parts)


def recovered(path: Path) -> Engine:
    """The engine as a boot has it when the log is read."""
    engine = Engine(EngineSettings(memory_bytes_max=_MEMORY_BYTES))
    recover(engine, Journal.open(path, node_uid=1), lambda _done, _total: None)
    return engine


def _read(path: Path) -> int:
    """Every byte of the log, as the log itself reads them."""
    for file in sorted(path.glob("*.log")):
        fd = os.open(file, os.O_RDONLY)
        at = 0
        while data := os.pread(fd, _WINDOW_BYTES, at):
            at += len(data)
        os.close(fd)
    return 0


def _recover(path: Path) -> int:
    return sum(place.line.waiting_count for place in recovered(path).state.places.values())


_PARTS = {"read": _read, "recover": _recover}


def _measure(part: str, path: Path) -> Boot:
    cpu_s, begun = time.process_time(), time.perf_counter()
    found = _PARTS[part](path)
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - cpu_s
    return Boot(seconds, cpu_s, found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)


def _alone(part: str, path: Path) -> Boot:
    """The same in a process of its own, with the heap that a node has."""
    command = [sys.executable, "-m", "bench.recovery", "--part", part, "--data", str(path)]
    told = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True)
    return msgspec.json.decode(told.stdout, type=Boot)


def main() -> None:
    """A row for each pair, and the median of their ratios."""
    made = argparse.ArgumentParser(description="What a boot costs beside reading the same bytes.")
    made.add_argument("--messages", type=int, default=1_000_000)
    made.add_argument("--size", type=int, default=1024)
    made.add_argument("--batch", type=int, default=256)
    made.add_argument("--segment-mib", type=int, default=64)
    made.add_argument("--pairs", type=int, default=5)
    made.add_argument("--data", type=Path, default=None, help="a disk, not memory")
    made.add_argument("--part", choices=_PARTS, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.part:
        sys.stdout.buffer.write(msgspec.json.encode(_measure(options.part, options.data)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data) as folder:
        path = Path(folder) / "store"
        segment_bytes = options.segment_mib << 20
        write_store(path, options.messages, options.size, options.batch, segment_bytes)
        ratios = []
        for _ in range(options.pairs):
            read, boot = _alone("read", path), _alone("recover", path)
            assert boot.messages == options.messages, f"{boot.messages} messages were found"
            ratios.append((boot.seconds / read.seconds, boot.cpu_s / read.cpu_s))
            print(
                f"read {read.seconds:6.3f} s (CPU {read.cpu_s:6.3f})   recover "
                f"{boot.seconds:6.3f} s (CPU {boot.cpu_s:6.3f})   ratio {ratios[-1][0]:5.1f} "
                f"(CPU {ratios[-1][1]:5.1f})   "
                f"{1e6 * boot.cpu_s / boot.messages:5.2f} us a message   {boot.resident_mib:,} MiB",
                flush=True,
            )
        times, cpus = zip(*ratios, strict=True)
        print(
            f"median of ratios {statistics.median(times):.1f} (CPU {statistics.median(cpus):.1f})"
        )


if __name__ == "__main__":
    main()
