"""What the checks read of the system: files below a root, limits, the kernel's clock."""

import ctypes
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Machine", "Mount"]

STA_UNSYNC = 0x40
_TIMEX_BYTES = 208


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a path lies."""

    point: str
    kind: str
    options: tuple[str, ...]
    device: str
    """Major and minor number, as in /sys/dev/block."""


def _limit_of(kind: int) -> tuple[int, int]:
    return resource.getrlimit(kind)


def _is_clock_synced() -> bool | None:
    """What the kernel says of its clock; None when it cannot be asked."""
    try:
        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    status = int.from_bytes(buffer.raw[40:44], "little")
    return not status & STA_UNSYNC


def _bindable(host: str, port: int) -> str:
    """Why an address cannot be listened at, or nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind((host, port))
        except OSError as fault:
            return str(fault.strerror)
    return ""


@dataclass(frozen=True, slots=True)
class Machine:
    """root: of the file system that is looked at."""

    root: Path = Path("/")
    limit_of: Callable[[int], tuple[int, int]] = _limit_of
    is_clock_synced: Callable[[], bool | None] = _is_clock_synced
    why_not_bindable: Callable[[str, int], str] = _bindable
    versions: dict[str, str] = field(default_factory=dict)
    """Of libraries, where a test says others."""

    def text(self, path: str) -> str:
        """The content of a file of the system, "" when there is none."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """A number that stands there by itself."""
        text = self.text(path)
        return int(text) if text.isdigit() else None

    def mount_of(self, path: Path) -> Mount | None:
        """Of the nearest folder that exists: the last mount whose point is above it."""
        where = str(_nearest(path).resolve())
        best: Mount | None = None
        for line in self.text("/proc/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            words, more = before.split(), after.split()
            if len(words) < 6 or len(more) < 1:  # noqa: PLR2004 - proc(5)
                continue
            point = words[4].encode().decode("unicode_escape")
            is_above = where == point or where.startswith(point.rstrip("/") + "/")
            if is_above and (best is None or len(point) >= len(best.point)):
                best = Mount(point, more[0], tuple(words[5].split(",")), words[2])
        return best

    def block_counts(self, device: str) -> tuple[int, int] | None:
        """Writes and flushes of a block device since boot; None when it has no such counters."""
        words = self.text(f"/sys/dev/block/{device}/stat").split()
        if len(words) < 5:  # noqa: PLR2004 - Documentation/block/stat.rst
            return None
        return int(words[4]), int(words[15]) if len(words) > 15 else 0  # noqa: PLR2004


def _nearest(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def mode_of(path: Path) -> int | None:
    """Its rights, None when there is none."""
    try:
        return os.stat(path).st_mode & 0o777  # noqa: PTH116 - it says what it does
    except OSError:
        return None
