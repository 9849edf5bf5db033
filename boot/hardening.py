"""Nobody looks into a secured node: no core dump, and no debugger of another process of its user.

Message bodies and passwords that are being checked are in its memory.
"""

import ctypes
import logging
import resource

__all__ = ["keep_memory_private"]

log = logging.getLogger("hms.security")

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """No core file is written, and the system asks for root before it lets somebody look."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        failed = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        failed = -1
    if failed:
        log.warning("other processes of this user may look into the memory of the node")
