"""A process beside a node that leads its copies: when the node's process ends, the lease does.

Else a crash would be noticed by the end of the lease only. The kernel says when the process has
ended, with all its threads, so nothing is answered by it any more; that is told to the arbiter, and
the other copies need not wait. If that is never told, the lease decides as before.
"""

import argparse
import logging
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["main"]

log = logging.getLogger("hms.replicas")

BEGINS_S: Final = 1.0
"""So long it reads nothing but this, while the process ends: a node that has just begun to lead has
other work for the machine, and clients wait for it."""
CLOSED_S: Final = 5.0
"""A process that ends closes its pipe a moment before it has ended."""


def main() -> None:
    """pid, file of the configuration, node and epoch are the arguments."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of a service that is stopped: the node says so
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("config", type=Path)
    parser.add_argument("node")
    parser.add_argument("epoch", type=int)
    given = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    handle = _handle_of(given.pid)
    if handle is not None and _has_ended(handle, BEGINS_S) is False:
        return

    from hms.boot.config import load  # noqa: PLC0415 - the process is watched before that is read
    from hms.boot.replicating import make_arbiter  # noqa: PLC0415
    from hms.errors.catalogue import ArbiterUnavailable  # noqa: PLC0415
    from hms.server.arbiter import Leader  # noqa: PLC0415

    config = load(given.config)
    node = config.node(given.node)
    arbiter = make_arbiter(config, node)
    granted = Leader(node.replica or "", given.epoch)
    with suppress(ArbiterUnavailable):
        arbiter.read()  # so that it is connected
    if handle is not None and not _has_ended(handle):
        return
    with suppress(ArbiterUnavailable):  # its lease ends by itself
        if arbiter.ended(granted):
            log.warning("the process %d of %s has ended: its lease does", given.pid, node.name)
    arbiter.close()


def _handle_of(pid: int) -> int | None:
    """None: it has ended by now, and its number may be another one's."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if os.getppid() == pid:
        return handle
    os.close(handle)
    return None


def _has_ended(handle: int, timeout_s: float | None = None) -> bool | None:
    """Wait for the process; False: it gave its guard up, and goes on; None: it goes on after so
    long."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(sys.stdin.fileno(), select.POLLIN)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    is_closed = False
    while True:
        left_s = None if until is None else until - time.monotonic()
        if left_s is not None and left_s <= 0:
            return False if is_closed else None
        found = dict(poll.poll(None if left_s is None else left_s * 1000))
        if handle in found:
            return True
        if found:
            poll.unregister(sys.stdin.fileno())
            is_closed, until = True, time.monotonic() + CLOSED_S


if __name__ == "__main__":
    main()
