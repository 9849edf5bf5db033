"""hms store verify and hms store salvage, as the operator at night sees them."""

import json

import pytest
from click.testing import CliRunner
from journal_support import booted, contents, flip, opened, recovered, segments

from hms.boot.cli import main
from hms.records import Placement, Sent, sent
from hms.store.journal.format import Author, pack_segment_header

KIND_OF_NO_MESSAGE = 203
START = 64 + 48  # segment header, dictionary


@pytest.fixture
def store(tmp_path):
    """A store of several segments; message i has the id 0x2000 + i."""
    journal, _ = booted(tmp_path / "store")
    for i in range(60):
        place = [Placement(1, b"")]
        record = sent(Sent(1, 0x2000 + i, 1000, 9, 0, i + 1, 1, False, place, bytes(150), i))  # noqa: FBT003
        journal.append(record.type, record.events, record.parts)
        journal.commit()
    journal.close()
    return tmp_path / "store"


@pytest.fixture
def hms(tmp_path, monkeypatch):
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, **rest: CliRunner().invoke(main, ["store", *map(str, words)], **rest)


def tear(store):
    """A crash in the middle of the last write."""
    file = segments(store)[-1]
    data = file.read_bytes().rstrip(b"\0")
    file.write_bytes(data[:-100])


def test_a_good_a_torn_and_a_damaged_store_have_three_exit_codes(hms, store):
    """A script that guards the backup must tell them apart without reading."""
    good = hms("verify", store)
    tear(store)
    torn = hms("verify", store)
    flip(segments(store)[1], START + 100)
    damaged = hms("verify", store)

    assert [said.exit_code for said in (good, torn, damaged)] == [0, 3, 4]
    assert "is GOOD: " in good.output
    assert "nothing confirmed is lost" in torn.output
    assert "is DAMAGED: " in damaged.output


def test_an_upgrade_says_what_is_in_the_way_and_changes_nothing(hms, store):
    """Who installs a release asks before, and a script by the exit code."""
    file = segments(store)[1]
    sound = file.read_bytes()
    ready = hms("upgrade", store)
    flip(file, START + 100)
    damaged = hms("upgrade", store)
    unlooked = hms("upgrade", store, "--check")
    file.write_bytes(pack_segment_header(Author(77, 1, 60_000), 2, 1, 1) + sound[64:])
    foreign = hms("upgrade", store, "--json")

    assert [s.exit_code for s in (ready, damaged, unlooked, foreign)] == [0, 1, 0, 1]
    assert "there is nothing to raise" in ready.output
    assert str(file) in damaged.output
    assert json.loads(foreign.output)["faults"] == ["1 segments have format 60000"]


def test_a_torn_end_is_told_with_its_bytes_and_cut_by_the_next_boot(hms, store):
    """What verify promises, the boot must do."""
    before = recovered(store)
    whole = segments(store)[-1].read_bytes()
    flip(segments(store)[-1], len(whole.rstrip(b"\0")) - 1)

    said = json.loads(hms("verify", store, "--json").output)

    assert said["verdict"] == "torn"
    assert said["torn"]["bytes"] > 0
    assert said["torn"]["file"] == str(segments(store)[-1])
    assert recovered(store) == before[:-1]
    assert hms("verify", store).exit_code == 0


def test_damage_is_named_with_its_meaning_and_the_cure(hms, store):
    """At night nobody looks up what a sequence number is."""
    file = segments(store)[1]
    flip(file, START + 100)
    before = contents(store)

    said = hms("verify", store).output

    assert f"DAMAGE in {file} at offset {START}, from sequence number" in said
    assert "does not boot" in said
    assert "backup" in said
    assert f"hms store salvage {store} --to" in said
    assert contents(store) == before


def test_damage_that_only_the_history_has_does_not_sound_like_lost_messages(hms, store):
    """Half a night must not go into a file that no message waits in."""
    (first, *_) = segments(store)
    kept = first.with_suffix(".history")
    first.rename(kept)
    _begin_later(store)
    flip(kept, START + 100)

    said = hms("verify", store)

    assert said.exit_code == 4
    assert "Only the history needs this file" in said.output
    assert recovered(store)


def _begin_later(store):
    """A boot whose header says that the first segment is not needed."""
    journal = opened(store)
    journal._segments.found, found = (lambda *_: None), journal._segments.found
    kept = store / f"{1:016d}.history"
    kept.rename(kept.with_suffix(".log"))
    list(journal.recover())
    found(journal._recovery.segments, 2, {})
    journal.start(lambda: (11, 1, (b"dictionary",)))
    journal.close()
    kept.with_suffix(".log").rename(kept)


def test_a_store_in_use_is_told_with_the_process_and_not_called_damaged(hms, store):
    """The end of a running node's log changes while it is read."""
    journal, _ = booted(store)
    try:
        said = hms("verify", store)
        refused = hms("salvage", store, "--to", store.with_name("new"), "--yes")
    finally:
        journal.close()

    assert said.exit_code == 0
    assert "has it in use" in said.output
    assert refused.exit_code == 1
    assert "HMS-5001" in refused.output


def test_salvage_tells_what_it_drops_asks_and_leaves_the_damaged_store_alone(hms, store):
    """Nothing is dropped that the operator has not read and agreed to."""
    flip(segments(store)[1], START + 100)
    before, new = contents(store), store.with_name("new")

    refused = hms("salvage", store, "--to", new, input="n\n")
    assert refused.exit_code == 1
    assert not new.exists()

    said = hms("salvage", store, "--to", new, input="y\n")
    assert said.exit_code == 0
    assert "sequence number 18 (1 record)" in said.output
    assert "ids between 00000000200e and 000000002010" in said.output
    assert "hms boot --warm" in said.output
    assert contents(store) == before
    assert hms("verify", new).exit_code == 0
    assert len(recovered(new)) == 59


def test_salvage_makes_a_new_directory_and_nothing_else(hms, store):
    """A store that stands there already may be the good one."""
    for place in (store.with_name("there"), store / "inner"):
        if place.parent != store:
            place.mkdir()
        said = hms("salvage", store, "--to", place, "--yes")
        assert said.exit_code == 1
        assert "HMS-5006" in said.output
    assert sorted(file.name for file in store.iterdir() if file.is_dir()) == []


def test_a_salvage_that_ends_half_way_leaves_no_store_behind(hms, store, monkeypatch):
    """Half a store that boots would have lost the other half in silence."""
    new = store.with_name("new")

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hms.store.journal.store_rebuild.write_all", no_space)
    said = hms("salvage", store, "--to", new, "--yes")

    assert said.exit_code == 1
    assert "No space left" in said.output
    assert not new.exists()


def test_salvaging_a_good_store_drops_nothing(hms, store):
    """And says so, before anybody worries."""
    said = hms("salvage", store, "--to", store.with_name("new"), "--yes")

    assert "nothing is dropped" in said.output
    assert recovered(store.with_name("new")) == recovered(store)


def test_a_path_without_a_store_is_refused(hms, tmp_path):
    """A mistyped path must not look like a good, empty store."""
    (tmp_path / "empty").mkdir()
    for path in ("none", "empty"):
        said = hms("verify", path)
        assert said.exit_code == 1
        assert "HMS-5006" in said.output


def test_the_store_of_the_configuration_is_taken_without_a_path(hms, tmp_path):
    """The operator knows the node, not where its files lie."""
    CliRunner().invoke(main, ["config", "init"])

    said = hms("verify")

    assert said.exit_code == 1
    assert str(tmp_path) in said.output
    assert hms("verify", "--connect", "tcp://127.0.0.1:1").exit_code == 2


def test_a_store_in_a_database_is_not_looked_for_in_a_folder(hms, tmp_path):
    """It said that there is no store, of a node whose messages are safe in PostgreSQL."""
    config = tmp_path / "hms.conf"
    config.write_text('[node.n1]\nlisten = ["tcp://127.0.0.1:7700"]\ndatabase = "sqlite:m.db"\n')

    said = hms("verify", "--config", config)

    assert said.exit_code == 1
    assert "database" in said.output
