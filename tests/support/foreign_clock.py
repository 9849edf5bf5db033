"""The time of day of a program that is not linked to the C library's clock, as one in Go: its own
vDSO, the page of code that the kernel gives each process for reading clocks, is written over
(docs/decisions/0106).
"""

import os
import platform
import signal
import struct
from pathlib import Path

from tests.support.waiting import wait_until

__all__ = ["ForeignClock", "is_settable"]

CODE = bytes.fromhex(
    "b8 e4 00 00 00"  # mov eax, clock_gettime
    "0f 05"  # syscall
    "85 ff"  # test edi, edi: the time of day is 0
    "75 0a"  # jne to the return
    "48 8b 0d 06 00 00 00"  # mov rcx, the seconds behind this
    "48 01 0e"  # add [rsi], rcx
    "c3 90 90"  # ret
)
NAME = b"__vdso_clock_gettime"
SYMBOLS = 11
SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
WAIT_S = 60


def is_settable():
    """Whether this machine's code is known here."""
    return platform.machine() == "x86_64"


class ForeignClock:
    """Of a process that this one may trace, as its own child."""

    def __init__(self, pid):
        self._pid = pid
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        (place,) = (line.split()[0] for line in lines if line.endswith("[vdso]"))
        first, end = (int(word, 16) for word in place.split("-"))
        self._at, size = _function(self._read(first, end - first))
        self._at += first
        self._code = range(self._at, self._at + size)
        assert size >= len(CODE) + 8

    def set(self, seconds):
        """So far from the machine's. It is stopped meanwhile, where no thread reads the clock."""
        wait_until(self._is_stopped_elsewhere, WAIT_S)
        try:
            with Path(f"/proc/{self._pid}/mem").open("r+b", buffering=0) as memory:
                memory.seek(self._at)
                memory.write(CODE + struct.pack("<q", seconds))
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def _is_stopped_elsewhere(self):
        os.kill(self._pid, signal.SIGSTOP)
        wait_until(lambda: {_state(task) for task in self._tasks()} == {"T"}, WAIT_S)
        if not any(_instruction(task) in self._code for task in self._tasks()):
            return True
        os.kill(self._pid, signal.SIGCONT)
        return False

    def _tasks(self):
        return list(Path(f"/proc/{self._pid}/task").iterdir())

    def _read(self, at, size):
        with Path(f"/proc/{self._pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(at)
            return memory.read(size)


def _state(task):
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"  # just now


def _instruction(task):
    """Where a thread stands that is stopped."""
    return int((task / "syscall").read_text().split()[-1], 16)


def _function(image):
    """Offset and size of it in an ELF image."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    entry, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [SECTION.unpack_from(image, table + n * entry) for n in range(count)]
    symbols = next(one for one in sections if one[1] == SYMBOLS)
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], SYMBOL.size):
        name, _, _, _, value, size = SYMBOL.unpack_from(image, at)
        if image[names + name :].startswith(NAME + b"\0"):
            return value, size
    raise AssertionError("the vDSO has no clock")
