"""Windows: a history in pieces that are read one after the other."""

from itertools import pairwise

import pytest
from history_records import append, message, open_journal, sent_record

from hms.history import end_offset, first_offset, reading
from hms.history.reading import windows


@pytest.fixture
def store(tmp_path):
    """A log of several segments."""
    journal = open_journal(tmp_path / "store", segment_bytes=8192)
    for i in range(40):
        append(journal, sent_record([message(body=bytes(600))] * 3, first_id=1 + 3 * i))
    journal.close()
    return tmp_path / "store"


@pytest.mark.parametrize("window_bytes", [1, 20_000, 10**9])
@pytest.mark.parametrize("window_offsets", [7, 10**6])
@pytest.mark.parametrize("skipped", [0, 5, 50])
def test_windows_cover_everything_once_and_in_order(
    store, monkeypatch, window_bytes, window_offsets, skipped
):
    """A gap between two of them would be lost messages, an overlap messages twice."""
    monkeypatch.setattr(reading, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(reading, "WINDOW_OFFSETS", window_offsets)
    first, until = first_offset(store) + skipped, end_offset(store)
    found = windows(store, first, until)

    assert (found[0][0], found[-1][1]) == (first, until)
    assert all(a < b for a, b in found)
    assert all(left[1] == right[0] for left, right in pairwise(found))


def test_small_segments_share_a_window(store, monkeypatch):
    """Each window is a job of Spark, which costs more than a small segment."""
    whole = (first_offset(store), end_offset(store))
    monkeypatch.setattr(reading, "WINDOW_BYTES", 1)
    alone = len(windows(store, *whole))
    monkeypatch.setattr(reading, "WINDOW_BYTES", 20_000)

    assert 1 < len(windows(store, *whole)) < alone


def test_nothing_left_is_no_window(store):
    """A run may have come to its end just before it died."""
    assert windows(store, end_offset(store), end_offset(store)) == []
