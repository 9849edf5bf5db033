"""The guard of accept(): no connection takes the last descriptors, and none ends the process.

libzmq accepts in a thread of its own, faster than the gateway can cut what is too much. Where
accept() finds no descriptor on a Unix socket, libzmq 4.3.5 ends the process (ipc_listener.cpp). So
its calls of accept() are answered by functions of our own (_accept.c): while only the last ones are
left, a tenth of those that the process may have, no connection is accepted. Those that come wait in
the kernel's queue until others are gone. Why there: docs/decisions/0080.
"""

import contextlib
from typing import Any, Final

__all__ = ["install", "is_built", "put_off"]

_accept: Any = None
with contextlib.suppress(ImportError):  # built without a C compiler
    from hms.server import _accept

is_built: Final = _accept is not None


def install() -> bool:
    """Guard libzmq, which has been loaded, from now on; False where that cannot be."""
    return is_built and bool(_accept.install())


def put_off() -> int:
    """How often a connection was left to wait so far because what is left is reserved."""
    return int(_accept.put_off()) if is_built else 0
