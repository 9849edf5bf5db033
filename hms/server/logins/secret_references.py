"""Secrets are named, not written down: env:NAME, file:PATH, cred:NAME (systemd LoadCredential).

They are read when they are used, so a changed file holds at once.
"""

import os
import stat
from pathlib import Path

from hms.errors.catalogue import KeyFileError

__all__ = ["fault_of_reference", "read_secret"]

SECRET_BYTES_MAX = 64 << 10


def fault_of_reference(text: str) -> str:
    """Why this cannot name a secret; "" when it can."""
    kind, colon, name = text.partition(":")
    if colon and name and kind in ("env", "file", "cred"):
        return ""
    return "a secret is named, not written down: env:NAME, file:PATH or cred:NAME"


def read_secret(reference: str, folder: Path) -> str:
    """The secret itself, without the end of its line; KeyFileError. folder: where paths begin."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        if name not in os.environ:
            raise KeyFileError(path=reference, detail="this variable is not set")
        return os.environ[name]
    if kind == "cred":
        folder = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"))
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            _check(str(path), os.fstat(handle), is_given=kind == "cred")
            return file.read(SECRET_BYTES_MAX).decode().rstrip("\r\n")
    except OSError as fault:
        raise KeyFileError(path=str(path), detail=str(fault.strerror)) from fault
    except UnicodeDecodeError as fault:
        raise KeyFileError(path=str(path), detail="it is no UTF-8 text") from fault


def _check(path: str, found: os.stat_result, *, is_given: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyFileError(path=path, detail="it is no file")
    if not is_given and stat.S_IMODE(found.st_mode) & 0o077:
        raise KeyFileError(path=path, detail="others may read it: chmod 600 it")
    if not is_given and found.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(path=path, detail="it belongs to another user")
