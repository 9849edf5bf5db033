"""Records of a message each are checked in bulk: damage ends a run where it ends a walk."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.errors.catalogue import StoreCorrupt
from hms.records import RecordType
from hms.store.journal import Journal, segment_walk
from hms.store.journal.segment_walk import segment_file
from hms.wire import packed_messages
from hms.wire.record_runs import RUN, crc32, singly
from tests.support.short_runs import shorten_runs

pytestmark = pytest.mark.skipif(
    not packed_messages.IS_NATIVE, reason="this package was built without a C compiler"
)
SENT = RecordType.SENT


@given(st.binary(max_size=400), st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_a_checksum_is_the_one_of_zlib(data, start, skipped):
    """Logs of other releases and machines verify; every length and every alignment."""
    view = memoryview(data)[skipped:]
    assert crc32(view, start) == zlib.crc32(view, start)
    assert crc32(view) == zlib.crc32(view)


def test_a_checksum_of_much_is_the_one_of_zlib():
    """The lock of the interpreter is let go meanwhile."""
    data = random.Random(1).randbytes(1 << 20)
    assert crc32(data, 7) == zlib.crc32(data, 7)


def written(path, rng, count=120):
    """A log of records of one event, now and then another kind or several events; its file."""
    journal = Journal.open(path, segment_bytes=1 << 20, node_uid=1)
    list(journal.recover())
    journal.start(lambda: (RecordType.DICTIONARY, 1, (b"d",)))
    for n in range(count):
        kind = SENT if rng.random() < 0.9 else RecordType.DELIVERED
        events = 1 if rng.random() < 0.95 else 3
        journal.append(kind, events, (b"%d" % n, bytes(rng.randint(0, 300))))
        if rng.random() < 0.3:
            journal.commit()
    journal.commit()
    journal.close()
    return segment_file(path, 1)


def told(path, runs_of):
    """All that a boot is told, as single records, and the damage that ends it."""
    found, runs = [], 0
    try:
        journal = Journal.open(path, segment_bytes=1 << 20, node_uid=1)
        for record in journal.recover(runs_of):
            runs += record[1] & RUN != 0
            found += [(*one[:3], bytes(one[3]), one[4]) for one in singly([record])]
        end = journal.last_lsn
    except StoreCorrupt as error:
        end = str(error)
    finally:
        journal.close()
    return (found, end), runs


@pytest.mark.parametrize("seed", range(12))
def test_in_runs_the_same_is_read_and_the_same_is_damaged(tmp_path, monkeypatch, seed):
    """Windows of a few records, so that runs end at theirs; a byte changed anywhere."""
    rng = random.Random(seed)
    file = written(tmp_path, rng)
    if seed % 3:
        data = bytearray(file.read_bytes())
        data[rng.randrange(64, 20_000)] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    shorten_runs(monkeypatch)
    monkeypatch.setattr(segment_walk, "WINDOW_BYTES", rng.choice((700, 4096, 1 << 22)))
    copy = file.read_bytes()
    in_runs, runs = told(tmp_path, SENT)
    file.write_bytes(copy)  # a boot cuts a torn end off
    one_by_one, none = told(tmp_path, 0)
    assert in_runs == one_by_one
    assert runs or seed % 3
    assert none == 0
