"""The records of a store that no node has booted."""

from collections.abc import Iterator
from itertools import zip_longest

from hms.store.interface import StoredRecord
from hms.store.journal.disk import REAL_DISK, Disk
from hms.store.journal.reader import PathName, list_segments
from hms.store.journal.recovery import all_records, check_chain
from hms.store.journal.segment_walk import Walk, opened


def read_store(path: PathName, disk: Disk = REAL_DISK) -> Iterator[StoredRecord]:
    """Every record of the history and the log, as recovery reads them.

    Raises StoreCorrupt and StoreUnavailable.
    """
    segments = list_segments(path, disk)
    check_chain(segments)
    for info, successor in zip_longest(segments, segments[1:]):
        with opened(disk, info.file) as fd:
            yield from all_records(Walk(disk, fd, info), info, successor)
