"""A small log, damaged everywhere: refused by name, or as it was; never something else (D05, D06).

HMS_CRASH_STATES=10000 pytest tests/crash -k damage      every bit of every byte
"""

import os
import random

import pytest

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.reader import read_segment
from tests.crash.program import DICTIONARY_KIND, SMALL, STORE, batches, kept, live, opened
from tests.crash.recording import RecordingDisk

IS_LONG = int(os.environ.get("HMS_CRASH_STATES", "400")) >= 10_000
SEED = int(os.environ.get("HMS_CRASH_SEED", "1"))
DENSE = 200
"""Offsets up to here are all tried in the short run: header, dictionary, records, padding."""
STRIDE = 37


@pytest.fixture(scope="module")
def files():
    """Three boots; segments that were filled, begun and left, and the last one."""
    disk = RecordingDisk()
    live(disk, batches((20, 33), (1500,), (700, 9, 600), (1300,), (900, 5)))
    live(disk, batches((50,), (60, 61, 62)))
    live(disk, batches((40,), (70, 5, 33), (25,), (41, 18)))
    found = {
        n: data
        for n, data in disk.files().items()
        if not n.endswith(("LOCK", "spare.log", ".reserve"))
    }
    assert len(found) >= 4
    return found


@pytest.fixture(scope="module")
def whole(files):
    """What the sound log holds."""
    return recovered(files)


@pytest.fixture(scope="module")
def last_batch(files):
    """The records that were written together at the end; only of them may be some missing."""
    return 2


def recovered(files):
    """Its records, without the dictionaries."""
    return kept(opened(RecordingDisk(files)))


def outcome(files, whole):
    """How many records are missing at the end, or the error that refuses."""
    try:
        found = recovered(files)
    except (StoreCorrupt, StoreUnavailable) as error:
        return error
    assert found == whole[: len(found)], "something else was served"
    return len(whole) - len(found)


def places(data, chance):
    """Offsets and masks to flip in one file."""
    for at in range(len(data)):
        if IS_LONG:
            yield from ((at, 1 << bit) for bit in range(8))
        elif at < DENSE or at % STRIDE == 0 or _is_at_an_edge(data, at):
            yield at, 1 << chance.randrange(8)


def _is_at_an_edge(data, at):
    """Near zeros that end a record, or that nothing was written over yet."""
    near = data[max(at - 2, 0) : at + 2]
    return any(near) and not all(near)


def damaged_by_flips(files):
    """Every flip: the file's name, the offset, and all files with it."""
    chance = random.Random(SEED)
    for name, data in files.items():
        for at, mask in places(data, chance):
            changed = bytearray(data)
            changed[at] ^= mask
            yield name, at, files | {name: bytes(changed)}


def test_a_flip_in_any_byte_is_refused_or_harmless(files, whole, last_batch):
    """Silent damage is the worst loss: nobody looks for a message that was never missing."""
    last, refused, harmless, cut = max(files), 0, 0, 0
    for name, at, damaged in damaged_by_flips(files):
        found = outcome(damaged, whole)
        if isinstance(found, StoreCorrupt):
            assert found.file == name, (name, at)
            assert found.offset <= at
            refused += 1
        elif found:
            assert name == last, (name, at)
            assert found <= last_batch, (name, at)
            cut += 1
        else:
            harmless += 1
    print(f"flips: {refused} refused, {harmless} harmless, {cut} in the last write")
    assert refused > harmless > 0 or not IS_LONG
    assert cut > 0


def test_a_reader_beside_the_node_never_serves_a_flipped_byte(files):
    """Spark and the exports read without the lock, and must not believe more than the node."""
    for name, at, damaged in damaged_by_flips(files):
        if at % 3 and not IS_LONG:
            continue
        disk, path = RecordingDisk(damaged), STORE / name.rpartition("/")[2]
        sound = served(RecordingDisk(files), path)
        try:
            found = served(disk, path)
        except (StoreCorrupt, StoreUnavailable):
            continue
        assert found == sound[: len(found)], (name, at)


def served(disk, path):
    """What a reader gets of a segment."""
    return [(lsn, kind, bytes(data)) for lsn, kind, _, data, *_ in read_segment(path, disk=disk)]


def test_the_last_segment_truncated_at_any_byte_boots_with_what_is_left(files, whole):
    """A crash may leave any end; what lies whole before it counts. It leaves no half header."""
    last = max(files)
    data = files[last]
    cuts = range(len(data)) if IS_LONG else [*range(len(data.rstrip(b"\0")) + 40), len(data) - 1]
    found = [outcome(files | {last: data[:at]}, whole) for at in cuts]
    refused, left = found[:SEGMENT_HEADER_BYTES], found[SEGMENT_HEADER_BYTES:]

    assert all(isinstance(error, StoreCorrupt) and error.file == last for error in refused)
    assert all(isinstance(missing, int) for missing in left)
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_a_deleted_segment_is_named(files, whole):
    """Also the last one, as the seal of the one before it tells."""
    for name in files:
        found = outcome({n: data for n, data in files.items() if n != name}, whole)
        assert isinstance(found, StoreCorrupt)
        assert "missing" in found.detail
        assert found.file == name


def test_segments_that_are_swapped_or_copied_over_another_are_refused(files, whole):
    """A restore that mixes files up must not become the log."""
    for one in files:
        for other in files:
            if one == other:
                continue
            swapped = {one: files[other], other: files[one]}
            for damaged in (swapped, {one: files[other]}):
                found = outcome(files | damaged, whole)
                assert isinstance(found, StoreCorrupt), (one, other)
                assert found.file in {one, other}


def test_a_segment_that_is_there_twice_is_refused(files, whole):
    """A copy under the next number is no continuation."""
    last = max(files)
    number = int(last.rpartition("/")[2].removesuffix(".log")) + 1
    for name in files:
        found = outcome(files | {f"{STORE}/{number:016d}.log": files[name]}, whole)
        assert isinstance(found, StoreCorrupt)


def test_zeros_in_place_of_a_block_are_refused_or_harmless(files, whole, last_batch):
    """A lost block reads as zeros, which is also what an unused end of a segment holds."""
    last = max(files)
    for size in (512, 1024, SMALL):
        for name, data in files.items():
            for at in range(0, len(data), size):
                damaged = data[:at] + bytes(size) + data[at + size :]
                found = outcome(files | {name: damaged}, whole)
                if not isinstance(found, StoreCorrupt):
                    assert found == 0 or (name == last and found <= last_batch), (name, at, size)


def test_the_dictionaries_are_checked_as_well(files):
    """They are left out above, and name every queue."""
    disk = RecordingDisk(files)
    kinds = [kind for _, kind, *_ in opened(disk).recover()]

    assert kinds.count(DICTIONARY_KIND) == len(files)
