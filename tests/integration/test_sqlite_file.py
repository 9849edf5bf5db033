"""The file of a store on SQLite: taken away, replaced, and on a disk that is full."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hms.errors.catalogue import StoreFailed
from hms.records import RecordType
from hms.store.database import sqlite, upkeep
from tests.support.store_place import Place, append, batch, happened


@pytest.fixture
def place(tmp_path):
    return Place("sqlite", tmp_path)


@pytest.fixture
def store(place):
    found, _ = place.started()
    yield found
    found.close()


def _replace(path):
    shutil.copy(path, f"{path}.new")
    Path(f"{path}.new").replace(path)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "was removed or moved"),
        (lambda path: path.rename(f"{path}.old"), "was removed or moved"),
        (_replace, "was replaced"),
    ],
    ids=["removed", "moved", "replaced"],
)
def test_what_only_a_file_without_a_name_has_is_not_confirmed(store, place, suffix, damage, said):
    """SQLite wrote on into it: everything from then on was confirmed, and gone at the next boot."""
    damage(place.folder / f"store.db{suffix}")
    append(store, batch(0, 1, b"x"))

    with pytest.raises(StoreFailed, match=said):
        store.commit()
    assert said in store.sends_refused()


def _with_free(monkeypatch, free):
    monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _path: SimpleNamespace(free=free()))


def test_a_burst_of_messages_does_not_use_up_what_is_kept_for_acknowledgements(
    store, place, monkeypatch
):
    """It was looked every 5 s: 1,023 messages of 100,000 bytes left no byte."""
    file = place.folder / "store.db-wal"
    monkeypatch.setattr(upkeep, "LOOK_BYTES", 100_000)
    _with_free(monkeypatch, lambda: sqlite.RESERVE_BYTES + 500_000 - file.stat().st_size)
    taken = 0
    while store.sends_refused() is None and taken < 100:
        append(store, batch(taken, 1, bytes(20_000)))
        store.commit()
        taken += 1

    assert taken < 40
    assert "are reserved" in store.sends_refused()


def test_what_was_consumed_makes_room_on_a_full_disk(store, monkeypatch):
    """The file never becomes smaller: a drained node refused everything for good."""
    monkeypatch.setattr(sqlite, "RESERVE_BYTES", 1 << 20)
    _with_free(monkeypatch, lambda: 1 << 19)
    monkeypatch.setattr("hms.store.database.departed_messages.READABLE_S", 0.0)
    append(store, batch(0, 50, bytes(20_000)))
    store.commit()
    store.maintain()
    assert "are reserved" in store.sends_refused()

    append(store, happened(RecordType.ACKNOWLEDGED, 0, 50))
    store.commit()
    store.maintain()
    store._upkeep.pause(0)
    store.maintain()

    assert store.sends_refused() is None
    _with_free(monkeypatch, lambda: 1 << 10)
    store.maintain()
    assert "are reserved" in store.sends_refused()
