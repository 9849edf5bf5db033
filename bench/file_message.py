"""W12, a large file message: from client to client through a node that is killed in the middle.

    python -m bench.file_message                 2 GiB, both clients with 128 MiB of memory each
    python -m bench.file_message --mib 64

Each client is a process of its own whose memory is limited (RLIMIT_DATA: what it allocates). The
node is killed once while the file comes and once while it goes. Told are whether the SHA-256 is the
same, the times, and the peak memory of all three.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import hms
from hms.boot.bench.machine import peak_rss_bytes
from hms.testing import TestNode, node

__all__ = ["main", "run"]

_MIB = 1 << 20
_CHUNK = 1 << 20
_WAIT_S = 600
_POLL_S = 0.02


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a run. Peaks in MiB of resident memory."""

    mib: int
    is_whole: bool
    send_s: float
    receive_s: float
    kills: int
    limit_mib: int
    sender_peak_mib: float
    receiver_peak_mib: float
    node_peak_mib: float


def run(mib: int, limit_mib: int) -> Outcome:
    """Make a file, send it, kill the node, receive it, kill it again, compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = _make(folder / "source", mib)
        with node(store=folder / "store", config=_config(mib)) as started:
            peaks = _Peaks(started)
            half = mib * _MIB // 2
            send_s, sender_peak = _send_killed(peaks, folder, half, limit_mib)
            receive_s, receiver_peak = _receive_killed(peaks, folder, half, limit_mib)
            peaks.look()
        found = _digest(folder / "target")
    return Outcome(
        mib=mib,
        is_whole=found == wanted,
        send_s=round(send_s, 1),
        receive_s=round(receive_s, 1),
        kills=peaks.kills,
        limit_mib=limit_mib,
        sender_peak_mib=round(sender_peak, 1),
        receiver_peak_mib=round(receiver_peak, 1),
        node_peak_mib=round(peaks.node_mib, 1),
    )


def _config(mib: int) -> dict[str, Any]:
    room = {"max_file_bytes": max(1, 2 * mib) * _MIB}
    return {"node": {"n": room}, "hms": {"queue": {"q": {}}}}


def _send_killed(peaks: "_Peaks", folder: Path, half: int, limit_mib: int) -> tuple[float, float]:
    """The sender's seconds and peak; the node is killed when half of the file has come."""
    spool = folder / "store" / "files"
    sent = _process(_send, (peaks.address, str(folder / "source")), limit_mib)
    _kill_when(peaks, lambda: _size(spool.glob("*.part")) >= half, sent)
    return sent.result(peaks)


def _receive_killed(
    peaks: "_Peaks", folder: Path, half: int, limit_mib: int
) -> tuple[float, float]:
    """The receiver's; the node is killed when half of the file has gone."""
    came = _process(_receive, (peaks.address, str(folder / "target")), limit_mib)
    _kill_when(peaks, lambda: _size(folder.glob("target*.part")) >= half, came)
    return came.result(peaks)


class _Peaks:
    """The node's peak memory over all its lives."""

    def __init__(self, started: TestNode) -> None:
        self._started = started
        self.address = started.address
        self.node_mib = 0.0
        self.kills = 0

    def look(self) -> None:
        status = Path(f"/proc/{self._started.pid}/status").read_text()
        (line,) = [one for one in status.splitlines() if one.startswith("VmHWM")]
        self.node_mib = max(self.node_mib, int(line.split()[1]) / 1024)

    def kill(self) -> None:
        self.look()
        self._started.kill()
        self.kills += 1
        self._started.boot(warm=True)


class _Running:
    """A client in a process of its own."""

    def __init__(self, process: Any, pipe: Any) -> None:
        self._process, self._pipe = process, pipe

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def result(self, peaks: _Peaks) -> tuple[float, float]:
        """Seconds, and its peak in MiB."""
        until = time.monotonic() + _WAIT_S
        is_alive = True  # before the look at the pipe: its last words may come in between
        while not self._pipe.poll(1.0):
            peaks.look()
            if time.monotonic() > until or not is_alive:
                raise SystemExit("a client did not come to an end")
            is_alive = self.is_alive
        said = self._pipe.recv()
        self._process.join(_WAIT_S)
        if isinstance(said, str):
            raise SystemExit(said)
        seconds, peak = said
        return float(seconds), float(peak)


def _process(work: Callable[..., None], arguments: tuple[str, str], limit_mib: int) -> _Running:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(work, arguments, limit_mib, theirs))
    process.start()
    return _Running(process, ours)


def _limited(
    work: Callable[..., None], arguments: tuple[str, str], limit_mib: int, pipe: Any
) -> None:
    """In the client's process."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_mib * _MIB, limit_mib * _MIB))
    began = time.monotonic()
    try:
        work(*arguments)
    except Exception as fault:  # noqa: BLE001 - told to the one who waits
        pipe.send(repr(fault))
        return
    peak_mib = peak_rss_bytes(os.getpid()) / _MIB
    pipe.send((time.monotonic() - began, peak_mib))


def _send(address: str, path: str) -> None:
    with hms.connect(address, reconnect_interval_s=0.2) as conn, conn.session() as session:
        session.producer("queue:q").send(hms.Message.file(path))


def _receive(address: str, path: str) -> None:
    with hms.connect(address, reconnect_interval_s=0.2) as conn, conn.session() as session:
        message = session.consumer("queue:q").receive(timeout_s=_WAIT_S)
        assert message is not None
        message.save(path)


def _kill_when(peaks: _Peaks, is_time: Callable[[], bool], running: _Running) -> None:
    while running.is_alive and not is_time():
        time.sleep(_POLL_S)
    if running.is_alive:
        peaks.kill()


def _size(paths: Any) -> int:
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _make(path: Path, mib: int) -> str:
    """A file that nothing makes smaller; its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as opened:
        for _ in range(mib):
            data = os.urandom(_CHUNK)
            digest.update(data)
            opened.write(data)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when the file did not come whole."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--limit", type=int, default=128, help="MiB of memory for each client")
    given = parser.parse_args(arguments)
    outcome = run(given.mib, given.limit)
    print(json.dumps(msgspec.to_builtins(outcome), indent=2))
    return 0 if outcome.is_whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
