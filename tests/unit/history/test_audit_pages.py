"""Pages of the audit: each record once, the newest first, and no more is read than a page needs."""

import itertools

import pytest
from journal_support import booted

from hms.history import audit_pages
from hms.history.audit_pages import AuditLog
from hms.history.audit_trail import entries_of_log
from hms.records import Snapshot
from hms.records.audit import NO_HASH, AuditEntry, audit_record, breaks_of, chained
from hms.records.definitions import dictionary
from hms.store.journal.audit_blocks import AuditBlocks
from hms.store.journal.audit_files import keep_audit
from hms.store.journal.disk import REAL_DISK

SEGMENT = 16 << 10
PLAIN = (9, 1, (b"x" * 200,))


class Log:
    """A journal with records of the audit among others."""

    def __init__(self, folder):
        self.folder = folder
        self.number, self.head = 0, NO_HASH
        self.journal, _ = booted(folder, segment_bytes=SEGMENT, make=self.dictionary)

    def dictionary(self):
        made = dictionary(Snapshot([], audit_number=self.number, audit_head=self.head))
        return made.type, made.events, made.parts

    def order(self, user="anna", command="queue.purge"):
        """As the engine does: counted when it is made, and appended behind what it has to do."""
        made = chained(
            AuditEntry(
                self.number + 1, 5, user, "s", "purge", "queue:q", command, "{}", 0, 1, self.head
            )
        )
        self.number, self.head = made.number, made.hash
        record = audit_record(made)
        self.journal.append(record.type, record.events, record.parts)

    def traffic(self, count):
        for _ in range(count):
            self.journal.append(*PLAIN)

    def done(self):
        self.journal.commit()
        self.journal.close()


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "store")


def everything(one):
    return True


def walked(folder, wanted=everything, limit=7):
    """All pages, one behind the other."""
    found, before, log = [], 0, AuditLog(folder)
    for _ in range(10_000):
        page = log.page(wanted, before, limit)
        assert len(page.entries) <= limit
        found += page.entries
        before = page.before
        if not before:
            return found
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
def test_pages_have_each_record_once_also_where_segments_have_none(log, limit):
    """Between two orders there may be a day of messages, or an hour of nothing but orders."""
    for each in range(40):
        log.order()
        log.traffic(each * 4)
    for _ in range(300):
        log.order()
    log.done()
    every = list(entries_of_log(log.folder))
    assert len(every) == 340
    assert len(list(log.folder.glob("*.log"))) > 10

    assert walked(log.folder, limit=limit) == every[::-1]


def test_a_segment_that_went_has_left_its_records_and_they_are_of_the_pages(log):
    """Of what the history let go the audit stays, in files of their own."""
    for _ in range(200):
        log.order()
        log.traffic(10)
    log.done()
    every = list(entries_of_log(log.folder))
    segments = sorted(log.folder.glob("0*.log"))
    for file in segments[: len(segments) // 2]:
        assert keep_audit(REAL_DISK, file)
        file.unlink()
    assert list(log.folder.glob("*.audit"))

    assert walked(log.folder) == every[::-1]
    assert list(breaks_of(walked(log.folder)[::-1])) == []


def test_a_record_that_an_opening_has_counted_and_that_stands_behind_it_is_found(log):
    """It was made, and the segment was full before it was written."""
    for _ in range(300):
        log.order()
    log.done()
    every = list(entries_of_log(log.folder))
    assert len(list(log.folder.glob("0*.log"))) > 3

    kept = AuditLog(log.folder)
    for number in range(2, len(every) + 2):
        page = kept.page(everything, number, 1)
        assert [one.number for one in page.entries] == [number - 1]


def test_a_page_reads_the_segment_that_has_it_and_no_other(log, monkeypatch):
    """A million records are a thousand segments; the oldest of them cost as much as the newest."""
    for _ in range(2000):
        log.order()
        log.traffic(3)
    log.done()
    kept, read = AuditLog(log.folder), []
    really = AuditBlocks.of
    monkeypatch.setattr(
        AuditBlocks, "of", lambda self, file: read.append(file) or really(self, file)
    )
    assert len(list(log.folder.glob("0*.log"))) > 50
    for before in (4, 1000, 1990):
        read.clear()
        page = kept.page(everything, before, 2)
        assert [one.number for one in page.entries] == [before - 1, before - 2]
        assert len(set(read)) <= 2


def test_records_that_come_while_it_is_read_are_on_the_next_page(log):
    """The segment that is written is walked on from where its last block began."""
    kept = AuditLog(log.folder)
    for count in (1, 3, 600, 5):
        for _ in range(count):
            log.order()
        log.journal.commit()
        page = kept.page(everything, 0, 700)
        assert [one.number for one in page.entries] == list(range(log.number, 0, -1))
    log.done()


def test_a_search_that_takes_long_says_how_far_it_came_and_goes_on_there(log):
    """Who looks for one user among a million records waits for no page longer than for others."""
    for each in range(300):
        log.order("rare" if each == 3 else "anna")
        log.traffic(10)
    log.done()
    ticks = itertools.count(step=audit_pages.LOOK_S)
    slow = AuditLog(log.folder, lambda: float(next(ticks)))
    pages, before = [], 0
    while True:
        page = slow.page(lambda one: one.user == "rare", before, 5)
        pages.append(page)
        before = page.before
        if not before:
            break
    assert [one.number for page in pages for one in page.entries] == [4]
    assert pages[0].is_cut
    assert len(pages) > 5
    assert [page.before for page in pages] == sorted((p.before for p in pages), reverse=True)


def test_an_empty_store_has_no_pages(log):
    """A node that was booted a moment ago."""
    log.done()
    assert AuditLog(log.folder).page(everything) == ([], 0, False)
