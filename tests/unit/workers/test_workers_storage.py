"""Storage workers: one leads, no notify is missed, jobs never block the log."""

import queue
import sys
import threading

import pytest

from hms.workers.load import PoolLoad
from hms.workers.storage import StoragePool
from tests.support.waiting import wait_until

WAIT_S = 60


class Log:
    """A log in memory whose lead() fails when it is entered twice."""

    def __init__(self):
        self.waiting = queue.SimpleQueue()
        self.written = queue.SimpleQueue()
        self._is_entered = threading.Lock()

    def lead(self):
        assert self._is_entered.acquire(blocking=False), "two workers lead"
        try:
            if self.waiting.empty():
                return False
            self.written.put(self.waiting.get_nowait())
            return True
        finally:
            self._is_entered.release()


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def pools():
    """Make pools that are closed at the end of the test."""
    made = []

    def make(workers, lead, **options):
        made.append(StoragePool(workers, lead, **{"on_fault": pytest.fail, **options}))
        return made[-1]

    yield make
    for pool in made:
        assert pool.close(drain=False, timeout_s=WAIT_S)


@pytest.mark.parametrize("workers", [1, 4])
def test_no_notify_is_missed_while_leaders_step_down(pools, log, workers):
    """A missed one leaves a record unsynced, and its producer waits for ever."""
    faults = []
    pool = pools(workers, log.lead, on_fault=faults.append)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(3_000):
            log.waiting.put(number)
            pool.notify()
            assert log.written.get(timeout=WAIT_S) == number
    finally:
        sys.setswitchinterval(before)
    assert not faults


def test_one_leads_and_all_is_written_while_producers_race(log):
    """The log has one order (P2), so one writer at a time."""
    faults = []
    pool = StoragePool(4, log.lead, on_fault=faults.append)

    def produce():
        for number in range(2_000):
            log.waiting.put(number)
            pool.notify()

    producers = [threading.Thread(target=produce) for _ in range(3)]
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join(WAIT_S)

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert not faults
    assert log.written.qsize() == 6_000


def test_a_notify_during_the_last_look_is_led_again(pools):
    """The leader had already seen an empty log when the record came."""
    looked, may_end, led = threading.Event(), threading.Event(), queue.SimpleQueue()

    def lead():
        led.put(1)
        looked.set()
        assert may_end.wait(WAIT_S)
        return False

    pool = pools(2, lead)
    pool.notify()
    assert looked.wait(WAIT_S)
    pool.notify()
    may_end.set()

    led.get(timeout=WAIT_S)
    led.get(timeout=WAIT_S)


def test_jobs_never_take_the_last_worker(pools, log):
    """A confirmation must not wait behind a page-in."""
    pool = pools(3, log.lead)
    started, may_end = queue.SimpleQueue(), threading.Event()

    def job():
        started.put(1)
        may_end.wait(WAIT_S)

    for _ in range(4):
        assert pool.submit(job)
    started.get(timeout=WAIT_S)
    started.get(timeout=WAIT_S)
    log.waiting.put("record")
    pool.notify()

    assert log.written.get(timeout=WAIT_S) == "record"
    assert started.empty()
    may_end.set()
    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert started.qsize() == 2


def test_jobs_run_while_another_worker_leads(pools):
    """A long sync must not stop paging in."""
    is_leading, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def lead():
        is_leading.set()
        may_end.wait(WAIT_S)
        return False

    pool = pools(2, lead)
    pool.notify()
    assert is_leading.wait(WAIT_S)
    pool.submit(done.set)

    assert done.wait(WAIT_S)
    may_end.set()


def test_more_jobs_than_the_limit_are_refused(pools, log):
    """Every queue has a bound (P8)."""
    pool = pools(1, log.lead, jobs_max=2)
    started, may_end = threading.Event(), threading.Event()

    def block():
        started.set()
        may_end.wait(WAIT_S)

    pool.submit(block)
    assert started.wait(WAIT_S)
    assert pool.submit(block)
    assert pool.submit(block)
    assert not pool.submit(block)
    may_end.set()


def test_after_a_fault_in_leading_nobody_leads_again(pools):
    """A failed sync reports success when it is repeated, so it must not be (P7)."""
    faults, led, done = queue.SimpleQueue(), [], threading.Event()

    def lead():
        led.append(1)
        raise OSError("no space")

    pool = pools(2, lead, on_fault=faults.put)
    pool.notify()
    fault = faults.get(timeout=WAIT_S)
    assert isinstance(fault, OSError)
    assert fault.__notes__[0].endswith("leading the log")

    pool.notify()
    assert pool.submit(done.set)
    assert done.wait(WAIT_S)
    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert led == [1]


def test_a_fault_in_a_job_is_reported_and_the_next_job_runs(pools, log):
    """One broken file must not stop the others from being read."""
    faults, done = queue.SimpleQueue(), threading.Event()
    pool = pools(1, log.lead, on_fault=faults.put)
    pool.submit(lambda: 1 / 0)
    pool.submit(done.set)

    assert isinstance(faults.get(timeout=WAIT_S), ZeroDivisionError)
    assert done.wait(WAIT_S)


def test_closing_with_drain_writes_what_waits(pools, log):
    """Nothing that was taken may be lost by an orderly stop."""
    pool = pools(2, log.lead)
    jobs = queue.SimpleQueue()
    for number in range(100):
        log.waiting.put(number)
        pool.submit(lambda: jobs.put(1))
    pool.notify()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert log.written.qsize() == 100
    assert jobs.qsize() == 100
    assert not pool.submit(pytest.fail)


def test_closing_without_drain_drops_the_jobs_that_wait(pools, log):
    """What they would have done is repeated after the next boot."""
    pool = pools(1, log.lead)
    started, may_end = threading.Event(), threading.Event()

    def block():
        started.set()
        may_end.wait(WAIT_S)

    pool.submit(block)
    assert started.wait(WAIT_S)
    pool.submit(pytest.fail)
    assert not pool.close(drain=False, timeout_s=0)
    may_end.set()
    assert pool.close(drain=False, timeout_s=WAIT_S)


class WholeLog(Log):
    """One whose lead() takes all that waits, as a journal's commit does."""

    def lead(self):
        found = False
        while super().lead():
            found = True
        return found


def test_who_puts_work_into_an_idle_log_leads_for_one_turn_and_wakes_nobody(pools):
    """A lone sender's message is written by the thread that has it in hand."""
    log, leaders = WholeLog(), []

    def lead():
        leaders.append(threading.current_thread())
        return log.lead()

    pool = pools(2, lead)
    log.waiting.put(1)
    pool.lead_here()

    assert log.written.get_nowait() == 1
    assert leaders == [threading.current_thread()]


@pytest.mark.parametrize("workers", [1, 3])
def test_no_work_is_missed_while_callers_and_workers_lead_in_turn(workers):
    """Whoever leads, what is put while he steps down is led by the next one."""
    log, faults = WholeLog(), []
    pool = StoragePool(workers, log.lead, on_fault=faults.append)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def produce(tell):
        for number in range(2_000):
            log.waiting.put(number)
            tell()

    producers = [
        threading.Thread(target=produce, args=(tell,))
        for tell in (pool.lead_here, pool.notify, pool.lead_here)
    ]
    try:
        for thread in producers:
            thread.start()
        for thread in producers:
            thread.join(WAIT_S)
        for _ in range(6_000):
            log.written.get(timeout=WAIT_S)
    finally:
        sys.setswitchinterval(before)
    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert not faults


def test_a_fault_of_a_caller_who_leads_is_the_last_one(pools):
    """What a failed sync left on the disk is not known: nobody may try again (P7)."""
    faults, led = [], []

    def lead():
        led.append(1)
        raise OSError(5, "the disk is gone")

    pool = pools(2, lead, on_fault=faults.append)
    pool.lead_here()
    pool.lead_here()
    pool.notify()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert len(faults) == len(led) == 1


def test_a_pool_that_closes_is_led_by_its_own_workers(pools):
    """They finish what waits when it drains, and nothing when it does not."""
    log = WholeLog()
    pool = pools(1, log.lead)
    assert pool.close(drain=False, timeout_s=WAIT_S)
    log.waiting.put(1)

    pool.lead_here()

    assert log.written.empty()


def test_the_load_of_the_storage_workers_is_the_jobs_that_wait(pools, log):
    """Jobs that pile up are page-ins and backups that wait for the disk."""
    begun, may_end = threading.Event(), threading.Event()
    pool = pools(2, log.lead)

    def job():
        begun.set()
        assert may_end.wait(WAIT_S)

    for _ in range(3):
        assert pool.submit(job)
    assert begun.wait(WAIT_S)
    try:
        wait_until(lambda: pool.load() == PoolLoad(workers=2, busy=1, waiting=2, deepest=2))
    finally:
        may_end.set()
    wait_until(lambda: pool.load() == PoolLoad(workers=2, busy=0, waiting=0, deepest=0))
