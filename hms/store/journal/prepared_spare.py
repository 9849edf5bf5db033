"""Prepared spare: a copy that follows has the file ready with which it would begin its epoch.

Else who waits for a take-over would wait until a segment of zeros is written and synced, or read
through. The file is known again by what the system says of it: one that anybody wrote is looked at
as before.
"""

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

from hms.store.journal.disk import REAL_DISK
from hms.store.journal.preallocated_segment import PreallocatedSegment
from hms.store.journal.segment import SPARE_NAME

__all__ = ["PreparedSpare"]

log = logging.getLogger("hms.replicas")


class PreparedSpare:
    """See the module. begin() and is_it() in one thread, which does not wait for the disk."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes
        self._thread: threading.Thread | None = None
        self._known: tuple[int, ...] | None = None

    def begin(self) -> None:
        """Prepare it, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hms-spare", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Somebody else prepares files from now on."""
        if self._thread is not None:
            self._thread.join()  # for however long: two would write into one file

    def is_it(self, path: Path) -> bool:
        """Whether that file reads as zeros, as this one was left."""
        return self._known is not None and self._known == _told(path)

    def _run(self) -> None:
        spare = PreallocatedSegment(REAL_DISK, self._folder, self._segment_bytes)
        try:
            spare.prepare()
        except OSError as fault:  # it is made at the take-over, or its reason told then
            log.info("no segment is prepared: %s", fault)
        else:
            spare.close()
            self._known = _told(self._folder / SPARE_NAME)


def _told(path: Path) -> tuple[int, ...] | None:
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116 - the disk's own words
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None
