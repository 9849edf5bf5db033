"""The kinds of values in hms.conf; each reads a TOML value or says why it is refused.

A reader takes the value as tomllib gives it and returns what the node uses, or raises Refused
with a text that names the value and what would be right.
"""

import ipaddress
import math
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hms.engine.selector.selector_fields import checked_selector
from hms.errors.catalogue import SelectorSyntaxError

Reader = Callable[[Any], Any]

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
DEAD_LETTER_QUEUE = "HMS.DLQ"
DESTINATION_NAME_MAX = 255
IPC_PATH_MAX = 107
"""The most bytes of a Unix socket's path on Linux."""
PORT_MAX = 65_535
SHOWN_MAX = 60
SERVICE_CHARACTERS_MAX = 127

_SIZE = re.compile(r"(\d{1,15}) ?(B|KiB|MiB|GiB)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+):(\d{1,5})")


class Refused(ValueError):  # noqa: N818 - it says what became of the value
    """A value that does not fit; the text says what would."""


def integer(low: int, high: int) -> Reader:
    """A whole number from low to high."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"must be a whole number, not {shown(value)}")
        _check_range(value, low, high)
        return value

    return read


def number(low: float, high: float) -> Reader:
    """A number from low to high, with or without decimals."""

    def read(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
            raise Refused(f"must be a number, not {shown(value)}")
        _check_range(value, low, high)
        return float(value)

    return read


def size(low: int, high: int, multiple: int = 1) -> Reader:
    """Bytes, as a whole number or as text with a unit, such as "64 MiB"."""

    def read(value: Any) -> int:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match:
            value = int(match.group(1)) * UNITS[match.group(2)]
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f'must be bytes, such as 65536 or "64 MiB", not {shown(value)}')
        if not low <= value <= high:
            raise Refused(f"{value} bytes is out of range: {spell_size(low)} to {spell_size(high)}")
        if value % multiple:
            raise Refused(f"{value} bytes is not a multiple of {multiple}")
        return value

    return read


def boolean(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Refused(f"must be true or false, not {shown(value)}")
    return value


def choice(*words: str, later: tuple[str, ...] = ()) -> Reader:
    """One of the words; those in `later` are known but refused in this version."""

    def read(value: Any) -> str:
        if value in later:
            raise Refused(f"{value!r} is not available in this version; use {either(words)}")
        if not isinstance(value, str) or value not in words:
            raise Refused(
                f"must be {either(words)}, not {shown(value)}{did_you_mean(value, words)}"
            )
        return value

    return read


def name(value: Any) -> str:
    """1 to 63 letters, digits, _ - or ., a letter or digit first."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Refused(
            f"{shown(value)} is no valid name: 1 to 63 letters, digits, '_', '-' or '.', "
            "beginning with a letter or digit"
        )
    return value


def destination(value: Any) -> str:
    """The name of a queue or topic; what begins with HMS. is the system's own."""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= DESTINATION_NAME_MAX
        or not value.isprintable()
    ):
        raise Refused(
            f"{shown(value)}: a name has 1 to {DESTINATION_NAME_MAX} printable characters"
        )
    if value.startswith("HMS.") and value != DEAD_LETTER_QUEUE:
        raise Refused(f"{value!r}: names that begin with 'HMS.' are the system's own")
    return value


def destination_or_none(value: Any) -> str:
    """The name of a queue, "" for none."""
    return "" if value == "" else destination(value)


def selector(value: Any) -> str:
    """A message selector; "" takes every message."""
    if not isinstance(value, str):
        raise Refused(f"""must be a selector, such as "Region = 'EU'", not {shown(value)}""")
    try:
        checked_selector(value)
    except SelectorSyntaxError as fault:
        raise Refused(f"position {fault.position}: {fault.detail}") from fault
    return value.strip()


def module(value: Any) -> str:
    """The name of a module, with dots."""
    if not isinstance(value, str) or not _MODULE.fullmatch(value):
        raise Refused(f'must be a module, such as "services.orders", not {shown(value)}')
    return value


def mode(value: Any) -> str:
    """Four octal digits, as chmod takes them."""
    if not isinstance(value, str) or not re.fullmatch(r"0[0-7]{3}", value):
        raise Refused(f'must be four octal digits, such as "0660", not {shown(value)}')
    return value


def directory(value: Any) -> Path:
    """A path, relative to the folder of hms.conf."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise Refused(f"must be a path, not {shown(value)}")
    return Path(value).expanduser()


def directories(value: Any) -> tuple[Path, ...]:
    """A list of paths."""
    if not isinstance(value, list):
        raise Refused(f'must be a list of paths, such as ["."], not {shown(value)}')
    return tuple(directory(item) for item in value)


def variables(value: Any) -> tuple[str, ...]:
    """A list of texts, each NAME=VALUE."""
    good = isinstance(value, list) and all(isinstance(i, str) and i.find("=") > 0 for i in value)
    if not good or any("\0" in item for item in value):
        raise Refused(f'must be a list such as ["NAME=VALUE"], not {shown(value)}')
    return tuple(value)


def variable_names(value: Any) -> tuple[str, ...]:
    """A list of names of variables of the environment."""
    good = isinstance(value, list) and all(
        isinstance(i, str) and re.fullmatch(r"[A-Za-z_]\w*", i) for i in value
    )
    if not good:
        raise Refused(f'must be a list of names such as ["NAME"], not {shown(value)}')
    return tuple(value)


def group(value: Any) -> str:
    """The name of a group of the operating system."""
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise Refused(f"must be the name of a group of this machine, not {shown(value)}")
    return value


def anchor_way(value: Any) -> tuple[str, ...]:
    """syslog, or a command as a list of words."""
    if value in ("syslog", ["syslog"]):
        return ("syslog",)
    return _command(value, '"syslog", or a list such as ["/usr/bin/keep"]')


def command(value: Any) -> tuple[str, ...]:
    """A program by its path, and the words that it gets first."""
    return _command(value, 'a list of words such as ["/usr/bin/page"]')


def _command(value: Any, wanted: str) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise Refused(f"must be {wanted}, not {shown(value)}")
    if not words[0].startswith("/"):
        raise Refused(f"the path of {shown(words[0])} must be absolute, such as /usr/bin/keep")
    return tuple(words)


def service(value: Any) -> str:
    """The name of a service, "" for none."""
    if (
        not isinstance(value, str)
        or len(value) > SERVICE_CHARACTERS_MAX
        or (value and not value.isprintable())
    ):
        raise Refused(f"must be the name of a service, not {shown(value)}")
    return value


def addresses(value: Any) -> tuple[str, ...]:
    """A list of addresses, tcp:// or ipc://."""
    if not isinstance(value, list) or not value:
        raise Refused(f'must be a list, such as ["tcp://127.0.0.1:7700"], not {shown(value)}')
    return tuple(_address(item) for item in value)


def _address(value: Any) -> str:
    if isinstance(value, str) and value.startswith("ipc://"):
        return _ipc(value)
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value  # of a [listener.NAME]
    match = _TCP.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Refused(f"{shown(value)} is no address: use tcp://127.0.0.1:PORT or ipc:///PATH")
    host, port = match.group(1), int(match.group(2))
    if not 1 <= port <= PORT_MAX:
        raise Refused(f"port {port} of {value!r} is out of range: 1 to 65535")
    if not _is_loopback(host):
        raise Refused(
            f"{value!r}: what is said there is not encrypted, so only loopback and ipc addresses "
            "are allowed; a secured node may listen at a [listener.NAME]"
        )
    return str(value)


def _ipc(value: str) -> str:
    path = value.removeprefix("ipc://")
    if not path.startswith("/"):
        raise Refused(f"{value!r}: the path must be absolute, such as ipc:///run/hms/node")
    if len(path.encode()) > IPC_PATH_MAX:
        raise Refused(f"{value!r}: the path is longer than {IPC_PATH_MAX} bytes")
    return value


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def did_you_mean(word: object, words: tuple[str, ...]) -> str:
    """A hint to the nearest valid word, also when only the case is wrong; else nothing."""
    folded = {valid.casefold(): valid for valid in words}
    near = get_close_matches(str(word).casefold(), folded, n=1, cutoff=0.6)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def shown(value: Any) -> str:
    """A value as a fault names it: short, and with its type where that is the point."""
    if isinstance(value, dict):
        return "a table"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def spell_size(count: int) -> str:
    """Bytes with the largest unit that leaves a whole number."""
    for unit, bytes_each in reversed(UNITS.items()):
        if count and count % bytes_each == 0:
            return f"{count // bytes_each} {unit}"
    return f"{count} B"


def _check_range(value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise Refused(f"{value} is out of range: {low} to {high}")


def either(words: tuple[str, ...]) -> str:
    """Words to choose from."""
    quoted = [f'"{word}"' for word in words]
    return " or ".join(part for part in (", ".join(quoted[:-1]), quoted[-1]) if part)
