"""What the node lets go of beside readers and an archive: nothing that is not archived, and never a
false report of damage."""

import json
from pathlib import Path

import pytest

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import HistoryGone, StoreCorrupt
from hms.history import scan
from hms.history.archive_mark import Mark, write_mark
from hms.history.events import Event
from hms.history.scope import Scope
from hms.history.segments import records_of, sealed
from hms.store.journal.archive_mark import ARCHIVE_MARK
from hms.store.journal.segment_manager import LogLimits
from tests.support.journal_node import JournalNode

SEGMENT = 1 << 16
BUSY = 90
ALL = Event._fields
SETTINGS = EngineSettings(
    message_bytes_max=10_000,
    transaction_bytes_max=16_000,
    frames_in_flight_max=4,
    destinations=tuple(
        DestinationSettings(kind, name)
        for kind, name in (("queue", "orders"), ("queue", "busy"), ("topic", "news"))
    ),
)


def life(path, **limits):
    node = JournalNode(path, SETTINGS, SEGMENT, limits=LogLimits(**limits))
    node.open_client()
    node.engine.open_producer(1, BUSY, 1, "queue", "busy")
    node.consume(BUSY, 8, name="busy")
    return node


def churn(node, count, first=1000):
    """Batches of eight messages that come and go."""
    for i in range(count):
        node.now_ms += 1000
        node.publish(first + i * 8, [bytes(500)] * 8, producer=BUSY)
        while out := node.credit(0, BUSY):
            node.acknowledge(out, BUSY)
            node.credit(len(out), BUSY)


def history_numbers(path):
    return sorted(int(file.stem) for file in path.glob("*.history"))


@pytest.mark.parametrize("history_bytes_max", [0, SEGMENT])
def test_what_no_archive_has_is_kept_beyond_every_limit(tmp_path, history_bytes_max):
    """An archive run that is late must not find a hole."""
    node = life(tmp_path, history_bytes_max=history_bytes_max, is_archive_required=True)
    churn(node, 200)
    node.close()

    kept = history_numbers(tmp_path)
    assert kept[0] == 1
    assert len(kept) > 2


def test_what_an_archive_has_goes_by_the_limits(tmp_path):
    """The disk must not fill up with what lies elsewhere, verified."""
    node = life(tmp_path, history_bytes_max=0, is_archive_required=True)
    churn(node, 120)
    kept = history_numbers(tmp_path)
    begins = {segment.number: segment.first_offset for segment in sealed(tmp_path)}
    write_mark(tmp_path, Mark("/archive", begins[kept[-1]], kept[-1]))
    churn(node, 120, first=100_000)
    node.close()

    assert history_numbers(tmp_path)[0] == kept[-1]


def test_a_mark_that_cannot_be_read_lets_nothing_go(tmp_path):
    """Half a file, or one of another kind, is no proof that anything is archived."""
    node = life(tmp_path, history_bytes_max=0, is_archive_required=True)
    (tmp_path / ARCHIVE_MARK).write_text(json.dumps({"until_segment": "many"}))
    churn(node, 120)
    node.close()

    assert history_numbers(tmp_path)[0] == 1


def test_a_segment_that_is_used_again_is_gone_and_not_damaged(tmp_path, monkeypatch):
    """A node without a history fills the file with zeros while a reader has it open."""
    monkeypatch.setattr("hms.store.journal.segment_walk.WINDOW_BYTES", 4096)
    node = life(tmp_path, history_bytes_max=0)
    churn(node, 30)
    part = scan.plan(tmp_path, Scope())[0]
    reading = records_of(part.segment)
    seen = next(reading)
    churn(node, 200, first=100_000)
    with pytest.raises(HistoryGone) as caught:
        list(reading)
    node.close()

    assert seen[0] == part.segment.first_offset < caught.value.first


def test_a_segment_that_is_damaged_is_still_called_damaged(tmp_path):
    """Corruption that passes for retention would be silent loss."""
    node = life(tmp_path)
    churn(node, 60)
    node.close()
    part = scan.plan(tmp_path, Scope())[0]
    with Path(part.file).open("r+b") as file:
        file.seek(SEGMENT // 2)
        file.write(b"\xff" * 64)

    with pytest.raises(StoreCorrupt):
        list(scan.read_part(part, Scope(), ALL))


def test_going_on_from_an_offset_that_was_let_go_is_refused(tmp_path):
    """Who reads day after day must hear of the night that is missing."""
    node = life(tmp_path, history_bytes_max=0)
    churn(node, 200)
    node.close()

    with pytest.raises(HistoryGone):
        scan.plan(tmp_path, Scope(first_offset=2))
    assert scan.plan(tmp_path, Scope(first_offset=2, fails_on_loss=False))


def test_a_window_of_time_leaves_out_the_segments_before_and_behind_it(tmp_path):
    """An hour out of a day must not cost reading the day."""
    node = life(tmp_path)
    churn(node, 200)
    node.close()
    every = [
        e for p in scan.plan(tmp_path, Scope()) for b in scan.read_part(p, Scope(), ALL) for e in b
    ]
    middle = every[len(every) // 2].time
    scope = Scope(from_ms=middle, until_ms=middle + 5000)
    parts = scan.plan(tmp_path, scope)
    found = [e for p in parts for b in scan.read_part(p, scope, ALL) for e in b]

    assert len(parts) <= 2 < len(sealed(tmp_path))
    assert found == [e for e in every if middle <= e.time < middle + 5000]
    assert [e.time for e in every] == sorted(e.time for e in every)


def test_what_is_written_and_not_synced_is_synced_before_it_is_shown(tmp_path, monkeypatch):
    """A row that a crash takes back would give its offset to another event."""
    synced = []
    monkeypatch.setattr("os.fdatasync", synced.append)
    node = life(tmp_path)
    churn(node, 2)
    before = len(synced)
    tail = scan.Tail(tmp_path)
    end = tail.end()

    assert len(synced) == before + 1
    assert tail.end() == end == node.store.last_lsn + 1
    assert len(synced) == before + 1
    churn(node, 1, first=50_000)
    assert tail.end() == node.store.last_lsn + 1 > end
    node.close()
