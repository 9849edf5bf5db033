"""Reading a store without its lock, also while a node writes it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from journal_support import bodies, booted, contents, flip, segments

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.journal.reader import last_lsn, list_segments, read_segment, verify
from tests.support.effort import tries


@pytest.fixture
def journal(tmp_path):
    journal, _ = booted(tmp_path / "store")
    yield journal
    journal.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


def send(journal, first, last):
    for i in range(first, last):
        journal.append(3, 2, (b"%05d" % i * 20,))
    return journal.commit()


def everything(path, first_lsn=0):
    return [record for info in list_segments(path) for record in read_segment(info.file, first_lsn)]


def test_a_reader_sees_what_is_written_and_goes_on_where_it_was(path, journal):
    """The history follows a live node; it must neither miss nor repeat a record."""
    send(journal, 0, 50)
    seen = everything(path)
    assert bodies(seen) == [b"%05d" % i * 20 for i in range(50)]
    assert last_lsn(path) == journal.durable_lsn

    send(journal, 50, 120)
    lsn, _, count, *_ = seen[-1]
    more = everything(path, lsn + count)
    assert bodies(more) == [b"%05d" % i * 20 for i in range(50, 120)]


def test_a_range_of_sequence_numbers_is_read_exactly(path, journal):
    """Records that hold a number of the range belong to it, those before and after do not."""
    send(journal, 0, 20)
    file = segments(path)[0]
    lsns = [lsn for lsn, *_ in read_segment(file)]
    assert lsns[:4] == [1, 2, 4, 6]

    assert [lsn for lsn, *_ in read_segment(file, 5, 8)] == [4, 6, 8]
    assert [lsn for lsn, *_ in read_segment(file, 6, 7)] == [6]
    assert list(read_segment(file, 10_000)) == []


def test_the_segments_say_where_they_begin_and_which_is_the_last(path, journal):
    """Spark splits the work by them."""
    send(journal, 0, 100)
    infos = list_segments(path)

    assert [info.number for info in infos] == list(range(1, len(infos) + 1))
    assert [info.is_last for info in infos] == [False] * (len(infos) - 1) + [True]
    for info in infos:
        assert next(iter(read_segment(info.file)))[0] == info.first_lsn
        assert (info.epoch, info.node_uid) == (1, 77)


def test_a_record_that_is_not_whole_yet_ends_a_live_segment(path, journal):
    """The writer is in the middle of it; that is no damage."""
    send(journal, 0, 5)
    file = segments(path)[-1]
    flip(file, 64 + 48 + 4 * 136 + 40)

    assert len(bodies(read_segment(file))) == 4


def test_damage_in_a_segment_that_another_one_follows_is_named(path, journal):
    """A gap in the history must never look like its end."""
    send(journal, 0, 100)
    file = segments(path)[1]
    flip(file, 64 + 48 + 136 + 40)

    with pytest.raises(StoreCorrupt) as caught:
        list(read_segment(file))
    assert (caught.value.file, caught.value.offset) == (str(file), 64 + 48 + 136)


def test_damage_in_the_last_segment_is_named_when_later_records_prove_it(path, journal):
    """The same rule as at boot."""
    for i in range(5):
        send(journal, i, i + 1)
    file = segments(path)[-1]
    flip(file, 64 + 48 + 136 + 40)

    with pytest.raises(StoreCorrupt):
        list(read_segment(file))


def test_a_sealed_segment_reads_alone(tmp_path, path, journal):
    """Retired segments are moved away from the others."""
    send(journal, 0, 100)
    file = segments(path)[0]
    away = tmp_path / file.name
    away.write_bytes(file.read_bytes())

    assert len(list(read_segment(away))) == len(list(read_segment(file))) > 10


def test_a_reader_beside_a_writer_never_sees_damage_and_misses_nothing(path, journal):
    """Every state between two writes must read as a live tail."""
    is_over, count = threading.Event(), 3 * tries(500)

    def read():
        while not is_over.is_set():
            lsns = [lsn for lsn, *_ in everything(path)]
            assert lsns == sorted(set(lsns))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for i in range(0, count, 3):
            send(journal, i, i + 3)
            journal.maintain()
        is_over.set()
        reading.result(timeout=250)

    assert len(bodies(everything(path))) == count


def test_verify_is_silent_about_a_sound_store_and_a_torn_tail(path, journal):
    """Neither is a reason to restore a backup."""
    send(journal, 0, 100)
    assert list(verify(path)) == []
    file = segments(path)[-1]
    file.write_bytes(file.read_bytes()[: 64 + 48 + 60])
    assert list(verify(path)) == []


def test_verify_names_every_damaged_segment_and_changes_nothing(path, journal):
    """The operator sees the whole extent before deciding."""
    send(journal, 0, 150)
    files = segments(path)
    for n in (1, 3):
        flip(files[n], 64 + 48 + 40)
    before = contents(path)

    found = list(verify(path))

    assert [(finding.file, finding.offset) for finding in found] == [
        (str(files[1]), 64 + 48),
        (str(files[3]), 64 + 48),
    ]
    assert all(finding.lsn and finding.detail for finding in found)
    assert contents(path) == before


def test_verify_names_a_missing_segment(path, journal):
    """The chain is a part of the store."""
    send(journal, 0, 100)
    segments(path)[1].unlink()

    assert [finding.detail for finding in verify(path)] == ["the segment is missing"]


def test_a_store_that_is_not_there_is_unavailable_and_an_empty_one_is_empty(tmp_path):
    """A mistyped path must not look like a store without messages."""
    with pytest.raises(StoreUnavailable):
        list_segments(tmp_path / "none")
    assert list_segments(tmp_path) == []
    assert last_lsn(tmp_path) == 0
    assert list(verify(tmp_path)) == []
