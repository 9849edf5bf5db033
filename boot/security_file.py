"""security.toml: read with all its faults at once, written whole or not at all.

Only its owner may read it. It is written beside and renamed, under a lock, with a version that
grows by one each time; comments are not kept.
"""

import fcntl
import json
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hms.boot.locate import parse
from hms.errors.catalogue import SecurityFileError
from hms.server.logins.security_document import SecurityDocument, check_document, read_document

__all__ = [
    "change_security",
    "load_security",
    "own_name",
    "read_marked",
    "read_security",
    "replace_security",
    "save_security",
    "security_text",
]

FILE_BYTES_MAX = 4 << 20
_HEAD = (
    "# Users, roles and permissions of the node. Written by hms user, role and permission;\n"
    "# comments are not kept. Only its owner may read it. The last line says that it is whole.\n"
)
_END = "# end\n"
"""Half a file may say of a user all but that it is disabled."""
_ABSENT = "; put your copy of it there, or make another one: hms config open, hms config secure"
_SECTIONS = ("security", "user", "role", "token", "key", "authenticator")


def load_security(path: Path) -> SecurityDocument:
    """The document; SecurityFileError has one line for each fault."""
    return read_marked(path)[0]


def read_marked(path: Path) -> tuple[SecurityDocument, bool]:
    """The same, and whether the file says itself that it is whole: one that was written by hand
    does not, and half of it may be there."""
    text = _read(path)
    return read_security(path, text), text.startswith(_HEAD)


def read_security(path: Path, text: str) -> SecurityDocument:
    """The same of a text that is to stand there."""
    parsed = parse(text)
    document, faults = read_document(parsed.data)
    told = [*parsed.faults, *[(parsed.line_of(where), said) for where, said in faults]]
    if text.startswith(_HEAD) and f"\n{_END}" not in text:
        told.append((text.count("\n") + 1, f"the file is cut off: {_END.strip()!r} is missing"))
    if told:
        lines = dict.fromkeys(sorted(told, key=lambda fault: fault[0]))
        raise SecurityFileError(report="\n".join(f"{path}:{line}: {said}" for line, said in lines))
    return document


def save_security(path: Path, document: SecurityDocument) -> None:
    """Write the whole file, durably, in place of the one before."""
    if faults := list(check_document(document)):
        report = "\n".join(f"{path}: {'.'.join(where)}: {said}" for where, said in faults)
        raise SecurityFileError(report=report)
    text = security_text(document)
    if len(text.encode()) > FILE_BYTES_MAX:
        said = f"would be larger than {FILE_BYTES_MAX >> 20} MiB, and not be read again"
        raise SecurityFileError(report=f"{path}: {said}")
    half = path.with_name(f"{path.name}.new")
    try:
        half.unlink(missing_ok=True)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        raise SecurityFileError(report=f"{path}: cannot be written: {fault.strerror}") from fault


def change_security(
    path: Path,
    change: Callable[[SecurityDocument], SecurityDocument],
    by: str = "",
    *,
    is_patient: bool = True,
    held: Callable[[], SecurityDocument | None] = lambda: None,
    saved: Callable[[], None] = lambda: None,
) -> SecurityDocument:
    """Read, change and write the document under the file's lock; its new version.

    by: who changes it, "" the user of this process; is_patient: whether the lock is waited for;
    held: what the file says, None where that is not known; saved: called before the lock is let go.
    """
    with _locked(path, is_patient=is_patient):
        known = held() or load_security(path)
        changed = change(known)
        if changed != known:
            changed = msgspec.structs.replace(
                changed, version=known.version + 1, changed_by=by or own_name()
            )
            save_security(path, changed)
            saved()
        return changed


def replace_security(path: Path, document: SecurityDocument) -> None:
    """Write a document of another node, unless the file has a newer one by now."""
    with _locked(path):
        if load_security(path).version <= document.version:
            save_security(path, document)


def security_text(document: SecurityDocument, notes: Sequence[str] = ()) -> str:
    """The document as TOML. notes: comments above it."""
    plain: dict[str, Any] = msgspec.to_builtins(document, builtin_types=(datetime,))
    lines = [*(f"# {one}" for one in notes), f"version = {document.version}"]
    if document.changed_by:
        lines.append(f"changed_by = {_value(document.changed_by)}")
    if document.domain_password:
        lines.append(f"domain_password = {_value(document.domain_password)}")
    if document.authenticators:
        lines.append(f"authenticators = {_value(plain['authenticators'])}")
    for section in _SECTIONS:
        tables = plain.get(section) or {}
        named = {"": tables} if section == "security" else tables
        for name, table in named.items():
            lines.append(f"\n[{section}{f'.{json.dumps(name)}' if name else ''}]")
            lines += [f"{word} = {_value(value)}" for word, value in table.items()]
    return _HEAD + "\n".join(lines) + f"\n{_END}"


def own_name() -> str:
    """Who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(k)} = {_value(v)}' for k, v in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _read(path: Path) -> str:
    """The text of a file that is its owner's alone: no link, no longer than it may be."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as fault:
        said = "is a symbolic link" if path.is_symlink() else f"cannot be read: {fault.strerror}"
        said += _ABSENT if isinstance(fault, FileNotFoundError) else ""
        raise SecurityFileError(report=f"{path}: {said}") from fault
    try:
        _check(path, os.fstat(handle))
        data = _bytes_of(handle)
    finally:
        os.close(handle)
    if len(data) > FILE_BYTES_MAX:
        raise SecurityFileError(report=f"{path}: is larger than {FILE_BYTES_MAX >> 20} MiB")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise SecurityFileError(report=f"{path}:{line}: is not UTF-8 text") from fault


def _check(path: Path, found: os.stat_result) -> None:
    said = ""
    if not stat.S_ISREG(found.st_mode):
        said = "is no file"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        said = "may be read or written by others: chmod 600 it"
    elif found.st_uid not in (os.geteuid(), 0):
        said = "belongs to another user"
    if said:
        raise SecurityFileError(report=f"{path}: {said}")


def _bytes_of(handle: int) -> bytes:
    """All of it, or one byte more than it may have."""
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


@contextmanager
def _locked(path: Path, *, is_patient: bool = True) -> Iterator[None]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
    try:
        handle = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    except OSError as fault:
        raise SecurityFileError(report=f"{path}: cannot be locked: {fault.strerror}") from fault
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        os.close(handle)
        said = "another command changes it at this moment; order it again"
        raise SecurityFileError(report=f"{path}: {said}") from fault
    try:
        yield
    finally:
        os.close(handle)
