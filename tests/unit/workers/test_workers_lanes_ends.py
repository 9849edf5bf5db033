"""Lanes: what happens to faults, and how a pool ends."""

import queue
import signal
import threading

from lane_rig import WAIT_S, gate, pools

__all__ = ["gate", "pools"]  # the fixtures


def test_a_fault_is_reported_with_its_place_and_the_pool_goes_on(pools):
    """A worker that dies in silence would halve the node without anybody knowing."""
    faults, done = queue.SimpleQueue(), queue.SimpleQueue()

    def handle(_key, items):
        if items == ["bad"]:
            raise RuntimeError("no")
        done.put(items)

    pool = pools(1, handle, on_fault=faults.put, name="hms-general", batch_max=1)
    pool.put_many("lane-7", ["bad"])
    pool.put_many("lane-7", ["good"])

    fault = faults.get(timeout=WAIT_S)
    assert isinstance(fault, RuntimeError)
    assert fault.__notes__ == ["in hms-general-1, lane 'lane-7'"]
    assert done.get(timeout=WAIT_S) == ["good"]


def test_a_signal_that_reaches_a_sleeping_worker_does_not_end_it(pools):
    """The system gives a signal to any thread; the handler runs in the main one."""
    done, signalled = queue.SimpleQueue(), threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: signalled.set())
    try:
        pool = pools(1, lambda _key, items: done.put(items))
        for number in range(50):
            signal.pthread_kill(pool._threads[0].ident, signal.SIGUSR1)
            pool.put_many("a", [number])  # the worker meets the signal before it can answer
            assert done.get(timeout=WAIT_S) == [number]
        assert signalled.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_fault_handler_that_fails_itself_is_not_swallowed(pools, monkeypatch):
    """The last resort is the interpreter's own hook, and the worker still lives."""
    hooked, done = queue.SimpleQueue(), queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.put(args.exc_value))

    def handle(_key, items):
        done.put(items)
        if items == ["bad"]:
            raise RuntimeError("no")

    def fail(_fault):
        raise LookupError("worse")

    pool = pools(1, handle, on_fault=fail)
    pool.put_many("a", ["bad"])

    assert isinstance(hooked.get(timeout=WAIT_S), LookupError)
    pool.put_many("a", ["good"])
    assert [done.get(timeout=WAIT_S) for _ in range(2)] == [["bad"], ["good"]]


def test_closing_without_drain_finishes_only_what_is_in_hand(pools, gate):
    """A node that stops at once leaves the rest to the clients, who know it as unconfirmed."""
    pool = pools(1, gate.handle)
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("a", [2])
    pool.put_many("b", [2])

    assert not pool.close(drain=False, timeout_s=0)
    assert not pool.put_many("c", [3])
    gate.is_open.set()

    assert pool.close(drain=False, timeout_s=WAIT_S)
    assert gate.seen == [("a", [1])]
