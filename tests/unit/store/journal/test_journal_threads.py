"""The journal under several threads: one leads, others maintain, clean, page in and ask."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pytest
from journal_support import NotingDisk, opened, running

from hms.errors.catalogue import StoreFailed
from hms.store.interface import SegmentGoneError
from tests.crash.cleaning import NO_HISTORY, SHORT_HISTORY
from tests.crash.oracle import Oracle
from tests.crash.program import kept

ROUNDS = 150
TIMEOUT_S = 60


@pytest.fixture
def eager_switching():
    """Threads change places every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Pool:
    """The threads of a node around one journal, until the engine has done its rounds."""

    def __init__(self, run):
        self.run, self.journal = run, run.journal
        self.engine = threading.Lock()
        self.is_over = threading.Event()
        self.places, self.pages = {}, 0
        self._appended = run.journal.append

    def work(self):
        """Raises what any of the threads raised."""
        self.journal.append = self._append
        helpers = (self.lead, self.maintain, self.maintain, self.page_in, self.ask)
        with ThreadPoolExecutor(len(helpers)) as pool:
            waiting = [pool.submit(self._until_over, helper) for helper in helpers]
            try:
                self._change()
            finally:
                self.is_over.set()
            for one in waiting:
                one.result(timeout=TIMEOUT_S)
        self.journal.commit()

    def _append(self, kind, count, parts):
        position = self._appended(kind, count, parts)
        body = b"".join(parts)
        self.places[body] = position
        return position

    def _change(self):
        for n in count():
            if n >= ROUNDS:
                if self.has_moved() or self.is_over.is_set():
                    break
                self.is_over.wait(0.0005)  # for threads that a busy machine has not let come yet
            with self.engine:
                self.run.append(500 + 60 * (n % 4))
                self.run.append(300)
                self.run.take(2 if n % 3 else 1)
                self.run.clean()
            self.catch_up()

    def has_moved(self):
        """Segments were let go of and messages paged in, while all went on."""
        return self.journal._segments.oldest > 10 and self.pages > 10

    def catch_up(self):
        """The engine waits for the log now and then, as senders do."""
        while self.journal.backlog_bytes > 20_000 and not self.is_over.is_set():
            self.is_over.wait(0.0005)

    def _until_over(self, helper):
        try:
            while not self.is_over.is_set():
                helper()
        except BaseException:
            self.is_over.set()
            raise

    def lead(self):
        self.journal.commit()

    def maintain(self):
        self.journal.maintain()

    def page_in(self):
        """A message that waits is read as it was sent, wherever it lies meanwhile."""
        with self.engine:
            waiting = [body for body, _ in list(self.run.waiting.values())[:4]]
        for body in waiting:
            place = self.places[body]
            if place >> 32 < self.journal.newest_segment:
                with suppress(SegmentGoneError):
                    assert self.journal.read(place, len(body)) == body
                    self.pages += 1

    def ask(self):
        self.journal.describe()
        assert self.journal.sends_refused() is None
        assert self.journal.is_waiting_for_space in {True, False}
        assert self.journal.needs_maintenance in {True, False}


@pytest.mark.parametrize("setting", [NO_HISTORY, SHORT_HISTORY])
def test_a_log_that_is_written_cleaned_maintained_and_read_at_once_loses_nothing(
    tmp_path, eager_switching, setting
):
    """Two storage workers share the segments and the spare; none may see the other's half work."""
    pool = Pool(running(tmp_path, setting))

    pool.work()

    assert pool.has_moved()
    pool.journal.close()
    oracle = Oracle()
    for step in pool.run.disk.steps:
        oracle.apply(step)
    oracle.confirmed = len(oracle.records)
    journal = opened(tmp_path, NotingDisk())
    assert oracle.fault(kept(journal)) is None
    journal.close()


class Meddling(int):
    """A sequence number; while it is compared, the engine cleans one more segment."""

    def __gt__(self, other):
        self.meddle()
        return int(self) > other


def test_a_header_never_tells_of_a_cleaning_that_came_after_its_own_question(tmp_path):
    """What the later cleaning moved is not synced yet: a crash would lose those messages."""
    run = running(tmp_path, NO_HISTORY)
    manager = run.journal._segments
    manager.cleaned(3, 100)
    first_lsn = Meddling(150)
    first_lsn.meddle = lambda: manager.cleaned(4, 200)

    assert manager.oldest_for(first_lsn) == 4
    assert manager.oldest_for(150) == 1
    assert manager.oldest_for(201) == 5
    run.journal.close()


class ClosingDisk(NotingDisk):
    """The node ends while a storage worker prepares the spare or lets go of segments."""

    def __init__(self, call):
        super().__init__()
        self._call, self.journal, self.closing = call, None, None
        self.after_close = []
        self.is_closed = False

    def _meet(self, call):
        if self.journal is not None and call == self._call and self.closing is None:
            self.closing = threading.Thread(target=self._close)
            self.closing.start()
            self.closing.join(0.05)  # it must wait for us
        if self.is_closed:
            self.after_close.append(call)

    def _close(self):
        self.journal.close()
        self.is_closed = True

    def rename(self, source, target):
        self._meet("rename")
        super().rename(source, target)

    def ftruncate(self, fd, size):
        self._meet("ftruncate")
        super().ftruncate(fd, size)

    def open(self, path, flags):
        self._meet("open")
        return super().open(path, flags)


@pytest.mark.parametrize("call", ["rename", "ftruncate"])
def test_nothing_is_done_in_the_directory_once_it_is_let_go(tmp_path, call):
    """The next node may have booted there; zeros in its spare would become zeros in its log."""
    disk = ClosingDisk(call)
    run = running(tmp_path, SHORT_HISTORY, disk)
    while not run.journal.needs_maintenance or not run.journal._segments.is_due(0):
        run.append(100)
        run.take(2)
        run.clean()
        run.commit()
    disk.journal = run.journal

    with suppress(StoreFailed):
        run.journal.maintain()
    disk.closing.join(TIMEOUT_S)

    assert disk.is_closed
    assert disk.after_close == []
    with suppress(StoreFailed):
        run.journal.maintain()
    run.journal._preallocated.maintain()  # a worker that had asked before the store was closed
    assert disk.after_close == []
    with pytest.raises(StoreFailed, match="closed"):
        run.journal.read(1 << 32, 1)
