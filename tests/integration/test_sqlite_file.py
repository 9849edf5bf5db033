"""The file of a store on SQLite: not whole at boot, taken away, replaced, and on a full disk."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from hms.errors.catalogue import StoreFailed, StoreNotWhole
from hms.records import RecordType
from hms.store.database import sqlite, sqlite_file, upkeep
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
    assert store.sends_refused() is None  # nobody is told that the store is full


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


def _empty(path):
    path.write_bytes(b"")


def _half(path):
    """Its tables' last pages are gone; what is read first is there."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 8192 * 4096)


def _stub(path):
    with path.open("r+b") as file:
        file.truncate(60)


def _text(path):
    path.write_text("orders that came in by mail\n" * 400)


def _database(path):
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as session:
        session.execute("CREATE TABLE recipe (name TEXT)")


def _scribbled(path):
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"x" * 3000)


DAMAGES = {
    _empty: "has no bytes",
    _half: r"\d+ of \d+ bytes|malformed",
    _stub: "the file has 60 bytes",
    _text: "no SQLite database",
    _database: "has no table t_migration; it has 1 others, as recipe",
    _scribbled: "malformed",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_file_that_is_not_what_a_node_left_is_refused(place, damage):
    """One of no bytes was an empty store, in which all that had been confirmed was gone."""
    store, _ = place.started()
    append(store, batch(0, 20, bytes(2000)))
    store.commit()
    store.close()
    path = place.folder / "store.db"
    whole = path.read_bytes()
    damage(path)
    found = path.read_bytes()

    with pytest.raises(StoreNotWhole, match=DAMAGES[damage]) as caught:
        place.open()
    assert "Restore the file" in str(caught.value)
    assert path.read_bytes() == found

    path.write_bytes(whole)
    assert len(place.numbers()) == 20


def test_a_wal_without_its_file_is_refused(place):
    """SQLite throws it away: what was confirmed since the last checkpoint is in it alone."""
    store, _ = place.started()
    append(store, batch(0, 3, b"x"))
    store.commit()
    path, wal = place.folder / "store.db", place.folder / "store.db-wal"
    kept = path.read_bytes(), wal.read_bytes()
    store.close()
    for one, content in zip((path, wal), kept, strict=True):
        one.write_bytes(content)  # as a kill leaves them
    path.unlink()

    with pytest.raises(StoreNotWhole, match="it is gone, and its -wal"):
        place.open()
    assert wal.read_bytes() == kept[1]

    path.write_bytes(kept[0])
    assert len(place.numbers()) == 3


@pytest.mark.parametrize("moment", ["migration_table", "statements_from"])
def test_a_crash_while_the_file_is_made_leaves_none_or_a_store(place, monkeypatch, moment):
    """The file has its name only when it has a table; the others are one transaction."""
    for module in (sqlite, sqlite_file):
        if hasattr(module, moment):
            monkeypatch.setattr(module, moment, _no_more)
    with pytest.raises(ZeroDivisionError):
        place.open()
    monkeypatch.undo()

    assert place.numbers() == []


def _no_more(*_):
    raise ZeroDivisionError
