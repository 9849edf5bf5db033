"""What the checks read of the system: files below a root, limits, the kernel's clock."""

import ctypes
import os
import resource
import shutil
import socket
import time
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

__all__ = ["Machine", "Mount"]

STA_UNSYNC = 0x40
_TIMEX_BYTES = 208
_IP_MTU, _IPV6_MTU = 14, 24
_MTU_OPTIONS = {
    socket.AF_INET: (socket.IPPROTO_IP, _IP_MTU),
    socket.AF_INET6: (socket.IPPROTO_IPV6, _IPV6_MTU),
}


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


def _why_unknown(host: str) -> str:
    """Why a host has no address, or nothing."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as fault:
        return str(fault.strerror if isinstance(fault, OSError) else fault)
    return ""


def _mtu_to(host: str) -> int:
    """Of the first way there, as the kernel knows it; 0: not known."""
    try:
        family, *_, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        level, option = _MTU_OPTIONS[family]
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect(address)  # sends nothing
            return asking.getsockopt(level, option)
    except (OSError, KeyError, UnicodeError):
        return 0


def _has_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _clocks() -> tuple[float, float]:
    return time.time(), time.monotonic()


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


def _needed() -> list[str]:
    """What this release asks for; nothing where its sources were not installed."""
    try:
        return requires("hybrid-messaging") or []
    except PackageNotFoundError:
        return []


def _java_version() -> int:
    """The one that Spark would be given; 0: none."""
    from hms.errors.catalogue import JavaMissing  # noqa: PLC0415 - the other checks need none
    from hms.history.java import ensure_java, java_version  # noqa: PLC0415 - the same

    before = os.environ.get("JAVA_HOME")
    try:
        return java_version(ensure_java() / "bin" / "java")
    except JavaMissing:
        return 0
    finally:
        os.environ.pop("JAVA_HOME", None)
        if before is not None:
            os.environ["JAVA_HOME"] = before


@dataclass(frozen=True, slots=True)
class Machine:
    """root: of the file system that is looked at."""

    root: Path = Path("/")
    limit_of: Callable[[int], tuple[int, int]] = _limit_of
    is_clock_synced: Callable[[], bool | None] = _is_clock_synced
    why_not_bindable: Callable[[str, int], str] = _bindable
    why_unknown: Callable[[str], str] = _why_unknown
    mtu_to: Callable[[str], int] = _mtu_to
    has_zone: Callable[[str], bool] = _has_zone
    clocks: Callable[[], tuple[float, float]] = _clocks
    """Seconds of the wall clock, and of the one that runs evenly."""
    pause: Callable[[float], object] = time.sleep
    free_bytes: Callable[[Path], int] = _free_bytes
    java_version: Callable[[], int] = _java_version
    needed: Callable[[], list[str]] = _needed
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
