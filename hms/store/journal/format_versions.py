"""Which formats of the log a directory has, and which ones this version knows."""

from collections import Counter
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreUnavailable
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import FORMATS, SEGMENT_HEADER_BYTES, VERSION, unpack_segment_header
from hms.store.journal.segment_walk import all_files

__all__ = ["READ", "WRITTEN", "versions_in"]

READ: Final = FORMATS
WRITTEN: Final = VERSION


def versions_in(directory: Path) -> dict[int, int]:
    """How many segments of each version there are; 0: without a header. StoreUnavailable."""
    found: Counter[int] = Counter()
    try:
        for _, file in sorted(all_files(REAL_DISK, directory).items()):
            with file.open("rb") as source:
                header = unpack_segment_header(source.read(SEGMENT_HEADER_BYTES))
            found[header.version if header is not None else 0] += 1
    except OSError as fault:
        detail = fault.strerror or str(fault)
        raise StoreUnavailable(path=str(directory), detail=detail) from fault
    return dict(sorted(found.items()))
