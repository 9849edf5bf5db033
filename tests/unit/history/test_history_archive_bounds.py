"""What the archive refuses, and what its manifest lets a reader pass over. Without Spark."""

from datetime import UTC, datetime

import msgspec
import pytest
from click.testing import CliRunner
from history_records import append, message, open_journal, sent_record
from pyspark.sql import datasource as ds

from hms.boot.cli import main
from hms.boot.compose import log_limits
from hms.boot.config import load
from hms.errors import catalogue
from hms.errors.catalogue import ArchiveBusy, ArchiveError, HistoryError, HistoryGone, SinkError
from hms.history import count_events
from hms.history.archive_mark import Mark, archive_lines, read_mark, write_mark
from hms.history.archive_place import LocalPlace
from hms.history.faults import own_error
from hms.history.manifest import ArchiveFile, Manifest, load_manifest, store_manifest
from hms.history.pushed import narrowed
from hms.history.scope import Scope, parse_scope


@pytest.fixture
def store(tmp_path):
    """A log of several segments."""
    journal = open_journal(tmp_path / "store", segment_bytes=4096)
    for i in range(20):
        append(journal, sent_record([message(body=bytes(512))], first_id=i, at_ms=i))
    journal.close()
    return tmp_path / "store"


def run(*words):
    return CliRunner().invoke(main, ["history", "archive", *map(str, words)])


def newer(store):
    """A store that a newer version wrote: its header says format 9."""
    from zlib import crc32

    for file in store.glob("*.log"):
        data = bytearray(file.read_bytes())
        data[8:10] = (9).to_bytes(2, "little")
        data[60:64] = crc32(data[:60]).to_bytes(4, "little")
        file.write_bytes(data)
    return store


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda store: store.parent, "HMS-5006"),
        (lambda store: store / "nowhere", "HMS-5006"),
        (newer, "HMS-5003"),
        (lambda store: (next(store.glob("*1.log")).write_bytes(bytes(4096)), store)[1], "HMS-5002"),
    ],
    ids=["no store", "nothing there", "a newer format", "a damaged header"],
)
def test_a_path_that_is_no_good_store_is_refused_with_code_1(store, make, error):
    """Before Spark is started, and before anything is written."""
    path = make(store)
    told = run("--path", path, "--where", store.parent / "archive")

    assert told.exit_code == 1
    assert error in told.stderr
    assert not (store.parent / "archive").exists()


def test_without_a_place_the_first_run_is_refused(store):
    """A default somewhere would be found by nobody."""
    told = run("--path", store)

    assert told.exit_code == 1
    assert "give --where" in told.stderr


def test_two_runs_on_one_store_are_refused(store):
    """Each would remove what the other one writes."""
    import fcntl

    with (store / "archive.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        told = run("--path", store, "--where", store.parent / "archive")

    assert told.exit_code == 1
    assert "another hms history archive" in told.stderr


FILE = ArchiveFile("data/day=a/1.parquet", "a", 1, 9, 10, 20, 1000, 2000, ["queue:a"], ["sent"])


@pytest.mark.parametrize(
    ("options", "is_needed"),
    [
        ({}, True),
        ({"destination": "queue:a"}, True),
        ({"destination": "topic:a"}, False),
        ({"destination": "b,c*"}, False),
        ({"destination": "queue:*"}, True),
        ({"event": "expired"}, False),
        ({"from": "2000"}, True),
        ({"from": "2001"}, False),
        ({"to": "1000"}, False),
        ({"startingOffsets": "21"}, False),
    ],
    ids=str,
)
def test_a_file_is_passed_over_only_when_nothing_in_it_is_asked_for(options, is_needed):
    """Half a day's rows left out in silence would be the worst of bugs."""
    assert FILE.may_hold(parse_scope(options)) is is_needed


def test_a_file_of_very_many_destinations_is_never_passed_over_by_them():
    """The manifest does not list them."""
    file = msgspec.structs.replace(FILE, destinations=None)
    assert file.may_hold(parse_scope({"destination": "other"}))


def test_a_manifest_is_written_once_and_the_newest_counts(tmp_path):
    """Two runs that saw the same state must not both succeed."""
    place = LocalPlace("here", tmp_path)
    assert load_manifest(place) is None
    for version in range(1, 14):
        store_manifest(place, Manifest(version, 1, 1, 10 * version, 2))
    with pytest.raises(ArchiveBusy):
        store_manifest(place, Manifest(13, 1, 1, 999, 2))

    assert load_manifest(place).until_offset == 130
    assert len(place.names("manifest")) == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "damaged"),
        ('{"version": 1}', "damaged"),
        (
            '{"version":1,"node_uid":1,"first_offset":1,"until_offset":1,"until_segment":1,"format":7}',
            "format 7",
        ),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(tmp_path, text, said):
    """An archive of a newer version must not look empty."""
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "000000000001.json").write_text(text)

    with pytest.raises(ArchiveError, match=said):
        load_manifest(LocalPlace("here", tmp_path))
    with pytest.raises(ArchiveError, match=said):
        count_events(tmp_path)


def test_the_mark_survives_and_a_damaged_one_is_named(store):
    """Readers find the archive by it."""
    assert read_mark(store) is None
    write_mark(store, Mark("/archive", 7, 2))
    assert read_mark(store) == Mark("/archive", 7, 2)
    assert "not archived yet" in archive_lines(str(store))[-1]

    (store / "archive.json").write_text("{}")
    with pytest.raises(ArchiveError, match="its mark"):
        count_events(store)


AT = datetime(2026, 11, 1, tzinfo=UTC)
AT_MS = 1_793_491_200_000


@pytest.mark.parametrize(
    ("filters", "scope"),
    [
        ([ds.EqualTo(("event",), "sent")], Scope(events=frozenset(["sent"]))),
        (
            [ds.In(("destination",), ("a", "b"))],
            Scope(destinations=frozenset([(None, "a"), (None, "b")])),
        ),
        ([ds.GreaterThanOrEqual(("time",), AT)], Scope(from_ms=AT_MS)),
        ([ds.LessThan(("time",), AT)], Scope(until_ms=AT_MS + 1)),
        ([ds.EqualTo(("offset",), 5)], Scope(first_offset=5, until_offset=6, fails_on_loss=False)),
        ([ds.EqualTo(("message_id",), "00ff")], Scope(message_ids=frozenset([255]))),
        ([ds.EqualTo(("type",), "x"), ds.IsNull(("event",))], Scope()),
        ([ds.Not(ds.EqualTo(("event",), "sent"))], Scope()),
    ],
    ids=["event", "places", "from", "until", "offset", "message", "other columns", "not"],
)
def test_filters_of_spark_narrow_what_is_read(filters, scope):
    """Never by more than they say: Spark cannot bring back what was not read."""
    assert narrowed(Scope(), filters) == scope


@pytest.mark.parametrize(
    "error",
    [
        HistoryGone(first=5, last=9, detail="x was let go"),
        SinkError(detail="row 1: priority 12 is not between 0 and 9"),
        catalogue.StoreCorrupt(file="/a/1.log", offset=64, lsn=7, detail="the record is bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_out_of_sparks_exception(error):
    """A program tells by the class what to do, and a command by its exit code."""
    line = f"hms.errors.catalogue.{type(error).__name__}: {error}"
    told = f"Job aborted:\nTraceback\n  File x\n{line}\n SQLSTATE: 38000"
    found = own_error(RuntimeError(told))

    assert type(found) is type(error)
    assert found.fields == error.fields


def test_another_failure_of_spark_is_told_as_it_is():
    """Out of memory is nothing that we raised."""
    found = own_error(RuntimeError("java.lang.OutOfMemoryError: heap"))

    assert isinstance(found, HistoryError)
    assert "OutOfMemoryError" in str(found)


def test_the_configuration_tells_the_log_that_an_archive_is_required(tmp_path):
    """A key that is read and then forgotten would let go of what it promises to keep."""
    file = tmp_path / "hms.conf"
    file.write_text('[domain]\nname = "d"\n[node.N]\narchive = "REQUIRED"\n')
    limits = log_limits(load(file).node())
    file.write_text('[domain]\nname = "d"\n[node.N]\n')

    assert limits.is_archive_required
    assert not log_limits(load(file).node()).is_archive_required


def test_an_archive_is_not_required_of_a_database(tmp_path):
    """Nothing would ever be let go there: only a log is archived."""
    file = tmp_path / "hms.conf"
    file.write_text('[domain]\nname = "d"\n[node.N]\narchive = "REQUIRED"\ndatabase = "sqlite:x"\n')

    with pytest.raises(catalogue.ConfigError, match="only a log is archived"):
        load(file)
