"""The journal gives back what was put in: numbers, order, segment boundaries."""

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_support import (
    SMALL,
    FaultyDisk,
    bodies,
    booted,
    dictionary,
    opened,
    recovered,
    segments,
)

from hms.errors.catalogue import RecordTooLarge
from hms.store.interface import Store
from hms.store.journal.journal import SEGMENT_BYTES
from hms.store.journal.reader import list_segments


def test_records_come_back_in_order_with_their_numbers_across_segments(tmp_path):
    """The log is the truth of the node: nothing may be lost, doubled or renumbered by a roll."""
    journal, _ = booted(tmp_path)
    sent = [(b"head", bytes([i]) * (i * 7 % 600)) for i in range(60)]
    lasts = []
    for i, parts in enumerate(sent):
        journal.append(3, 1 + i % 3, parts)
        lasts.append(journal.last_lsn)
    assert journal.commit() == lasts[-1] == journal.last_lsn == journal.durable_lsn
    journal.close()

    journal, found = booted(tmp_path)
    journal.close()

    assert bodies(found) == [b"".join(parts) for parts in sent]
    assert [lsn + count - 1 for lsn, kind, count, _ in found if kind == 3] == lasts
    following = [lsn + count for lsn, _, count, _ in found]
    assert [lsn for lsn, *_ in found] == [1, *following[:-1]]
    assert len(segments(tmp_path)) > 4


def test_the_dictionary_opens_every_segment_as_it_is_at_that_moment(tmp_path):
    """A segment must be readable alone, with the definitions that hold when it begins."""
    made = []

    def make():
        made.append(b"definitions %d" % len(made))
        return 11, 1, (made[-1],)

    journal, _ = booted(tmp_path, make=make)
    for _ in range(20):
        journal.append(3, 1, (bytes(1000),))
    journal.commit()
    journal.close()
    journal, found = booted(tmp_path)
    journal.close()

    assert [payload for _, kind, _, payload in found if kind == 11] == made
    assert len(made) == len(segments(tmp_path)) - 1


def test_each_boot_writes_into_a_segment_and_an_epoch_of_its_own(tmp_path):
    """What an earlier boot left behind can then never be taken for this boot's."""
    for n in range(3):
        journal, found = booted(tmp_path)
        assert len(bodies(found)) == n
        journal.append(3, 1, (b"one",))
        journal.commit()
        journal.close()

    infos = list_segments(tmp_path)
    assert [(info.number, info.epoch) for info in infos] == [(1, 1), (2, 2), (3, 3)]
    assert [info.is_last for info in infos] == [False, False, True]


def test_boots_that_write_nothing_use_one_segment_again(tmp_path):
    """A node that fails to boot over and over must not fill the disk with empty segments."""
    for _ in range(5):
        booted(tmp_path)[0].close()

    assert [(info.number, info.epoch) for info in list_segments(tmp_path)] == [(1, 5)]


def test_segment_boundaries_do_not_depend_on_when_it_was_committed(tmp_path):
    """P3: the same records give the same log, however the disk keeps up."""
    starts = []
    for name, every in (("a", 1), ("b", 7), ("c", 1000)):
        journal, _ = booted(tmp_path / name)
        for i in range(100):
            journal.append(3, 2, (bytes(i * 5),))
            if i % every == 0:
                journal.commit()
        journal.commit()
        journal.close()
        starts.append([info.first_lsn for info in list_segments(tmp_path / name)])

    assert starts[0] == starts[1] == starts[2]
    assert len(starts[0]) > 3


def test_the_journal_is_a_store_and_has_its_default_size(tmp_path):
    """The node knows the interface only."""
    store: Store = opened(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert list(store.recover()) == []
    assert (store.last_lsn, store.durable_lsn, store.backlog_bytes) == (0, 0, 0)
    assert not store.needs_maintenance
    assert not store.is_waiting_for_space
    store.close()


def test_a_spare_of_the_last_boot_is_used_unless_it_is_not_all_zeros(tmp_path):
    """Old bytes in a new segment could be taken for records; zeros need no second writing."""
    journal, _ = booted(tmp_path)
    journal.maintain()
    journal.close()
    disk = FaultyDisk()
    booted(tmp_path, disk)[0].close()
    assert disk.calls.count("pwritev spare.log") == 1  # its header

    (tmp_path / "spare.log").write_bytes(b"\xff" * SMALL)
    journal, _ = booted(tmp_path)
    journal.append(3, 1, (b"fresh",))
    journal.commit()
    journal.close()
    assert segments(tmp_path)[0].read_bytes().count(b"\xff\xff") == 0
    assert len(list(tmp_path.glob("*.log"))) == 1


PARTS = st.lists(st.binary(max_size=900), max_size=4)


@settings(max_examples=40)
@given(
    boots=st.lists(
        st.lists(
            st.tuples(st.integers(1, 5), PARTS, st.booleans()),
            max_size=25,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_sequence_of_records_commits_and_boots_comes_back(tmp_path_factory, boots):
    """Whatever sizes meet whatever boundary, the committed records are the log."""
    path = tmp_path_factory.mktemp("store")
    expected = []
    for records in boots:
        journal, found = booted(path, make=dictionary)
        assert bodies(found) == expected
        for count, parts, is_committed in records:
            try:
                journal.append(3, count, parts)
            except RecordTooLarge:
                continue
            expected.append(b"".join(parts))
            if is_committed:
                journal.commit()
        journal.commit()
        journal.close()
    assert recovered(path) == expected
