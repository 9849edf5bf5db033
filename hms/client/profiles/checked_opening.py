"""Opening a file that a client trusts: a pipe is not waited for, and a device is not read."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular"]


def open_regular(
    path: Path, refused: Callable[[str], Exception]
) -> tuple[BinaryIO, os.stat_result]:
    """The file and what it is; refused: the error for one that is none or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as fault:
        said = getattr(fault, "strerror", None) or str(fault)
        raise refused(f"cannot be read: {said}") from fault
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise refused("is no file")
    return os.fdopen(handle, "rb"), about
