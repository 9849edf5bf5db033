"""The environment of a Tmax client: where the node is, from variables or a tmax.env file."""

import os
from pathlib import Path

from hms.errors.catalogue import InvalidArgument

SECRET_VARIABLE = "HMS_SERVER_SECRET"  # noqa: S105 - the name of a variable
"""Where a server process finds the secret by which its node knows it."""
ADDRESS = "tcp://127.0.0.1:7700"


def tpgetenv(name: str) -> str | None:
    """The value of an environment variable, or None."""
    return os.environ.get(name)


def tpputenv(assignment: str) -> None:
    """Set an environment variable, given as NAME=value."""
    name, equals, value = assignment.partition("=")
    if not (equals and name.strip()):
        raise InvalidArgument(what="tpputenv()", detail=f"{assignment!r} is not NAME=value")
    os.environ[name.strip()] = value


def tmaxreadenv(file: str | os.PathLike[str], label: str) -> None:
    """Set the variables of the section [label] of a file of NAME=value lines."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidArgument(what="tmaxreadenv()", detail=str(fault)) from fault
    section, found = "", False
    for line in map(str.strip, lines):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            found = found or section == label
        elif section == label and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            tpputenv(f"{name.strip()}={value.strip()}")
    if not found:
        raise InvalidArgument(what="tmaxreadenv()", detail=f"{file} has no section [{label}]")


def addresses() -> list[str]:
    """Without a profile that has some: HMS_ADDRESS, else TMAX_HOST_ADDR with TMAX_HOST_PORT and
    their backups, else the default."""
    named = os.environ.get("HMS_ADDRESS", "").replace(",", " ").split()
    if named:
        return named
    found = [_tmax_address("HOST"), _tmax_address("BACKUP")]
    return [address for address in found if address] or [ADDRESS]


def _tmax_address(which: str) -> str:
    host = os.environ.get(f"TMAX_{which}_ADDR", "")
    port = os.environ.get(f"TMAX_{which}_PORT", "7700")
    return f"tcp://{host}:{port}" if host else ""


__all__ = [
    "tmaxreadenv",
    "tpgetenv",
    "tpputenv",
]
