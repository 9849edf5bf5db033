"""Segments found at boot: missing, exchanged, cut, without a header, of another node or version."""

import struct
from zlib import crc32

import pytest
from journal_support import SMALL, booted, contents, flip, opened, recovered, segments

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown, StoreUnavailable
from hms.store.journal.format import VERSION, Author, pack_segment_header, unpack_segment_header
from hms.store.journal.reader import read_segment
from hms.store.journal.store_examination import examine

BODIES = [b"first record", b"second record", b"third, a longer record", b"the last one"]


def store_of(path):
    """A store with one segment."""
    journal, _ = booted(path)
    for body in BODIES:
        journal.append(3, 1, (body,))
    journal.commit()
    journal.close()
    return segments(path)[-1]


def many_segments(path):
    journal, _ = booted(path)
    for i in range(30):
        journal.append(3, 1, (b"%d" % i * 400,))
        journal.commit()
    journal.close()
    return segments(path)


@pytest.mark.parametrize("n", [0, 1, 2, -1])
def test_a_missing_segment_refuses_to_boot_and_is_named(tmp_path, n):
    """Also the last one: the seal of the one before it tells that it had been there."""
    files = many_segments(tmp_path)
    files[n].unlink()
    before = contents(tmp_path)

    with pytest.raises(StoreCorrupt, match="missing") as caught:
        recovered(tmp_path)
    assert caught.value.file == str(files[n])
    assert contents(tmp_path) == before


def test_a_missing_last_segment_is_noticed_after_a_boot_as_well(tmp_path):
    """A boot ends the segment of the boot before it, so that one is sealed too."""
    store_of(tmp_path)
    last = store_of(tmp_path)
    last.unlink()

    with pytest.raises(StoreCorrupt, match="missing") as caught:
        recovered(tmp_path)
    assert caught.value.file == str(last)


def test_segments_that_changed_places_refuse_to_boot(tmp_path):
    """A restored backup with mixed up names must not become the log."""
    files = many_segments(tmp_path)
    one, other = files[1].read_bytes(), files[2].read_bytes()
    files[1].write_bytes(other)
    files[2].write_bytes(one)

    with pytest.raises(StoreCorrupt, match="says that it is segment"):
        recovered(tmp_path)


@pytest.mark.parametrize("size", [0, 10, 64, 200, SMALL - 64])
def test_a_segment_that_was_cut_and_is_not_the_last_refuses_to_boot(tmp_path, size):
    """Every record of it had been synced."""
    files = many_segments(tmp_path)
    files[1].write_bytes(files[1].read_bytes()[:size])
    is_harmless = size > 3500

    if is_harmless:
        assert len(recovered(tmp_path)) == 30
    else:
        with pytest.raises(StoreCorrupt) as caught:
            recovered(tmp_path)
        assert caught.value.file == str(files[1])


def test_a_last_segment_with_a_header_and_no_records_is_begun_anew(tmp_path):
    """A boot that dies before its first sync leaves it so; its number is used again."""
    store_of(tmp_path)
    booted(tmp_path)[0].close()

    journal, _ = booted(tmp_path)
    journal.append(3, 1, (b"new",))
    journal.commit()
    journal.close()

    assert recovered(tmp_path) == [*BODIES, b"new"]
    assert len(segments(tmp_path)) == 2


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_last_segment_without_a_whole_header_refuses_to_boot(tmp_path, size):
    """The header is safe before the file has its name: what was cut there may have had records."""
    store_of(tmp_path)
    last = store_of(tmp_path)
    last.write_bytes(last.read_bytes()[:size])

    assert_refused(tmp_path, last)


@pytest.mark.parametrize("zeros", [64, 4096])
def test_a_last_segment_whose_first_bytes_are_zeros_refuses_to_boot(tmp_path, zeros):
    """A lost block of a young segment reads as zeros, and held confirmed records."""
    file = store_of(tmp_path)
    data = file.read_bytes()
    file.write_bytes(bytes(zeros) + data[zeros:])

    assert_refused(tmp_path, file)


def assert_refused(path, file):
    """By the boot, verify and a reader alike; nothing is changed."""
    before = contents(path)
    with pytest.raises(StoreCorrupt, match="header does not verify") as caught:
        recovered(path)
    assert (caught.value.file, caught.value.offset) == (str(file), 0)
    assert [one.is_needed for one in examine(path).damages] == [True]
    with pytest.raises(StoreCorrupt, match="header"):
        list(read_segment(file))
    assert contents(path) == before


def test_a_flip_anywhere_in_a_header_refuses_to_boot(tmp_path):
    """Without its header no record of the segment can be checked."""
    file = store_of(tmp_path)
    whole = file.read_bytes()
    for at in range(64):
        file.write_bytes(whole)
        flip(file, at)
        with pytest.raises(StoreCorrupt):
            recovered(tmp_path)


def test_a_store_of_a_newer_format_is_refused_by_its_number(tmp_path):
    """An old node must not cut what it cannot read."""
    file = store_of(tmp_path)
    data = bytearray(file.read_bytes())
    struct.pack_into("<H", data, 8, 9)
    struct.pack_into("<I", data, 60, crc32(data[:60]))
    file.write_bytes(data)

    with pytest.raises(StoreFormatUnknown) as caught:
        recovered(tmp_path)
    assert (caught.value.found, caught.value.known) == (9, VERSION)
    assert file.read_bytes() == data


def test_the_newest_format_tells_which_release_wrote_a_segment_and_the_older_one_has_no_place():
    """What wrote a store is asked when it cannot be read."""
    newest, older = (
        unpack_segment_header(pack_segment_header(Author(77, 1, version, (1, 2, 3)), 1, 1, 1))
        for version in (VERSION, 2)
    )
    assert (newest.version, newest.release) == (VERSION, (1, 2, 3))
    assert (older.version, older.release) == (2, (0, 0, 0))


def test_the_store_of_another_node_is_refused(tmp_path):
    """A wrong path in hms.conf must not mix two nodes' messages."""
    store_of(tmp_path)
    journal = opened(tmp_path, node_uid=78)

    with pytest.raises(StoreUnavailable, match="belongs to node 77"):
        list(journal.recover())
    journal.close()


def test_a_header_that_calls_its_own_segment_needless_is_refused(tmp_path):
    """Believing it would boot an empty log."""
    file = store_of(tmp_path)
    file.write_bytes(pack_segment_header(Author(77, 1), 1, 1, oldest=2) + file.read_bytes()[64:])

    with pytest.raises(StoreCorrupt, match="begins behind it"):
        recovered(tmp_path)


def test_other_files_in_the_directory_are_left_alone(tmp_path):
    """An operator's note or a backup beside the log is no segment."""
    store_of(tmp_path)
    (tmp_path / "notes.log").write_text("mine")
    (tmp_path / "0000000000000009.log.bak").write_text("mine")

    assert recovered(tmp_path) == BODIES
    assert (tmp_path / "notes.log").read_text() == "mine"
