"""The log, its retention and the archive where they meet: none may take another's word for a store
that is not the one that was meant."""

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from hms.engine.admin.views import describe_queue
from hms.errors.catalogue import ArchiveError, HistoryError
from hms.history.archive import _Run
from hms.history.archive_mark import Mark, write_mark
from hms.history.archive_place import LocalPlace
from hms.history.archive_read import archived_until
from hms.history.archive_write import HASHED
from hms.history.manifest import Manifest, store_manifest
from hms.history.planning import plan
from hms.history.reports.audit import _count
from hms.history.scope import Scope
from hms.history.segments import sealed
from hms.history.stream import HmsStreamReader
from hms.wire.packed_messages import ROW, pack_messages
from tests.integration.history_rig import batch, begin, write
from tests.support.journal_node import JournalNode
from tests.unit.history.test_history_archived import churn, history_numbers, life


def filled(path, batches, count=100, node_uid=1):
    """A log of several segments of 64 KiB."""
    journal = begin(path, node_uid=node_uid)
    for i in range(batches):
        write(journal, batch(1 + i * count, count))
    journal.close()
    return path


def archived(place, store, **other):
    """A manifest that has all that a store has sealed."""
    last = sealed(store)[-1]
    found = Manifest(1, 1, 1, last.until_offset, last.number + 1)
    store_manifest(place, msgspec.structs.replace(found, **other))


def run_over(place, store, *, allow_gap=False):
    return _Run(None, str(store), place, allow_gap, lambda _: None)


def test_a_mark_of_the_store_before_lets_nothing_go(tmp_path):
    """Who empties a store's directory leaves the mark; its numbers say nothing of the new log."""
    write_mark(tmp_path, Mark("/archive", 987_654, 40))
    node = life(tmp_path, history_bytes_max=0, is_archive_required=True)
    churn(node, 200)
    node.close()

    kept = history_numbers(tmp_path)
    assert kept[0] == 1
    assert len(kept) > 2


def test_an_archive_goes_on_behind_what_it_has(tmp_path):
    """The check of a store that is another must not refuse the right one."""
    store, place = filled(tmp_path / "store", 30), LocalPlace("a", tmp_path / "archive")
    archived(place, store)

    assert run_over(place, store)._manifest.until_offset == sealed(store)[-1].until_offset


def test_a_store_that_was_begun_anew_is_not_added_to_the_archive_of_the_old_one(tmp_path):
    """The same node has the same number in its new store: its first messages would count as
    archived, and the node would let them go."""
    old = filled(tmp_path / "old", 30)
    new = filled(tmp_path / "new", 60, 70)
    place = LocalPlace("a", tmp_path / "archive")
    archived(place, old)

    with pytest.raises(ArchiveError, match="begun anew"):
        run_over(place, new)


def test_the_archive_of_the_store_before_does_not_stand_for_this_log(tmp_path):
    """A mark that was left behind would show another log's rows, and hide those that are there."""
    old, new = filled(tmp_path / "old", 30), filled(tmp_path / "new", 60, 70)
    where = str(tmp_path / "archive")
    archived(LocalPlace(where, tmp_path / "archive"), old)
    write_mark(old, Mark(where, 1, 1))
    write_mark(new, Mark(where, 1, 1))

    assert plan(old, Scope())
    assert plan(new, Scope(archive="none"))
    with pytest.raises(ArchiveError, match="of another store"):
        plan(new, Scope())
    with pytest.raises(ArchiveError, match="of another store"):
        archived_until(new)


def follow(store):
    return HmsStreamReader(str(store), Scope(), None, is_latest=False)


def test_a_stream_does_not_go_on_in_the_log_of_another_node(tmp_path):
    """A longer log has the offset of the checkpoint too: rows would be left out in silence."""
    one, other = filled(tmp_path / "one", 5), filled(tmp_path / "other", 30, node_uid=2)
    at = follow(one).reportLatestOffset()

    with pytest.raises(HistoryError, match="of another store"):
        follow(other).latestOffset(at, ReadAllAvailable())
    with pytest.raises(HistoryError, match="of another store"):
        follow(other).partitions(follow(one).initialOffset(), at)


def test_a_checkpoint_that_names_no_node_still_holds(tmp_path):
    """A query that was begun before offsets named the node must go on."""
    store = filled(tmp_path / "store", 5)
    end = follow(store).latestOffset({"offset": 1}, ReadAllAvailable())

    assert len(follow(store).partitions({"offset": 1}, end)) == 1


def test_the_proof_of_the_archive_covers_who_took_a_publication():
    """The names of subscriptions stand in no head: unproved, they could change unseen."""
    assert "subscriptions" in HASHED


def test_the_audit_counts_messages_that_wait_for_their_time(tmp_path):
    """A delayed message would be reported as lost by the node that keeps it."""
    node = JournalNode(tmp_path)
    node.open_client()
    delayed = pack_messages([(ROW.pack(0, 1, 0, 60_000, 4, 0, 0, 0), b"", b"x")])
    said = {"count": 1, "is_persistent": True, "pack": memoryview(delayed)}
    node.run(lambda fx, now: node.engine.send(1, 5, 1, 1, now_ms=now, fx=fx, **said))
    node.publish(2, [b"y"])
    shown = describe_queue(node.engine.state.queues["orders"])
    node.close()

    assert shown["delayed"] == 1
    assert _count(shown) == 2
