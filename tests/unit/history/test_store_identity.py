"""A store's identity: a log that only looks like the continuation of another one is refused."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import ArchiveGap, StoreDiffers
from hms.history.archive_check import checked, new_manifest, own_identity
from hms.history.archive_mark import Mark, write_mark
from hms.history.archive_place import LocalPlace
from hms.history.identity import check_writer, identity_of, writer_before
from hms.history.manifest import Manifest, store_manifest
from hms.history.replay import _begun
from hms.history.scan import plan
from hms.history.scope import Scope
from hms.history.segments import sealed
from hms.history.stream import HmsStreamReader
from hms.history.wanted import Wanted
from hms.records import Identity, Writer
from hms.records.identity import BOOTS_MAX
from hms.store.journal.archive_mark import archived_below
from hms.store.journal.disk import REAL_DISK
from hms.wire.frames import Kind
from hms.wire.structures import Hello, Welcome, decode, encode
from tests.support.journal_node import JournalNode
from tests.support.store_node import StoreNode
from tests.support.store_place import Place

SEGMENT = 1 << 14
SETTINGS = EngineSettings(
    message_bytes_max=4000,
    transaction_bytes_max=6000,
    frames_in_flight_max=4,
    destinations=(DestinationSettings("queue", "orders"), DestinationSettings("topic", "news")),
)


def lived(path, batches, first, **how):
    """A life of a node that takes so many batches."""
    node = JournalNode(path, SETTINGS, SEGMENT, **how)
    node.open_client()
    for n in range(batches):
        node.publish(first + 8 * n, [bytes(500)] * 8)
    node.close()


@pytest.fixture
def store(tmp_path):
    """A store of two lives, the second with sealed segments of its own."""
    lived(tmp_path / "store", 4, 1)
    lived(tmp_path / "store", 12, 1000)
    return tmp_path / "store"


def manifest_of(store, sealed_from_end=1):
    """An archive of all that is sealed, but for the last segments."""
    last = sealed(store)[-sealed_from_end]
    return msgspec.structs.replace(
        new_manifest(str(store)),
        version=1,
        until_offset=last.until_offset,
        until_segment=last.number + 1,
        identity=identity_of(store),
    )


def accepts(manifest, tmp_path, store):
    """Whether an archive with that manifest goes on with a store."""
    place = LocalPlace("archive", tmp_path / "archive")
    return checked(manifest, place, str(store), allow_gap=False) == manifest


@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
def test_a_store_stays_the_same_over_its_boots(store, tmp_path, is_warm):
    """A COLD boot empties the queues and goes on with the log: its archive must go on too."""
    manifest, before = manifest_of(store), identity_of(store)
    lived(store, 3, 5000, is_warm=is_warm)
    now = identity_of(store)

    assert now.store == before.store != b""
    assert list(now.boots)[: len(before.boots)] == list(before.boots)
    assert len(now.boots) == len(before.boots) + 1
    assert accepts(manifest, tmp_path, store)


def test_a_copy_that_went_on_by_itself_is_refused_where_they_part(store, tmp_path):
    """Two logs with one beginning share numbers of segments and offsets; rows would be mixed."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    shared = manifest_of(store)
    for path in (store, copy):
        lived(path, 12, 5000)
    parted = manifest_of(store)

    assert sealed(copy)[-1].until_offset == parted.until_offset
    assert accepts(shared, tmp_path, copy)
    assert accepts(parted, tmp_path, store)
    with pytest.raises(StoreDiffers, match="copy that went on, or was set back"):
        accepts(parted, tmp_path, copy)


def test_another_store_is_refused(store, tmp_path):
    """A directory may be emptied and begun anew under the same name."""
    other = tmp_path / "other"
    lived(other, 4, 1)
    lived(other, 12, 1000)

    assert sealed(other)[-1].until_offset == sealed(store)[-1].until_offset
    with pytest.raises(StoreDiffers, match=r"it is of store .*, this one is"):
        accepts(manifest_of(store), tmp_path, other)


def test_an_archive_goes_on_behind_a_gap_that_is_allowed(store, tmp_path):
    """Behind the gap stands what a later boot wrote, which the archive could not know."""
    manifest, place = manifest_of(store), LocalPlace("archive", tmp_path / "archive")
    for first in (5000, 9000):
        lived(store, 12, first)
    for segment in sealed(store)[:-2]:
        Path(segment.file).unlink()
    with pytest.raises(ArchiveGap):
        checked(manifest, place, str(store), allow_gap=False)
    behind = checked(manifest, place, str(store), allow_gap=True)

    assert behind.until_offset > manifest.until_offset
    assert own_identity(behind, place, str(store)) == identity_of(store)


def test_reading_refuses_an_archive_of_another_log(store, tmp_path):
    """An archive that is named by hand is checked like one that the mark names."""
    other, archive = tmp_path / "other", tmp_path / "archive"
    lived(other, 4, 1)
    lived(other, 12, 1000)
    store_manifest(LocalPlace(str(archive), archive), manifest_of(store))

    assert plan(store, Scope(archive=str(archive)))
    with pytest.raises(StoreDiffers, match="HMS-9081"):
        plan(other, Scope(archive=str(archive)))


def test_what_was_written_before_there_were_identities_goes_on(store, tmp_path):
    """An upgrade must not cost an archive."""
    old = msgspec.structs.replace(manifest_of(store), identity=Identity())
    data = msgspec.json.decode(msgspec.json.encode(old))
    del data["identity"]

    assert accepts(msgspec.convert(data, Manifest), tmp_path, store)


def test_a_mark_of_another_log_lets_nothing_go(store, tmp_path):
    """With archive = "REQUIRED" a mark that came with a copied directory could cost the history."""
    manifest, other = manifest_of(store), tmp_path / "other"
    lived(other, 4, 1)
    lived(other, 12, 1000)
    end = (manifest.until_offset, manifest.until_segment)
    for path in (store, other):
        write_mark(path, Mark("/archive", *end, *writer_before(store, end[0])))

    assert archived_below(REAL_DISK, store) == manifest.until_segment
    assert archived_below(REAL_DISK, other) == 0
    write_mark(other, Mark("/archive", *end))  # as older versions wrote it
    assert archived_below(REAL_DISK, other) == manifest.until_segment


def begun_anew(store, batches=12):
    """Another store under the same name, with the same boundaries."""
    shutil.rmtree(store)
    lived(store, 4, 1)
    lived(store, batches, 1000)


def test_a_stream_does_not_go_on_in_another_store(store):
    """A checkpoint's offset there are other events, or none that were ever read."""
    reader = HmsStreamReader(store, Scope(), None, is_latest=False)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    lived(store, 1, 5000)
    resumed = HmsStreamReader(store, Scope(), None, is_latest=False)
    assert resumed.latestOffset(at, ReadAllAvailable())["offset"] > at["offset"]
    begun_anew(store, 20)

    again = HmsStreamReader(store, Scope(), None, is_latest=False)
    for ask in (again.latestOffset, again.partitions):
        with pytest.raises(StoreDiffers, match="the checkpoint ends at offset"):
            ask(at, ReadAllAvailable() if ask == again.latestOffset else at)
    bare = {"offset": at["offset"], "node": at["node"]}  # as older versions wrote it
    assert again.latestOffset(bare, ReadAllAvailable())["store"] != at["store"]


def test_the_offset_of_a_stream_is_told_alike_each_time(store):
    """Spark compares them as texts: one that changed would make empty batches for ever."""
    reader = HmsStreamReader(store, Scope(), None, is_latest=True)
    end = reader.reportLatestOffset()
    lived(store, 1, 5000)

    limited = HmsStreamReader(store, Scope(offsets_max=1), None, is_latest=False)
    assert reader.latestOffset(end, ReadMaxRows(1)) != end
    assert limited.latestOffset({**end, "offset": end["offset"] - 1}, ReadMaxRows(1)) == end


def test_a_replay_does_not_go_on_in_another_store(store):
    """Its ledger says which offsets were sent: of another log they are other messages."""
    wanted = Wanted("again", {})
    begun = _begun(SimpleNamespace(entry=None), "r", str(store), wanted)
    known = SimpleNamespace(entry=begun)
    assert _begun(known, "r", str(store), wanted) == begun
    begun_anew(store, 20)

    with pytest.raises(StoreDiffers, match="run r ends at offset"):
        _begun(known, "r", str(store), wanted)
    known.entry = replace(begun, store="", boot="")  # as older versions wrote it
    assert _begun(known, "r", str(store), wanted) == known.entry


def test_a_store_in_a_database_has_an_identity_too(tmp_path):
    """A replay reads from there as well."""
    place = Place("sqlite", tmp_path)
    for first in (1, 2):
        node = StoreNode(place)
        found = identity_of(f"{place.address}#{place.prefix}")
        assert len(found.boots) == first
        assert found == node.engine.state.identity.public
        node.store.close()


def test_only_the_last_boots_are_remembered():
    """A node that is booted every night must not carry a list that grows for ever."""
    found = Identity()
    for n in range(BOOTS_MAX + 10):
        found = found.booted(1 + 10 * n, n.to_bytes(16))

    assert len(found.boots) == BOOTS_MAX
    assert found.store == bytes(16)
    assert found.writer_before(11) == Writer(bytes(16).hex(), "")
    assert found.writer_before(10_000).boot == (BOOTS_MAX + 9).to_bytes(16).hex()


@pytest.mark.parametrize(
    ("told", "here", "is_refused"),
    [
        (Writer(), Writer("a", "x"), False),
        (Writer("a", "x"), Writer("a", "x"), False),
        (Writer("a", "x"), Writer("a", ""), False),
        (Writer("a", ""), Writer("a", "x"), False),
        (Writer("a", "x"), Writer("a", "y"), True),
        (Writer("a", "x"), Writer("b", "x"), True),
        (Writer("a", "x"), Writer(), True),
    ],
)
def test_what_is_not_known_excludes_nothing(told, here, is_refused):
    """What is older than the list of boots is believed; a store without its identity is not."""
    check = partial(check_writer, "it", "/store", 7, told, here)
    if is_refused:
        with pytest.raises(StoreDiffers):
            check()
    else:
        check()


def test_a_client_is_told_which_log_it_is(tmp_path):
    """What was not confirmed is repeated at this log only: it is the same after a WARM boot, and
    another one after a COLD boot and in another store."""

    def told(path, **how):
        node = JournalNode(tmp_path / path, SETTINGS, SEGMENT, **how)
        (_, welcome), *_ = node.send("edge", Kind.HELLO, encode(Hello(0)))
        node.close()
        return decode(welcome, Welcome).log

    first = told("store")

    assert len(first) == 16
    assert told("store") == told("store", is_warm=True) == first
    cold = told("store", is_warm=False)
    assert told("store") == cold != first
    assert told("other") not in (first, cold, b"")
