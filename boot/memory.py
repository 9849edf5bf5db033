"""The node's memory allocator: frames come and go by the quarter mebibyte, all the time.

glibc gives freed memory at the top of its heap back to the system at once and takes it anew for the
next frame, page by page: a fifth of the processor time of a busy node. Up to KEPT_BYTES stay now.
"""

import ctypes
import os

KEPT_BYTES = 64 << 20
"""Freed memory that the process keeps for the next frames; per arena, and only at its top."""
MAPPED_BYTES_MIN = 8 << 20
"""Blocks of this size get pages of their own, which go back when they are freed."""
PAD_BYTES = 4 << 20
"""By how much more than is asked for the heap grows."""
ARENAS_MAX = 2
"""Heaps of other threads grow page by page, and one thread runs Python at a time anyway."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_ARENA_MAX",
)


def keep_freed_memory() -> bool:
    """Set the allocator of this process; False where it is another one than glibc's, or where the
    operator has set it by its own variables."""
    if any(name in os.environ for name in _VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {
        _TRIM_THRESHOLD: KEPT_BYTES,
        _TOP_PAD: PAD_BYTES,
        _MMAP_THRESHOLD: MAPPED_BYTES_MIN,
        _ARENA_MAX: ARENAS_MAX,
    }
    return all(mallopt(key, value) for key, value in wanted.items())
