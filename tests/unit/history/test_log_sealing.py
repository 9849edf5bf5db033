"""Sealing: an operator has the log begin a new segment; an archive then has all before it."""

import json

import pytest
from click.testing import CliRunner

from hms.errors.catalogue import StoreFull, StoreLocked
from hms.history import archive_command
from hms.history.archive_check import new_manifest
from hms.history.manifest import begins_where_it_ends
from hms.history.segments import Tail, sealed, survey, unwritten
from hms.store.journal.segment_manager import LogLimits
from hms.wire.operations import Nothing
from tests.support.journal_node import JournalNode
from tests.unit.history.test_store_identity import SEGMENT, SETTINGS, lived


def opened(path, **how):
    node = JournalNode(path, SETTINGS, SEGMENT, **how)
    node.open_client()
    return node


def seal(node):
    """What the operator is told."""
    answers = []
    node.run(lambda fx, _: answers.append(node.broker._requests.segments.operate(Nothing(), fx)))
    return answers[0]["offset"]


def test_a_seal_finishes_the_segment_that_is_written(tmp_path):
    """What was confirmed before must be in a segment that nobody writes any more."""
    node = opened(tmp_path)
    node.publish(1, [b"before"])
    last, before = node.store.last_lsn, len(survey(tmp_path))
    offset = seal(node)

    assert offset == last + 1 == sealed(tmp_path)[-1].until_offset
    assert len(survey(tmp_path)) == before + 1
    node.publish(2, [b"behind"])
    node.close()
    assert [row[1] for row in opened(tmp_path).waiting()] == [b"before", b"behind"]


def test_a_seal_waits_until_the_next_segment_is_prepared(tmp_path):
    """Without one a full disk would leave no place for acknowledgements (P10)."""
    node = opened(tmp_path)
    ask = node.broker._requests.segments.operate
    node.broker._change(lambda fx, _: ask(Nothing(), fx))
    with pytest.raises(StoreFull, match="ask again in a moment"):
        node.broker._change(lambda fx, _: ask(Nothing(), fx))
    node.step()
    node.store.maintain()

    assert seal(node) == sealed(tmp_path)[-1].until_offset


def test_a_seal_leaves_a_log_with_a_limit_its_room_for_cleaning(tmp_path):
    """Segments that are left half empty would fill the log, and nothing could be moved then."""
    node = opened(tmp_path, limits=LogLimits(log_bytes_max=8 * SEGMENT))
    while len(survey(tmp_path)) < 4:
        seal(node)
        node.store.maintain()
    with pytest.raises(StoreFull):
        seal(node)

    node.publish(1, [bytes(500)] * 8)
    assert len(node.waiting()) == 8


def all_of(store):
    """The manifest of an archive that has all of a stopped store."""
    newest, empty = unwritten(store), new_manifest(str(store))
    return type(empty)(
        1, empty.node_uid, empty.first_offset, newest.until_offset, newest.number + 1
    )


def test_the_newest_segment_of_a_stopped_store_is_finished(tmp_path):
    """A store that is put away for good could else never be archived to its end."""
    lived(tmp_path, 3, 1)
    manifest = all_of(tmp_path)
    assert manifest.until_offset == Tail(tmp_path).end()
    assert begins_where_it_ends(tmp_path, manifest)

    lived(tmp_path, 3, 1000)
    assert (manifest.until_segment, manifest.until_offset) in [
        (one.number, one.first_lsn) for one in survey(tmp_path)
    ]
    assert begins_where_it_ends(tmp_path, manifest)


def test_an_archive_of_all_of_another_log_is_not_taken_for_this_ones(tmp_path):
    """The end of a log must be the very one, not just some end."""
    lived(tmp_path, 3, 1)
    manifest = all_of(tmp_path)
    for wrong in (-1, 1):
        moved = type(manifest)(
            1, manifest.node_uid, 1, manifest.until_offset + wrong, manifest.until_segment
        )
        assert not begins_where_it_ends(tmp_path, moved)


def test_the_segment_that_a_node_writes_is_never_taken_for_finished(tmp_path):
    """Offsets would be passed over when the node goes on in it."""
    node = opened(tmp_path)
    with pytest.raises(StoreLocked):
        unwritten(tmp_path)
    node.close()

    assert unwritten(tmp_path) is not None


def test_the_command_says_from_where_the_log_goes_on(monkeypatch):
    """An operator archives right behind it, and a script compares the offset."""
    monkeypatch.setattr(archive_command, "seal", len)
    said = CliRunner().invoke(archive_command.seal_command, ["--connect", "tcp://a:1"])
    told = CliRunner().invoke(archive_command.seal_command, ["--connect", "tcp://a:1", "--json"])

    assert "in a new segment from offset 9;" in said.output
    assert json.loads(told.output) == {"offset": 9}


def test_all_of_a_log_is_taken_once_and_not_again_and_again(tmp_path):
    """Each turn would leave a segment half empty."""
    words = ["--path", str(tmp_path), "--all", "--continuous"]
    told = CliRunner().invoke(archive_command.archive_command, words)

    assert told.exit_code == 2
    assert "--all is for one run" in told.output
