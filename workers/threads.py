"""Threads of the pools: named, joined within a time limit, their faults always reported."""

import sys
import threading
import time
from collections.abc import Callable, Sequence

__all__ = ["OnFault", "join_threads", "report_fault", "start_threads"]

OnFault = Callable[[BaseException], None]
"""Called in the thread where the fault happened; it decides what the node does about it."""


def start_threads(name: str, count: int, run: Callable[[], None]) -> list[threading.Thread]:
    """Start threads named NAME-1, NAME-2 ...

    They are daemons, because a node never waits for a stuck worker without a limit.
    """
    if count < 1:
        raise ValueError(f"{name} needs at least one worker, not {count}")
    threads = [
        threading.Thread(target=run, name=f"{name}-{n}", daemon=True) for n in range(1, count + 1)
    ]
    for thread in threads:
        thread.start()
    return threads


def join_threads(threads: Sequence[threading.Thread], timeout_s: float) -> bool:
    """Wait until the threads have ended; False when one still runs after timeout_s."""
    until = time.monotonic() + timeout_s
    others = [thread for thread in threads if thread is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in others)


def report_fault(on_fault: OnFault, fault: BaseException, where: str) -> None:
    """Tell the owner of the pool; if that fails as well, tell the hook for thread faults."""
    fault.add_note(f"in {threading.current_thread().name}, {where}")
    try:
        on_fault(fault)
    except BaseException:  # noqa: BLE001 - the worker must live, and the fault must be seen
        kind, value, trace = sys.exc_info()
        assert kind is not None
        threading.excepthook(
            threading.ExceptHookArgs((kind, value, trace, threading.current_thread()))
        )
