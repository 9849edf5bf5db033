"""References to secrets: hms-client.toml says where a password or token is, and never holds it."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hms.client.profiles.checked_opening import open_regular
from hms.errors.catalogue import InvalidArgument

__all__ = ["checked_reference", "file_of", "secret_of"]

SECRET_BYTES_MAX = 64 << 10
_REFERENCE = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|(file|cred):[^\0]+)")
_CREDENTIALS = "CREDENTIALS_DIRECTORY"


def checked_reference(what: str, value: Any) -> str:
    """A reference. The text of the error does not repeat what is no reference: it may be the
    secret."""
    if isinstance(value, str) and _REFERENCE.fullmatch(value):
        return value
    detail = "a secret does not stand here; say where it is: env:NAME, file:PATH or cred:NAME"
    raise InvalidArgument(what=what, detail=detail)


def file_of(reference: str, folder: Path) -> Path | None:
    """The file that a reference names, relative to that folder; None where it names none."""
    kind, _, name = reference.partition(":")
    return folder / os.path.expanduser(name) if kind == "file" else None  # noqa: PTH111 - no error


def secret_of(reference: str, folder: Path, refused: Callable[[str], Exception]) -> str:
    """What a reference names, without the line's end; refused: the error of what cannot be had."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        found = os.environ.get(name)
        if not found:
            raise refused(f"the variable {name} is not set")
        return found
    path = file_of(reference, folder) or _credential(name, refused)
    return _read(path, refused, is_own=kind == "file")


def _credential(name: str, refused: Callable[[str], Exception]) -> Path:
    folder = os.environ.get(_CREDENTIALS)
    if not folder:
        raise refused(f"the variable {_CREDENTIALS} is not set, which systemd sets for a service")
    if "/" in name:
        raise refused(f"cred:{name}: a credential's name has no slash")
    return Path(folder, name)


def _read(path: Path, refused: Callable[[str], Exception], *, is_own: bool) -> str:
    """is_own: nobody else may read it; systemd sees to its own files itself."""

    def fault(detail: str) -> Exception:
        return refused(f"the file {path} {detail}")

    file, about = open_regular(path, fault)
    with file:
        if is_own and stat.S_IMODE(about.st_mode) & 0o077:
            raise fault("may be read by others: chmod 600 it")
        if is_own and about.st_uid not in (os.geteuid(), 0):
            raise fault("belongs to another user")
        text = file.read(SECRET_BYTES_MAX + 1)
    try:
        secret = text.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise fault("is no UTF-8 text") from error
    if not secret or len(text) > SECRET_BYTES_MAX:
        raise fault("is empty" if not secret else f"has more than {SECRET_BYTES_MAX} bytes")
    return secret
