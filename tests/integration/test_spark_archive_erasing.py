"""Erasing from an archive that Spark wrote, wherever a run dies; Spark reads the rest as before."""

import shutil

import msgspec
import pyarrow.parquet as pq
import pytest
from history_rig import begin, fill

from hms.history import archive, read
from hms.history.archive import erase
from hms.history.archive_erasing import erase_archive
from hms.history.archive_place import LocalPlace
from hms.history.erasing import Erasure
from hms.history.manifest import load_manifest, store_manifest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
MARCH = "Month = 3"


@pytest.fixture
def erasure():
    return Erasure(MARCH, [])


@pytest.fixture(scope="module")
def archived(spark, tmp_path_factory):
    """A store of several segments over two days, and its archive beside it."""
    store = tmp_path_factory.mktemp("e") / "store"
    journal = begin(store, segment_bytes=16 * 1024)
    fill(journal, 1, days=(0, 1))
    journal.close()
    archive(spark, store, str(store.parent / "archive"))
    return store


@pytest.fixture
def store(archived, tmp_path):
    """A copy of it, whose mark names the copy of the archive."""
    shutil.copytree(archived.parent, tmp_path / "copy")
    found = tmp_path / "copy" / "store"
    mark = found / "archive.json"
    mark.write_text(mark.read_text().replace(str(archived.parent), str(found.parent)))
    return found


def place_of(store):
    where = str(store.parent / "archive")
    return LocalPlace(where, store.parent / "archive")


def bodies_of(store):
    """Of everything in any file of the archive, named or not."""
    files = (store.parent / "archive").rglob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [(row["offset"], dict(row["long_properties"] or []), row["body"]) for row in rows]


def has_march(store):
    return any(said.get("Month") == 3 for _, said, _ in bodies_of(store))


def test_rows_stay_and_say_nothing(spark, store, erasure):
    """The same offsets, ids and times, blank as the log's reader shows a blank message."""
    where = str(store.parent / "archive")
    before = {row.offset: row for row in read(spark, where).collect()}
    looked = erase(store, erasure, is_dry=True)
    assert has_march(store)
    assert looked.ids
    assert erase(store, erasure, is_dry=False) == looked
    assert not has_march(store)

    after = {row.offset: row for row in read(spark, where).collect()}
    assert after.keys() == before.keys()
    for offset, row in after.items():
        old = before[offset].asDict()
        if old["long_properties"] and old["long_properties"].get("Month") == 3:
            assert row.head.strip(b"\x92\x80\xc4\x0c\0") != old["head"]
            assert row.body == bytes(len(old["body"]))
            assert (row.type, row.long_properties, row.properties) == (None, {}, {})
            assert (row.message_id, row.time) == (old["message_id"], old["time"])
        else:
            assert row.asDict() == old
    assert erase(store, erasure, is_dry=False).ids == frozenset()
    named = {file.name for file in load_manifest(place_of(store)).files}
    assert set(place_of(store).files("data")) == named


class Died(BaseException):
    """The process ends here."""


class DyingPlace(LocalPlace):
    """A place whose process ends at the n-th change."""

    def __init__(self, store, changes):
        super().__init__("archive", store.parent / "archive")
        self.left = changes

    def create(self, name, data):
        self.change()
        super().create(name, data)

    def remove(self, name):
        self.change()
        super().remove(name)

    def change(self):
        self.left -= 1
        if self.left < 0:
            raise Died


def test_a_run_that_dies_at_any_change_is_made_good_by_the_next(store, erasure):
    """Whatever it left, nothing of what was to be erased is in any file behind the next run."""
    died = 0
    while True:
        place = DyingPlace(store, died)
        try:
            erase_archive(place, erasure, is_dry=False)
        except Died:
            died += 1
            assert load_manifest(place_of(store)) is not None
        else:
            break
    assert died > 4
    assert not has_march(store)
    assert erase(store, erasure, is_dry=False).ids == frozenset()


def test_what_a_merge_has_replaced_goes_too_and_a_broken_file_is_told(store, erasure):
    """Files that the manifest still keeps for readers have it as well."""
    place, known = place_of(store), load_manifest(place_of(store))
    first, second, *_ = known.files
    copy = first.name.replace("/0", "/1")
    place.create(copy, place.read(first.name))
    kept = msgspec.structs.replace(known, version=known.version + 1, dropped=[(copy, 1)])
    store_manifest(place, kept)
    place.path(second.name).write_bytes(b"no parquet")
    ids, (fault,) = erase(store, erasure, is_dry=False)
    assert ids
    assert second.name in fault
    assert copy not in place.files("data")
    place.remove(second.name)
    (fault,) = erase(store, erasure, is_dry=False).faults
    assert "it is not there" in fault


def test_an_archive_that_only_spark_can_reach_is_erased_too(spark, store, erasure):
    """By its URL."""
    mark = store / "archive.json"
    where = f"file://{store.parent / 'archive'}"
    mark.write_text(mark.read_text().replace(str(store.parent / "archive"), where))
    assert erase(store, erasure, is_dry=False).ids
    assert not has_march(store)
