"""The keys that sign resume tokens: in a file beside the security file, so that clients come back
without their passwords after the node was booted anew. Two generations count; a new one is drawn
when the newest is a day old, also while the node runs."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from hms.errors.catalogue import SecurityFileError
from hms.server.logins.resume_tokens import KEY_BYTES

__all__ = ["ResumeKeys", "resume_keys"]

log = logging.getLogger("hms.security")

GENERATIONS = 2
AGE_S = 86_400
LOOK_S = 600.0


class ResumeKeys:
    """Those of a node that runs; held: the newest first."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path, self._monotonic = path, monotonic
        self.held = resume_keys(path)
        self._due_s = monotonic() + LOOK_S

    def look(self) -> bool:
        """Whether they are other ones than before. Where the file cannot be written they stay, and
        it is tried again."""
        if self._monotonic() < self._due_s:
            return False
        self._due_s = self._monotonic() + LOOK_S
        before = self.held
        try:
            self.held = resume_keys(self._path)
        except SecurityFileError as error:
            log.warning("the keys of resume tokens stay as they are: %s", error)
        return self.held != before


def resume_keys(path: Path) -> list[bytes]:
    """The keys, the newest first; the file is made, or gets a further one, when it is time."""
    known = _read(path)
    if known and time.time() - path.stat().st_mtime < AGE_S:
        return known
    keys = [os.urandom(KEY_BYTES), *known][:GENERATIONS]
    half = path.with_name(f"{path.name}.new")
    try:
        half.unlink(missing_ok=True)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            file.writelines(f"{key.hex()}\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as fault:
        raise SecurityFileError(report=f"{path}: cannot be written: {fault.strerror}") from fault
    return keys


def _read(path: Path) -> list[bytes]:
    """The keys of the file; none of one that others could have read, or that is damaged."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_mode & 0o077:
            return []
        lines = file.read(1024).decode(errors="replace").split()
    try:
        keys = [bytes.fromhex(line) for line in lines]
    except ValueError:
        return []
    return keys if all(len(key) == KEY_BYTES for key in keys) else []
