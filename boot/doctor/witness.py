"""The witness: whether a disk keeps, through a power cut, what it has said is safe.

Numbered records go into a log of the node's own format, each is synced, and only then is its number
told to a witness on another machine. Somebody cuts the power. Afterwards the log must hold every
number that the witness has heard of: what is missing the disk had only promised.
"""

import hashlib
import json
import os
import re
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hms.store.journal import Journal
from hms.store.journal.disk import REAL_DISK, Disk
from hms.store.journal.reader import read_store
from hms.store.journal.store_examination import examine

__all__ = ["FOLDER", "KEPT", "Witness", "ask", "examined", "runs_in", "tell", "write"]

FOLDER = ".hms-witness-"
"""Followed by the name of the run: where the numbers are written."""
DICTIONARY, NUMBER = 11, 1
SEGMENT_BYTES = 1 << 20
TIMEOUT_S = 10.0
LINE_BYTES_MAX = 200
RUNS_MAX = 1000
KEPT = "every confirmed record is there"
_RUN = re.compile("[0-9a-f]{16}")


def _payload(run: str, number: int) -> bytes:
    """A record that belongs to this run and number alone; of differing lengths."""
    text = f"{run} {number}".encode()
    return number.to_bytes(8, "big") + hashlib.sha256(text).digest() * (1 + number % 13)


def write(
    folder: Path,
    run: str,
    count: int,
    told: Callable[[int], object],
    disk: Disk = REAL_DISK,
    segment_bytes: int = SEGMENT_BYTES,
) -> None:
    """Write so many numbers, each synced before it is told."""
    journal = Journal.open(folder, segment_bytes=segment_bytes, node_uid=1, disk=disk)
    try:
        for _ in journal.recover():
            pass
        journal.start(lambda: (DICTIONARY, 1, (run.encode(),)))
        for number in range(1, count + 1):
            journal.append(NUMBER, 1, (_payload(run, number),))
            journal.commit()
            told(number)
            if journal.needs_maintenance:
                journal.maintain()
    finally:
        journal.close()


def examined(folder: Path, run: str, confirmed: int, disk: Disk = REAL_DISK) -> dict[str, Any]:
    """What the log holds of a run of which so many numbers were confirmed; nothing is changed."""
    found = examine(folder, disk)
    said: dict[str, Any] = {"run": run, "confirmed": confirmed}
    numbers: list[int] = []
    foreign = 0
    if not found.damages:
        for _, kind, _, payload, *_ in read_store(folder, disk):
            if kind == NUMBER:
                number = int.from_bytes(payload[:8], "big")
                foreign += bytes(payload) != _payload(run, number)
                numbers.append(number)
    out_of_order = sum(a != b for a, b in enumerate(numbers, 1))
    said |= {
        "found": len(numbers),
        "lost": max(0, confirmed - len(numbers)) if not found.damages else 0,
        "torn_bytes": found.torn.size if found.torn else 0,
        "out_of_order": out_of_order + foreign,
        "damaged": [f"{one.file.name} at {one.offset}: {one.detail}" for one in found.damages],
    }
    is_good = not (said["lost"] or said["out_of_order"] or found.damages)
    verdict = KEPT if is_good else "the disk lost what it had confirmed"
    return said | {"is_good": is_good, "verdict": verdict}


def new_run() -> str:
    """A name for one."""
    return secrets.token_hex(8)


def runs_in(path: Path) -> dict[str, Path]:
    """The folders of runs below a path, by the run's name."""
    found = {one.name.removeprefix(FOLDER): one for one in sorted(path.glob(f"{FOLDER}*"))}
    return {run: folder for run, folder in found.items() if _RUN.fullmatch(run)}


# ---- the other machine


class Witness(socketserver.ThreadingTCPServer):
    """Remembers the highest number of each run, in a file too. host, port: where it listens."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.numbers: dict[str, int] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                run, _, number = line.partition(" ")
                if _RUN.fullmatch(run) and number.isdigit():
                    self.numbers[run] = max(int(number), self.numbers.get(run, 0))
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Listener)
        self.port = int(self.server_address[1])

    def heard(self, said: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line: {"run", "number"} is noted, {"run"} is a question."""
        run, number = said.get("run"), said.get("number")
        if not isinstance(run, str) or not _RUN.fullmatch(run):
            return {"fault": "no run"}
        with self._lock:
            if number is None:
                return {"number": self.numbers.get(run, 0)}
            if not isinstance(number, int) or number < 1:
                return {"fault": "no number"}
            if run not in self.numbers and len(self.numbers) >= RUNS_MAX:
                return {"fault": "too many runs"}
            self.numbers[run] = max(number, self.numbers.get(run, 0))
            with self._file.open("a") as out:
                out.write(f"{run} {number}\n")
        return {"number": number}


class _Listener(socketserver.StreamRequestHandler):
    timeout = 3600.0
    server: Witness

    def handle(self) -> None:
        """Lines of JSON; who sends anything else is cut."""
        try:
            while line := self.rfile.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX:
                    return
                said = json.loads(line)
                answer = self.server.heard(said if isinstance(said, dict) else {})
                self.wfile.write(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            return


def _talk(address: tuple[str, int]) -> tuple[socket.socket, Any]:
    connection = socket.create_connection(address, TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection, connection.makefile("rwb")


def _answer(stream: Any, said: dict[str, Any]) -> int:
    stream.write(json.dumps(said).encode() + b"\n")
    stream.flush()
    line = stream.readline(LINE_BYTES_MAX)
    answer = json.loads(line) if line else {"fault": "the witness is gone"}
    if "fault" in answer:
        raise ConnectionError(0, f"the witness says: {answer['fault']}")
    return int(answer["number"])


def tell(address: tuple[str, int], path: Path, count: int) -> dict[str, Any]:
    """Write and tell so many numbers; OSError when the witness is gone."""
    run = new_run()
    folder = path / f"{FOLDER}{run}"
    connection, stream = _talk(address)
    with connection, stream:
        _answer(stream, {"run": run})
        folder.mkdir(mode=0o700)
        at = os.open(path, os.O_RDONLY)
        try:
            os.fsync(at)
        finally:
            os.close(at)
        write(folder, run, count, lambda number: _answer(stream, {"run": run, "number": number}))
    return {"run": run, "folder": str(folder), "confirmed": count}


def ask(address: tuple[str, int], run: str) -> int:
    """The highest number of a run that the witness has heard of; 0: of none."""
    connection, stream = _talk(address)
    with connection, stream:
        return _answer(stream, {"run": run})
