"""The archive through a real Spark: exactly once, whatever step a run dies at, and one table."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner
from history_rig import batch, begin, fill, reopened, write

import hms
import hms.testing
from hms.errors.catalogue import (
    ArchiveBusy,
    ArchiveError,
    ArchiveGap,
    ArchiveMismatch,
    StoreCorrupt,
)
from hms.history import archive, archived_until, compaction, count_events, end_offset, read
from hms.history import archive_write as writing
from hms.history.archive_all import archive_all
from hms.history.archive_command import archive_command
from hms.history.archive_mark import archive_lines
from hms.history.archive_place import LocalPlace
from hms.history.manifest import load_manifest, store_manifest
from hms.history.segments import sealed, survey
from hms.store.journal.confirmed_place import ConfirmedPlace, Place, begin_place
from hms.store.journal.disk import REAL_DISK

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
MODULE = vars(sys.modules["hms.history.archive"])
"""Of the module; the name itself is that of its function."""


@pytest.fixture
def store(tmp_path):
    """A log of several segments over two days; its archive is to lie beside it."""
    journal = begin(tmp_path / "store", segment_bytes=16 * 1024)
    fill(journal, 1, days=(0, 1))
    journal.close()
    return tmp_path / "store"


def rows_of(frame):
    return sorted(map(str, frame.collect()))


def place(store):
    return LocalPlace("archive", store.parent / "archive")


def run(spark, store, **options):
    return archive(spark, store, str(store.parent / "archive"), **options)


def let_go(store):
    """What the node may do with segments that are archived."""
    for segment in sealed(store):
        if segment.until_offset <= archived_until(store):
            (store / segment.file).unlink()


def test_archive_and_log_are_one_table(spark, store):
    """The same rows before and behind the archive, by both ways to read them, log gone or not."""
    before = rows_of(read(spark, store, archive="none"))
    counts = count_events(store)
    report = run(spark, store)
    let_go(store)
    through_source = spark.read.format("hms").load(str(store))

    assert report.until_offset == archived_until(store) < end_offset(store)
    assert rows_of(read(spark, store)) == rows_of(through_source) == before
    assert count_events(store) == counts
    alone = read(spark, str(store.parent / "archive"))
    assert alone.count() == report.rows
    assert {file.day for file in load_manifest(place(store)).files} == {"2026-11-01", "2026-11-02"}


OPTIONS = [
    {"destination": "queue:o*s,topic:news"},
    {"destination": "news", "event": "delivered,sent"},
    {"selector": "Month = 3 AND JMSPriority > 4"},
    {"from": "2026-11-02T00:00Z", "includeBody": "false"},
    {"startingOffsets": "200", "endingOffsets": "700", "view": "messages"},
]


def test_options_mean_the_same_to_the_archive(spark, store):
    """A report must not change because its days were archived meanwhile."""
    run(spark, store)
    for options in OPTIONS:
        from_log = rows_of(read(spark, store, archive="none", **options))
        through_source = spark.read.format("hms").options(**options).load(str(store))

        assert from_log
        assert rows_of(read(spark, store, **options)) == from_log
        assert rows_of(through_source) == from_log


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("behind", "write_files"),
        ("before", "store_manifest"),
        ("behind", "store_manifest"),
        ("behind", "write_mark"),
    ],
)
def test_a_run_that_dies_at_any_step_is_resumed_by_the_next_one(
    spark, store, monkeypatch, when, step
):
    """Nothing twice, nothing lost, and nothing left over."""
    before = rows_of(read(spark, store, archive="none"))
    real = MODULE[step]

    def dying(*arguments):
        if when == "behind":
            real(*arguments)
        raise Died

    monkeypatch.setitem(MODULE, step, dying)
    with pytest.raises(Died):
        run(spark, store)
    monkeypatch.undo()
    run(spark, store)
    let_go(store)

    assert rows_of(read(spark, store)) == before
    named = {file.name for file in load_manifest(place(store)).files}
    assert set(place(store).files("data")) == named
    assert place(store).files("draft") == {}


def test_what_does_not_equal_the_log_never_counts(spark, store, monkeypatch):
    """A bit that a disk or a fault of ours has turned must be found while the log is there."""
    real = writing.write_files

    def careless(rows, *arguments):
        return real(rows.where("offset != 100"), *arguments)

    monkeypatch.setitem(MODULE, "write_files", careless)
    with pytest.raises(ArchiveMismatch) as caught:
        run(spark, store)

    assert "rows of" in caught.value.detail
    assert load_manifest(place(store)) is None
    assert archive_lines(str(store)) == []


def test_a_gap_is_refused_and_noted_when_it_is_allowed(spark, store):
    """An archive with a hole that nobody was told of is worse than none."""
    run(spark, store)
    until = archived_until(store)
    journal = reopened(store)
    fill(journal, 10_001, days=(0, 1))
    journal.close()
    for segment in sealed(store)[:-1]:
        (store / segment.file).unlink()
    begin_left = sealed(store)[0].first_offset

    with pytest.raises(ArchiveGap):
        run(spark, store)
    run(spark, store, allow_gap=True)

    assert load_manifest(place(store)).gaps == [(until, begin_left)]
    assert "gone before they were archived" in "\n".join(archive_lines(str(store)))


def test_two_runs_on_one_archive_do_not_both_commit(spark, store):
    """The second one has seen an older state."""
    run(spark, store)
    known = load_manifest(place(store))

    with pytest.raises(ArchiveBusy):
        store_manifest(place(store), known)


def test_an_archive_of_another_store_is_left_alone(spark, store, tmp_path):
    """Rows of two nodes in one place could not be told apart."""
    run(spark, store)
    other = begin(tmp_path / "other", node_uid=2)
    write(other, batch(1, 10))
    other.close()

    with pytest.raises(ArchiveError, match="of node 1"):
        archive(spark, tmp_path / "other", str(tmp_path / "archive"))


def test_small_files_of_a_day_become_one(spark, store, monkeypatch):
    """A thousand small files cost more than what is in them."""
    monkeypatch.setattr(compaction, "FILES_MIN", 2)
    monkeypatch.setitem(MODULE, "PIECE_BYTES", 1)
    before = rows_of(read(spark, store, archive="none"))
    report = run(spark, store)
    manifest = load_manifest(place(store))

    assert report.merged >= 2
    assert len(manifest.files) < report.files
    assert rows_of(read(spark, store)) == before
    assert set(place(store).files("data")) > {file.name for file in manifest.files}

    monkeypatch.setattr(compaction, "GRACE_MS", -1)
    run(spark, store)
    assert set(place(store).files("data")) == {file.name for file in manifest.files}


def test_an_archive_goes_on_at_another_copy_of_the_log(spark, store, tmp_path):
    """After a switchover the other machine archives: no gap, nothing twice, and nothing that is not
    confirmed."""
    begin_place(REAL_DISK, store)
    first = run(spark, store)
    other = tmp_path / "other" / "store"
    shutil.copytree(store, other)
    journal = reopened(other)
    fill(journal, 2001, days=(2,))
    journal.close()

    assert archive(spark, other).until_offset == first.until_offset  # as far as its primary told
    ConfirmedPlace(REAL_DISK, other).tell(Place(survey(other)[-1].number, 1 << 20))
    moved = archive(spark, other)

    assert moved.first_offset == first.until_offset < moved.until_offset
    assert load_manifest(place(store)).gaps == []
    alone = read(spark, str(store.parent / "archive"))
    offsets = sorted(row.offset for row in alone.select("offset").collect())
    assert len(offsets) == len(set(offsets)) == first.rows + moved.rows
    assert rows_of(read(spark, other)) == rows_of(read(spark, other, archive="none"))


def test_any_url_of_hadoop_is_a_place(spark, store):
    """What holds for file: holds for hdfs: and s3a:, which Spark reaches the same way."""
    url = f"file://{store.parent}/by url"
    before = rows_of(read(spark, store, archive="none"))
    archive(spark, store, url)
    let_go(store)
    again = archive(spark, store, url)

    assert again.rows == 0
    assert rows_of(read(spark, store)) == before
    with pytest.raises(ArchiveError):
        archive(spark, store, "nosuch://host/place")


def test_the_command_archives_and_tells_it(spark, store):
    """What an operator runs each night."""
    where = str(store.parent / "archive")
    arguments = ["--path", str(store), "--where", where, "--json"]
    told = CliRunner().invoke(archive_command, arguments, catch_exceptions=False)
    lines = [json.loads(line) for line in told.output.splitlines()]

    assert told.exit_code == 0
    assert lines[-1]["is_done"]
    assert lines[-1]["rows"] > 0
    assert archive_lines(str(store))[0].startswith(f"archive {where}: offsets below")


def test_bad_input_is_refused_before_anything_is_written(spark, store, tmp_path):
    """A mistyped path must not make an archive of nothing, nor damage one."""
    with pytest.raises(Exception, match="HMS-5006"):
        archive(spark, tmp_path, str(tmp_path / "a"))
    with pytest.raises(ArchiveError, match="give --where"):
        archive(spark, store)
    damaged = sealed(store)[1].file
    with open(damaged, "r+b") as file:  # noqa: PTH123 - it is text
        file.seek(8000)
        file.write(b"\xff" * 32)
    with pytest.raises(StoreCorrupt):
        run(spark, store)
    assert load_manifest(place(store)) is None


def test_all_of_a_log_is_archived_beside_a_node_and_when_it_has_stopped(spark, tmp_path):
    """What happened a minute ago is often what is wanted; and a store that is put away has an end.
    Each event once, whoever finished the segment."""
    where = str(tmp_path / "archive")
    with hms.testing.node(config={"hms": {"queue": {"q": {}}}}) as node:
        send(node, 10)
        running = archive_all(spark, node.store, where, address=lambda: node.address)
        assert sent_in(spark, where) == 10
        send(node, 5)
        node.kill()
        stopped = archive_all(spark, node.store, where, address=lambda: pytest.fail("asked"))
        again = archive_all(spark, node.store, where, address=lambda: pytest.fail("asked"))
        assert sent_in(spark, where) == 15
        assert read(spark, node.store).count() == running.rows + stopped.rows
        node.boot(warm=True)
        send(node, 1)
        third = archive_all(spark, node.store, where, address=lambda: node.address)
        rows = read(spark, node.store, archive="none").select("offset").collect()

    assert (again.rows, again.until_offset) == (0, stopped.until_offset)
    assert sent_in(spark, where) == 16
    archived = [row.offset for row in read(spark, where).select("offset").collect()]
    assert sorted(archived) == sorted(r.offset for r in rows if r.offset < third.until_offset)


def send(node, count):
    with hms.connect(node.address) as connection, connection.session() as own:
        own.producer(hms.Queue("q")).send_many([b"x"] * count)


def sent_in(spark, where):
    """How many messages an archive has."""
    return read(spark, where, event="sent").count()
