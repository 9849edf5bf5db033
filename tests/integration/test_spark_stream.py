"""The history as a stream, through a real Spark, over a real journal."""

import pytest
from history_rig import ORDERS, START_MS, batch, begin, write

from hms.history import archive
from hms.records import RecordType, ranges

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def journal(tmp_path):
    """A log of several segments: 600 messages sent, 300 acknowledged."""
    made = begin(tmp_path / "store", segment_bytes=16 * 1024)
    for first in range(1, 600, 100):
        write(made, batch(first, 100))
        done = [(first, first + 49)]
        write(made, ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, done))
    yield made
    made.close()


class Rows:
    """What a query has given: batch by batch, the newest try of each."""

    def __init__(self):
        self.batches = {}

    def __call__(self, frame, number):
        self.batches[number] = [row.offset for row in frame.select("offset").collect()]

    @property
    def offsets(self):
        return [one for number in sorted(self.batches) for one in self.batches[number]]


def run(spark, path, checkpoint, take, **options):
    """Read all that is there, and stop."""
    frame = spark.readStream.format("hms").options(**options).load(str(path))
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()


def offsets_in(spark, path, **options):
    frame = spark.read.format("hms").options(**options).load(str(path))
    return sorted(row.offset for row in frame.select("offset").collect())


def test_a_stream_goes_on_from_its_checkpoint_with_what_came_since(spark, journal, tmp_path):
    """Every event once, however often the query is started, and none beyond a batch's limit."""
    store, first, second = tmp_path / "store", Rows(), Rows()
    run(spark, store, tmp_path / "c", first, maxOffsetsPerTrigger="250")
    before = offsets_in(spark, store)
    write(journal, batch(1001, 50))
    run(spark, store, tmp_path / "c", second, maxOffsetsPerTrigger="250")

    assert first.offsets == before
    assert all(len(rows) <= 250 for rows in first.batches.values())
    assert len(first.batches) == 4
    assert first.offsets + second.offsets == offsets_in(spark, store)


def test_a_stream_goes_on_when_what_it_comes_to_was_archived_and_let_go(spark, journal, tmp_path):
    """Offsets name events, not places: the checkpoint holds whatever was moved meanwhile."""
    store, first, second = tmp_path / "store", Rows(), Rows()
    whole = offsets_in(spark, store)
    run(spark, store, tmp_path / "c", first, maxOffsetsPerTrigger="250", endingoffsets="latest")
    archive(spark, store, str(tmp_path / "archive"))
    gone = sorted(store.glob("*.log"))[:2]
    for file in gone:
        file.unlink()
    checkpoint = tmp_path / "new"
    run(spark, store, checkpoint, second, maxOffsetsPerTrigger="250")

    assert gone
    assert first.offsets == second.offsets == whole


def test_only_what_is_asked_for_comes(spark, journal, tmp_path):
    """The same options as of a batch."""
    rows = Rows()
    run(
        spark, tmp_path / "store", tmp_path / "c", rows, selector="Month = 3", startingOffsets="300"
    )

    assert rows.offsets
    assert rows.offsets == [
        one for one in offsets_in(spark, tmp_path / "store", selector="Month = 3") if one >= 300
    ]


def test_a_stream_whose_checkpoint_points_to_what_is_gone_fails_with_the_offsets(
    spark, journal, tmp_path
):
    """Passing over a gap in silence would be loss."""
    (tmp_path / "store" / "0000000000000001.log").unlink()
    with pytest.raises(Exception, match="HMS-9075 the history has offsets 5 to"):
        run(spark, tmp_path / "store", tmp_path / "c", Rows(), startingOffsets="5")

    rows = Rows()
    options = {"startingOffsets": "5", "failOnDataLoss": "false"}
    run(spark, tmp_path / "store", tmp_path / "d", rows, **options)
    assert rows.offsets == offsets_in(spark, tmp_path / "store")


def test_a_checkpoint_of_another_store_is_refused(spark, journal, tmp_path):
    """Its offsets mean other events here; waiting for them in silence would lose what is there."""
    run(spark, tmp_path / "store", tmp_path / "c", Rows())
    other = begin(tmp_path / "other")
    write(other, batch(1, 1))
    other.close()
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "other").rename(tmp_path / "store")

    with pytest.raises(Exception, match="it is of another store"):
        run(spark, tmp_path / "store", tmp_path / "c", Rows())
