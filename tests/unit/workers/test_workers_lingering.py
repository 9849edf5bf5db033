"""What may linger is done once for all who wanted it, and never missed."""

import queue
import sys
import threading

from hms.workers.lingering import Linger
from hms.workers.storage import StoragePool

WAIT_S = 60


def test_it_is_called_once_for_all_who_wanted_it_meanwhile():
    calls, may_end = queue.SimpleQueue(), threading.Event()

    def then():
        calls.put(threading.current_thread())
        assert may_end.wait(WAIT_S)

    linger = Linger(0.01, then, "linger")
    linger.want()
    assert calls.get(timeout=WAIT_S) is not threading.current_thread()
    for _ in range(100):  # while the first call runs
        linger.want()
    may_end.set()

    calls.get(timeout=WAIT_S)
    assert linger.close(WAIT_S)
    assert calls.empty()


def test_whatever_was_noted_before_it_was_wanted_is_seen_by_a_call():
    """Also when it is wanted just as the call before begins."""
    waiting, done = queue.SimpleQueue(), queue.SimpleQueue()

    def take_all():
        while not waiting.empty():
            done.put(waiting.get_nowait())

    linger = Linger(0, take_all, "linger")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(3_000):
            waiting.put(number)
            linger.want()
        assert [done.get(timeout=WAIT_S) for _ in range(3_000)] == list(range(3_000))
    finally:
        sys.setswitchinterval(before)
        assert linger.close(WAIT_S)


def test_nothing_is_called_after_the_end():
    calls = []
    linger = Linger(3600, lambda: calls.append(1), "linger")
    linger.want()

    assert linger.close(WAIT_S)
    assert not calls


def _pool(lead):
    return StoragePool(2, lead, on_fault=lambda _: None)


def test_the_log_is_led_a_little_later():
    led = threading.Event()
    pool = _pool(lambda: bool(led.set()))
    pool.notify_later()

    assert led.wait(WAIT_S)
    assert pool.close(drain=True, timeout_s=WAIT_S)


def test_a_pool_that_drains_leads_what_lingers():
    """The node stops: what was acknowledged until then is written."""
    work = [1]
    pool = _pool(lambda: bool(work and work.pop()))
    pool.notify_later()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert not work
