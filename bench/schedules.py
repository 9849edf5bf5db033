"""W11, schedules: messages due over two restarts while the machine's clock is set by an hour.

    python -m bench.schedules                      100,000 delayed messages and 1,000 schedules
    python -m bench.schedules --count 1000 --window 10

The node is killed twice; its wall clock is set forward and back by an hour while it runs (it must
not follow: docs/decisions/0021). Told is whether each message came exactly once, whether one came
early, and how late they were. A clock that was set makes the node's differ by 1 % of the time
since then; so much is allowed.
"""

import argparse
import json
import math
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

import hms
from hms.testing import TestNode, node

__all__ = ["main", "run"]

_HOUR_S = 3600
_FOLLOWS = 0.01
_EVERY_S = 2.0
_RECEIVE_S = 0.2
_TOGETHER = 500
"""So many messages are acknowledged together."""
_LATE_S = 60
_PERCENTILES = (50, 90, 99, 99.9, 100)
_CLOCK = Path(__file__).parent.parent / "tests" / "acceptance" / "set_clock.c"


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a run; times in seconds. early_s: how much the earliest came early."""

    delayed: int
    occurrences: int
    missing: int
    doubled: int
    early: int
    earliest_s: float
    redelivered: int
    restarts: int
    lateness_s: dict[str, float]


class _Clock:
    """The node's wall clock, which can be set."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "set_clock.so", folder / "offset"
        compiler = shutil.which("cc") or "cc"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_CLOCK)]
        subprocess.run(command, check=True, timeout=60)
        self._file.write_bytes(bytes(8))
        self.prefix = ["env", f"CLOCK_OFFSET_FILE={self._file}", f"LD_PRELOAD={library}"]

    def set(self, seconds: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", seconds))


class _Books:
    """What is expected and what came. All times by the true clock."""

    def __init__(self) -> None:
        self.due_s: dict[str, float] = {}
        self.ids: dict[str, set[str]] = defaultdict(set)
        self.late_s: list[float] = []
        self.numbers: dict[str, set[int]] = defaultdict(set)
        self.redelivered = 0
        self._lock = threading.Lock()

    def came(self, message: Any) -> None:
        """A message; of one that comes again only the first time counts."""
        now_s = time.time()
        node_said = message.property
        name = message.properties.get("$ScheduleName")
        key = f"{name}.{node_said('$ScheduleCount')}" if name else message.body.decode()
        due_s = node_said("$ScheduledTime") / 1000 if name else self.due_s[key]
        with self._lock:
            is_first = not self.ids[key]
            self.ids[key].add(message.message_id)
            self.redelivered += message.redelivered
            if name:
                self.numbers[name].add(node_said("$ScheduleCount"))
            if is_first:
                self.late_s.append(now_s - due_s)

    @property
    def delayed_left(self) -> int:
        """Delayed messages that have not come."""
        return sum(1 for key in self.due_s if key not in self.ids)


def run(count: int, schedules: int, window_s: float) -> Outcome:
    """Send, kill and set the clock, receive; the books at the end."""
    books = _Books()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clock = _Clock(folder)
        config: dict[str, Any] = {"hms": {"queue": {"later": {}, "again": {}}}}
        started = stack.enter_context(
            node(store=folder / "store", config=config, command_prefix=clock.prefix)
        )
        connection = stack.enter_context(
            hms.connect(started.address, reconnect_interval_s=0.1, request_timeout_s=120)
        )
        stop = threading.Event()
        threads = [
            threading.Thread(target=_receive, args=(connection, name, books, stop))
            for name in ("later", "again")
        ]
        began_s = _send(connection, count, schedules, window_s, books)
        for thread in threads:
            thread.start()
        ahead_s = _trouble(started, clock, began_s, window_s)
        _wait(books, began_s + window_s + _LATE_S)
        for one in connection.schedules(kind="schedule", limit=10_000):
            connection.cancel_schedule(one.name)
        time.sleep(1)
        stop.set()
        for thread in threads:
            thread.join(_LATE_S)
    return _outcome(books, count, ahead_s)


def _send(connection: Any, count: int, schedules: int, window_s: float, books: _Books) -> float:
    """All messages, due one after the other within the window; when that begins."""
    with connection.session() as session:
        out = session.producer("queue:later")
        lead_s = 2 + count / 10_000
        began_s = time.time() + lead_s
        pending = []
        for number in range(count):
            key = str(number)
            books.due_s[key] = began_s + window_s * number / count
            pending.append(out.send_async(key.encode(), deliver_at=books.due_s[key]))
        for future in pending:
            future.result(120)
        again = session.producer("queue:again")
        for number in range(schedules):
            again.schedule(f"s{number}", b"", every_s=_EVERY_S, missed="ALL")
    return began_s


def _trouble(started: TestNode, clock: _Clock, began_s: float, window_s: float) -> float:
    """Two steps of the clock, each an hour the other way, and two kills; for how many seconds it
    was ahead."""
    set_at, is_ahead, ahead_s = 0.0, False, 0.0
    for share, what in ((0.2, _HOUR_S), (0.4, None), (0.6, -_HOUR_S), (0.8, None)):
        time.sleep(max(0.0, began_s + share * window_s - time.time()))
        if what is not None:
            set_at, is_ahead = time.monotonic(), what > 0
            clock.set(what)
            continue
        started.kill()
        if is_ahead:
            ahead_s += time.monotonic() - set_at
        clock.set(0)
        started.boot(warm=True)
    return ahead_s


def _receive(connection: Any, name: str, books: _Books, stop: threading.Event) -> None:
    session = connection.session(hms.AckMode.CLIENT)
    inn = session.consumer(f"queue:{name}")
    while not stop.is_set():
        try:
            message = inn.receive(timeout_s=_RECEIVE_S)
            for _ in range(_TOGETHER):
                if message is None:
                    break
                books.came(message)
                message = inn.receive_nowait()
            if message is not None:
                books.came(message)
            session.ack()
        except (hms.AcknowledgeLost, hms.ConnectionLost):
            continue


def _wait(books: _Books, until_s: float) -> None:
    while books.delayed_left and time.time() < until_s:
        time.sleep(0.1)


def _outcome(books: _Books, count: int, ahead_s: float) -> Outcome:
    late_s = sorted(books.late_s)
    gaps = sum(max(numbers) - len(numbers) for numbers in books.numbers.values())
    early_s = -late_s[0] if late_s else 0.0
    slack_s = _FOLLOWS * ahead_s + 0.002  # so far it may have gone with the clock that was set
    return Outcome(
        delayed=count,
        occurrences=sum(map(len, books.numbers.values())),
        missing=books.delayed_left + gaps,
        doubled=sum(1 for ids in books.ids.values() if len(ids) > 1),
        early=sum(1 for late in late_s if late < -slack_s),
        earliest_s=round(max(0.0, early_s), 4),
        redelivered=books.redelivered,
        restarts=2,
        lateness_s={f"p{p:g}": round(_percentile(late_s, p), 4) for p in _PERCENTILES},
    )


def _percentile(ordered: Sequence[float], percent: float) -> float:
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a message was lost, doubled or early."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--window", type=float, default=60.0, help="seconds in which all are due")
    given = parser.parse_args(arguments)
    outcome = run(given.count, given.schedules, given.window)
    print(json.dumps(msgspec.to_builtins(outcome), indent=2))
    return 1 if outcome.missing or outcome.doubled or outcome.early else 0


if __name__ == "__main__":
    raise SystemExit(main())
