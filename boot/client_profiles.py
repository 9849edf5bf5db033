"""Client profiles: the [profile.NAME] of hms-client.toml by which a client finds and enters a
node."""

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hms.boot.entries import Listener
from hms.boot.server_keys import read_server_key
from hms.boot.watched_files import next_key
from hms.errors.catalogue import InvalidArgument

__all__ = ["addresses_of", "keeper_profile", "profile_text", "server_keys_of", "write_profile"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_EVERYWHERE = ("0.0.0.0", "*", "[::]")  # noqa: S104 - as it is written, nothing listens here


def profile_text(name: str, values: Mapping[str, Any], said: Sequence[str] = ()) -> str:
    """One block; said: what stands above it, as comments."""
    title = name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    lines = [*(f"# {line}" for line in said), f"[profile.{title}]"]
    for word, value in values.items():
        lines.append(f"{word} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join([*lines, ""])


def keeper_profile(path: Path, name: str, values: Mapping[str, Any], said: Sequence[str]) -> bool:
    """The profile of an administrator, where there is no such file yet; whether it was written."""
    if path.exists() or path.is_symlink():
        return False
    write_profile(path, profile_text(name, values, said))
    return True


def write_profile(path: Path, text: str) -> None:
    """Into a new file that its owner alone may read; never over one that is there."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as fault:
        detail = "it exists and is not written over; name another file with --output"
        raise InvalidArgument(what=str(path), detail=detail) from fault
    except (OSError, ValueError) as fault:
        detail = getattr(fault, "strerror", None) or str(fault)
        raise InvalidArgument(what=str(path), detail=detail) from fault
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def addresses_of(listened: str) -> list[str]:
    """Where clients of other machines find what listens there; the name of this machine where that
    is every address of it."""
    host, _, port = listened.removeprefix("tcp://").rpartition(":")
    return [f"tcp://{socket.gethostname() if host in _EVERYWHERE else host}:{port}"]


def server_keys_of(listener: Listener) -> list[str]:
    """The key that it shows, and the next one where that is prepared; KeyFileError."""
    file = listener.server_key_file
    files = [file, next_key(file)] if next_key(file).exists() else [file]
    return [read_server_key(one).public.decode() for one in files]
