"""The way of one message, and of one call, alone: `python -m bench.way`; Python calls, files and
wake-ups.

A real node and a real client (journal, persistent, 1 KiB, session AUTO, the defaults) run under a
profile function that notes each call of a Python function. Messages follow one another with pauses,
so what was noted in between belongs to one message, but for what is done by the clock: looks at the
connections, heartbeats, ticks. How often these meet a message is chance, so they are counted apart,
as upkeep: a turn of a thread in which nothing is received, applied, committed or sent, and what
UPKEEP names in one in which something is. Those whose threads woke one another once more go a
longer way: the way is told than which a fifth of them went a shorter one. Calls are exact on any
machine, times are not; a test lets these figures only fall.

A message goes two ways. To a queue without a consumer, up to its confirmation:

    client sends        from the call of send() to the socket
    node confirms       from the socket over the log to the socket; a thread counts until it has
                        handed over to the next one
    client confirmed    until send() returns

And its whole life, to a consumer that waits in receive(): sent, confirmed, delivered, received,
acknowledged, and that confirmed. How often upkeep is due is chance, so no limit holds for it.

A call (W8) goes from tpcall() through the node to a service in a process of its own, and its reply
back: what each of the three does for it, the function of the service included.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from types import CodeType, FrameType
from typing import Any, NamedTuple

import hms
import tpmon
from hms.boot import node as node_module
from hms.testing import node
from tpmon.server import Server

__all__ = ["LIMITS", "Figures", "main", "measured"]

WARM_UP = 30
PAUSE_S = 0.04
"""Longer than an acknowledgement is held back and its sync lingers."""
SIZE_BYTES = 1024
SWITCHES_COUNT = 300
QUICK = next(filter(Path.is_dir, (Path("/dev/shm"), Path(tempfile.gettempdir()))))
"""Which thread syncs is up to how long that takes; in memory it is always the same."""
_ROOT = str(Path(__file__).resolve().parent.parent)


class Figures(NamedTuple):
    """Calls of Python functions, the files they lie in, and how often the next call of a thread
    lies in another file."""

    calls: int
    files: int
    changes: int


LIMITS: dict[str, Figures] = {
    "client sends": Figures(13, 9, 9),
    "node confirms": Figures(63, 32, 55),
    "client confirmed": Figures(22, 11, 16),
    "life: client": Figures(75, 19, 57),
    "life: client, background": Figures(35, 12, 25),
    "life: node": Figures(137, 35, 110),
    "call: client": Figures(45, 15, 33),
    "call: node": Figures(80, 20, 58),
    "call: service": Figures(33, 14, 27),
}
"""What each part may take at most; only ever lowered."""
_LIFE = ("life: client", "life: client, background", "life: node")
_CALL = ("call: client", "call: node", "call: service")
_UPKEEP = "life: node, upkeep"
UPKEEP = {
    *("Gateway._tend", "PeerTable.look", "name_of"),
    *("Journal.needs_maintenance", "LogCleaning.is_due"),
}
"""What is done by the clock, by the bytes written, or for a longest time: not for one message."""
TURNS = {"Gateway._take_turn", "NodeProcess._handler.<locals>.in_parts", "StoragePool._take_task"}
"""With these calls the node's threads begin what they do next."""
PURPOSES = {"Listener.receive", "Listener.send", "Broker._apply", "Journal.commit"}
"""A turn is a message's when it has one of these."""
_ASLEEP = "Gateway._sleep_ms"
"""What the main thread does at the begin of a turn, before it sleeps."""


class Call(NamedTuple):
    """When, in which thread, and what was called; is_end: a marked function returned."""

    at_s: float
    thread: int
    file: str
    name: str
    is_end: bool


Notes = list[tuple[float, int, CodeType, bool]]


def _profile(notes: Notes, marked: set[str]) -> Callable[[FrameType, str, Any], None]:
    """A profile function that notes calls, and the ends of those that are marked."""

    def noted(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            notes.append((perf_counter(), threading.get_ident(), frame.f_code, False))
        elif event == "return" and frame.f_code.co_qualname in marked:
            notes.append((perf_counter(), threading.get_ident(), frame.f_code, True))

    return noted


def _watch(*names: str) -> Notes:
    """Note calls from now on, in this thread and all that begin later, and the ends of those."""
    notes: Notes = []
    noted = _profile(notes, set(names))
    threading.setprofile(noted)
    sys.setprofile(noted)
    return notes


def _calls(notes: Notes) -> list[Call]:
    return [
        Call(at, thread, _file_of(code), code.co_qualname, is_end)
        for at, thread, code, is_end in list(notes)
    ]


def _file_of(code: CodeType) -> str:
    return code.co_filename.removeprefix(_ROOT).lstrip("/")


# the node


def _serve(out: Path, command: Sequence[str]) -> int:
    """Run a node, and write down its calls at its end."""
    notes = _watch("Outbox.put_many", "Listener.send", _ASLEEP, *UPKEEP)
    try:
        return node_module.main(command[command.index("hms.boot.node") + 1 :])
    finally:
        sys.setprofile(None)
        out.write_text(json.dumps(_calls(notes)), encoding="utf-8")


# the service

_ECHO = "hms.boot.bench.echo"


def _run_service(out: Path, address: str) -> int:
    """Serve ECHO until SIGTERM, and write down the calls of the thread that runs it."""
    server = Server(_ECHO, address, on_serving=lambda: print("ready", flush=True))
    notes, me = _watch(), threading.get_ident()
    try:
        server.run()
    finally:
        sys.setprofile(None)
        ours = [call for call in _calls(notes) if call.thread == me]
        out.write_text(json.dumps(ours), encoding="utf-8")
    return 0


@contextmanager
def _service(out: Path, address: str) -> Iterator[None]:
    """The service in a process of its own."""
    command = [sys.executable, "-m", "bench.way", "--service", str(out), "--connect", address]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the service did not start"
            yield
        finally:
            process.terminate()


# the client


_STEPS = ("_send", "_receive", "_call")


def _send(producer: hms.Producer, body: bytes) -> None:
    producer.send(body)


def _receive(consumer: hms.Consumer) -> None:
    assert consumer.receive(60) is not None


def _call(body: bytes) -> None:
    tpmon.tpcall("ECHO", body)


class _Receiver:
    """A thread that receives a message whenever it is told to."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wanted = threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def want(self) -> None:
        self._wanted.release()

    def close(self) -> None:
        self._is_over = True
        self._wanted.release()
        self._thread.join()

    def _run(self) -> None:
        with hms.connect(self._address) as connection, connection.session() as session:
            consumer = session.consumer("queue:read")
            self._wanted.acquire()
            while not self._is_over:
                _receive(consumer)
                self._wanted.acquire()


def _drive(address: str, count: int, cuts: dict[str, list[float]]) -> None:
    """Send messages alone, and note when each of them begins."""
    body = bytes(SIZE_BYTES)
    receiver = _Receiver(address)
    with hms.connect(address) as connection, connection.session() as session:
        for queue in ("kept", "read"):
            producer = session.producer(f"queue:{queue}", persistent=True)
            for nth in range(WARM_UP + count + 1):
                if nth >= WARM_UP:
                    cuts[queue].append(perf_counter())
                if queue == "read":
                    receiver.want()
                    sleep(PAUSE_S / 4)
                _send(producer, body)
                sleep(PAUSE_S if nth >= WARM_UP else PAUSE_S / 4)
        receiver.close()


def _drive_calls(address: str, count: int, cuts: list[float]) -> None:
    """Make calls alone, and note when each of them begins."""
    body = bytes(SIZE_BYTES)
    os.environ["HMS_ADDRESS"] = address
    tpmon.tpstart()
    try:
        for nth in range(WARM_UP + count + 1):
            if nth >= WARM_UP:
                cuts.append(perf_counter())
            _call(body)
            sleep(PAUSE_S if nth >= WARM_UP else PAUSE_S / 4)
    finally:
        tpmon.tpend()


def _ours(calls: Sequence[Call]) -> list[Call]:
    """The client's calls without those of this bench: what its threads do inside send(), receive()
    and tpcall(), and all that the library's own threads do."""
    inside: dict[int, bool] = {}
    found = []
    for call in calls:
        if call.name in _STEPS and call.file == "bench/way.py":
            inside[call.thread] = not call.is_end
            found.append(call._replace(is_end=True))
        elif inside.get(call.thread, call.file != "bench/way.py"):
            found.append(call)
    return found


def _own(calls: Sequence[Call]) -> list[Call]:
    """What the application's threads do, in send(), receive() and tpcall()."""
    threads = {call.thread for call in calls if call.file == "bench/way.py"}
    return [call for call in calls if call.thread in threads]


def _apart(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """The node's calls for messages, and its upkeep; see the module."""
    kept: list[Call] = []
    upkeep: list[Call] = []
    for thread in {call.thread for call in calls}:
        done_at = 0.0
        for turn in _turns([call for call in calls if call.thread == thread]):
            if PURPOSES.isdisjoint(call.name for call in turn):
                upkeep += turn
                continue
            root = ""
            for call in _awake(turn, done_at):
                root = root or (call.name if call.name in UPKEEP else "")
                (upkeep if root else kept).append(call)
                if call.is_end and call.name == root:
                    root = ""
            done_at = turn[-1].at_s
    return sorted(kept), sorted(upkeep)


def _turns(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """What a thread did, turn by turn."""
    turn: list[Call] = []
    for call in calls:
        if call.name in TURNS and turn:
            yield turn
            turn = []
        turn.append(call)
    yield turn


def _awake(turn: list[Call], done_at: float) -> list[Call]:
    """A turn whose thread went to sleep in it, before anybody knew for what it would be woken: that
    belongs to the message before, and is put behind what was done for that."""
    slept = [nth for nth, call in enumerate(turn) if call.is_end and call.name == _ASLEEP]
    count = slept[0] + 1 if slept and done_at else 0
    behind = math.nextafter(done_at, math.inf)
    return [call._replace(at_s=behind) for call in turn[:count]] + turn[count:]


def _split(calls: Sequence[Call], cuts: Sequence[float]) -> Iterator[list[Call]]:
    """The calls of each message."""
    for begin, end in itertools.pairwise(cuts):
        yield [call for call in calls if begin <= call.at_s < end]


def _until(calls: Sequence[Call], *ends: str) -> tuple[list[Call], list[Call]]:
    """Of each thread what it did until the first of its last marked returns, and the rest."""
    last = {call.thread: call.at_s for call in calls if call.is_end and call.name in ends}
    first = [call for call in calls if call.at_s <= last.get(call.thread, 0.0)]
    return first, [call for call in calls if call.at_s > last.get(call.thread, 0.0)]


def _figures(calls: Sequence[Call]) -> Figures:
    """Files changes are counted in each thread by itself: how threads interleave is chance."""
    made = [call for call in calls if not call.is_end]
    changes = 0
    for thread in {call.thread for call in made}:
        files = [call.file for call in made if call.thread == thread]
        changes += sum(a != b for a, b in itertools.pairwise(files))
    return Figures(len(made), len({call.file for call in made}), changes)


class Measured(NamedTuple):
    """The figures of each part of the way, and an example of its calls."""

    figures: dict[str, Figures]
    calls: dict[str, list[Call]]


def measured(count: int, folder: Path) -> Measured:
    """Send so many messages each way, and tell how they went."""
    cuts: dict[str, list[float]] = {"kept": [], "read": [], "call": []}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        out, service_out = Path(place) / "calls.json", Path(place) / "service.json"
        prefix = [sys.executable, "-m", "bench.way", "--serve", str(out)]
        config = {"hms": {"queue": {"kept": {}, "read": {}}}}
        with node(store=Path(place) / "store", config=config, command_prefix=prefix) as running:
            notes = _watch("Transport.send", *_STEPS)
            try:
                _drive(running.address, count, cuts)
                with _service(service_out, running.address):
                    _drive_calls(running.address, count, cuts["call"])
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            running.stop()
        of_node, of_service = map(_read_calls, (out, service_out))
    of_node, upkeep = _apart(of_node)
    client = _ours(_calls(notes))
    parts: dict[str, list[list[Call]]] = {name: [] for name in (*LIMITS, _UPKEEP)}
    for ours, theirs in zip(
        _split(client, cuts["kept"]), _split(of_node, cuts["kept"]), strict=True
    ):
        sends, confirmed = _until(_own(ours), "Transport.send")
        parts["client sends"].append(sends)
        parts["client confirmed"].append(confirmed)
        parts["node confirms"].append(_until(theirs, "Outbox.put_many", "Listener.send")[0])
    for ours, theirs in zip(
        _split(client, cuts["read"]), _split(of_node, cuts["read"]), strict=True
    ):
        own = _own(ours)
        parts["life: client"].append(own)
        parts["life: client, background"].append([call for call in ours if call not in own])
        parts["life: node"].append(theirs)
    parts[_UPKEEP] += _split(upkeep, cuts["read"])
    sides = (_own(client), of_node, of_service)
    for name, calls in zip(_CALL, sides, strict=True):
        parts[name] += _split(calls, cuts["call"])
    usual = {name: _usual(ways) for name, ways in parts.items()}
    usual["whole life"] = [call for name in _LIFE for call in usual[name]]
    usual["whole call"] = [call for name in _CALL for call in usual[name]]
    return Measured({name: _figures(way) for name, way in usual.items()}, usual)


def _read_calls(file: Path) -> list[Call]:
    """What another process has noted."""
    return sorted(Call(*one) for one in json.loads(file.read_text(encoding="utf-8")))


def _usual(ways: Sequence[Sequence[Call]]) -> list[Call]:
    """The way than which a fifth of the messages went a shorter one."""
    return list(sorted(ways, key=_figures)[len(ways) // 5])


# wake-ups


def _switches(pid: int) -> Counter[str]:
    """How often the threads of a process have gone to sleep of their own accord: the main thread,
    those of ZeroMQ, and all others."""
    found: Counter[str] = Counter()
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        said = dict(line.split(":", 1) for line in status.read_text().splitlines())
        kind = "ZeroMQ" if said["Name"].strip().startswith("ZMQ") else "other threads"
        kind = "main thread" if said["Pid"].strip() == str(pid) else kind
        found[kind] += int(said["voluntary_ctxt_switches"])
    return found


def switches(count: int, folder: Path) -> dict[str, Counter[str]]:
    """Of node and client, for so many messages that are sent one after the other."""
    config = {"hms": {"queue": {"kept": {}}}}
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place,
        node(store=Path(place) / "store", config=config) as running,
        hms.connect(running.address) as connection,
        connection.session() as session,
    ):
        producer, body = session.producer("queue:kept", persistent=True), bytes(SIZE_BYTES)
        for _ in range(WARM_UP):
            producer.send(body)
        before = _switches(running.pid), _switches(os.getpid())
        for _ in range(count):
            producer.send(body)
        after = _switches(running.pid), _switches(os.getpid())
    return {"node": after[0] - before[0], "client": after[1] - before[1]}


def _show(calls: Sequence[Call]) -> None:
    """Calls as they follow, each thread by itself."""
    for thread in dict.fromkeys(call.thread for call in calls):
        print(f"thread {thread}")
        for call in calls:
            if call.thread == thread and not call.is_end:
                print(f"  {call.file}: {call.name}")


def main() -> int:
    """Measure and tell."""
    made = argparse.ArgumentParser(description="The way of one message or call alone, counted.")
    made.add_argument("--count", type=int, default=30)
    made.add_argument("--data", type=Path, default=QUICK)
    made.add_argument(
        "--list",
        choices=[*LIMITS, "whole life", "whole call"],
        help="the calls of one part, in order",
    )
    made.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--service", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--connect", help=argparse.SUPPRESS)
    options, rest = made.parse_known_args()
    if options.serve is not None:
        return _serve(options.serve, rest)
    if options.service is not None:
        return _run_service(options.service, options.connect)
    found = measured(options.count, options.data)
    if options.list:
        _show(found.calls[options.list])
        return 0
    print(f"{'':24} {'calls':>6} {'files':>6} {'changes':>8}   limits")
    for name, (calls, files, changes) in found.figures.items():
        limit = tuple(LIMITS.get(name, ()))
        print(f"{name:24} {calls:6} {files:6} {changes:8}   {limit or ''}")
    print("\nvoluntary context switches of a send")
    for name, of_kind in switches(SWITCHES_COUNT, options.data).items():
        parts = ", ".join(f"{kind} {n / SWITCHES_COUNT:.1f}" for kind, n in sorted(of_kind.items()))
        print(f"{name:24} {of_kind.total() / SWITCHES_COUNT:6.1f}   {parts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
