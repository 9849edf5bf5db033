"""hms store probe: what a disk loses at a power cut, a node at a kill, and a store with a bit."""

import json
import random
import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.doctor.damage_probe import damage
from hms.boot.doctor.kill_probe import Books, kill
from hms.boot.doctor.witness import FOLDER, Witness, ask, examined, write
from hms.errors.catalogue import StoreLocked, StoreUnavailable
from hms.store.journal import Journal
from tests.crash.legal import Legal
from tests.crash.recording import Noted, RecordingDisk

RUN = "0123456789abcdef"
LOG = Path("/probe")
NUMBERS, SEGMENT = 12, 4096


def power_cuts(disk, chance, most=6):
    """What may lie on the disk at each place of its trace, and what the witness knew by then."""
    legal, confirmed = Legal(disk), 0
    write(LOG, RUN, NUMBERS, lambda number: disk.note("told", number), disk, SEGMENT)
    for step in disk.steps:
        legal.apply(step)
        if isinstance(step, Noted):
            confirmed = step.value
        else:
            for state in legal.states(chance, most):
                yield RecordingDisk(state), confirmed


def judged(disk, confirmed):
    """What is told of it; a power cut before the first segment was there is not confirmed."""
    try:
        return examined(LOG, RUN, confirmed, disk)
    except StoreUnavailable:
        return {"is_good": confirmed == 0, "lost": confirmed, "damaged": []}


def test_a_disk_that_keeps_what_it_synced_loses_no_confirmed_number():
    """Whatever of the rest it keeps, in whatever order: what always complains is not read."""
    found = [judged(*one) for one in power_cuts(RecordingDisk(), random.Random(1))]
    assert len(found) > 200
    assert [one for one in found if not one["is_good"]] == []


def test_a_disk_whose_syncs_do_nothing_is_found_at_the_power_cut(monkeypatch):
    """The method of the power plug: the numbers that it had confirmed are gone."""
    for sync in ("fdatasync", "fsync", "fsync_dir"):
        monkeypatch.setattr(RecordingDisk, sync, lambda _self, _what: None)
    found = [judged(*one) for one in power_cuts(RecordingDisk(), random.Random(1))]
    assert any(one["lost"] for one in found)
    assert any(one["damaged"] for one in found)


def test_records_of_another_run_do_not_count(tmp_path):
    """A folder that was copied from another machine proves nothing."""
    write(tmp_path / "log", RUN, 3, lambda _number: None)
    assert examined(tmp_path / "log", RUN, 3)["is_good"]
    assert examined(tmp_path / "log", RUN, 4)["lost"] == 1
    assert examined(tmp_path / "log", RUN[::-1], 3)["out_of_order"] == 3


@pytest.fixture
def witness(tmp_path):
    """One that listens."""
    with Witness("127.0.0.1", 0, tmp_path / "witness.txt") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def probe(*words, code=0):
    done = CliRunner().invoke(main, ["store", "probe", *map(str, words), "--json"])
    assert done.exit_code == code, f"{done.output} {done.exception}"
    return json.loads(done.stdout) if code in (0, 3, 4) else done.output


def test_an_operator_probes_with_a_witness(tmp_path, witness):
    """Written and told here, asked for after the power is back."""
    disk = tmp_path / "disk"
    disk.mkdir()
    at = ["--witness", f"127.0.0.1:{witness.port}"]
    assert probe(disk, "check", *at, code=3)["verdict"] == "there is no run"
    done = probe(disk, "honesty", "--count", 20, *at)
    assert ask(("127.0.0.1", witness.port), done["run"]) == 20
    assert probe(disk, "check", *at)["lost"] == 0
    folder = disk / f"{FOLDER}{done['run']}"
    for file in folder.glob("*.log"):
        file.unlink()
    write(folder, done["run"], 15, lambda _number: None)
    said = probe(disk, "check", *at, code=4)
    assert (said["lost"], said["details"][0]["found"]) == (5, 15)
    with Witness("127.0.0.1", 0, tmp_path / "witness.txt") as again:
        assert again.numbers == {done["run"]: 20}


def test_a_witness_takes_no_nonsense(witness):
    """It listens to a network."""
    for said in ({}, {"run": "../x", "number": 1}, {"run": RUN, "number": "1"}, {"run": 7}):
        assert "fault" in witness.heard(said)
    assert witness.numbers == {}
    assert witness.heard({"run": RUN}) == {"number": 0}


def test_a_witness_that_is_gone_is_named(tmp_path, witness):
    """Nothing is written then."""
    witness.shutdown()
    witness.server_close()
    said = probe(tmp_path, "honesty", "--witness", f"127.0.0.1:{witness.port}", code=1)
    assert "refused" in said
    assert list(tmp_path.glob(f"{FOLDER}*")) == []


def test_a_node_that_is_killed_has_balanced_books(tmp_path):
    """Each number that was confirmed is received once."""
    said, is_good = kill(tmp_path, 2, seed=7)
    assert is_good, said
    assert (said["kills"], said["lost"], said["doubled"], said["unexpected"]) == (2, 0, 0, 0)
    assert said["confirmed"] >= 40
    assert list(tmp_path.iterdir()) == []


def test_books_name_what_is_lost_doubled_or_never_sent():
    """A balance that is always good proves nothing."""
    books = Books(attempted=4, confirmed={1, 2, 3}, committed={1})
    for number in (1, 2, 9):
        books.received(number)
    said = books.balance()
    assert (said["lost"], said["doubled"], said["unexpected"]) == (1, 1, 1)
    assert said["verdict"] == "the books are not balanced"


def test_each_flipped_bit_of_a_store_is_detected(tmp_path):
    """In a copy; the store is as it was."""
    store = tmp_path / "store"
    write(store, RUN, 200, lambda _number: None)
    before = {file.name: file.read_bytes() for file in store.iterdir()}
    said, is_good = damage(store, 150, seed=3)
    assert is_good, said
    assert (said["flipped"], said["detected"]) == (150, 150)
    assert {file.name: file.read_bytes() for file in store.iterdir()} == before
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


def test_a_bit_that_nobody_sees_is_named(tmp_path, monkeypatch):
    """Were the examination blind, the probe would say so."""
    store = tmp_path / "store"
    write(store, RUN, 20, lambda _number: None)
    from hms.boot.doctor import damage_probe

    sound = damage_probe.examine(store)
    monkeypatch.setattr(damage_probe, "examine", lambda _copy: sound)
    said, is_good = damage(store, 10, seed=3)
    assert not is_good
    assert len(said["missed"]) == 10


def test_a_store_in_use_or_without_a_log_is_not_probed(tmp_path):
    """A copy of what somebody writes would be torn."""
    with pytest.raises(StoreUnavailable):
        damage(tmp_path, 10)
    store = tmp_path / "store"
    write(store, RUN, 3, lambda _number: None)
    journal = Journal.open(store, segment_bytes=1 << 20, node_uid=1)
    with pytest.raises(StoreLocked):
        damage(store, 10)
    journal.close()
    shutil.rmtree(store)
