"""The history through a real Spark, over a real journal."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from history_rig import BILLING, MINUTE_MS, NEWS, ORDERS, START_MS, batch, begin, write
from pyspark.sql.types import LongType, StructField, StructType

from hms.history import HmsDataSource, register, session
from hms.history.events import COLUMNS
from hms.history.scope import Scope
from hms.history.source import HmsReader
from hms.history.spark import borrowed_session
from hms.records import Cause, RecordType, group, ranges
from hms.store.journal.disk import REAL_DISK, RealDisk
from hms.store.journal.segment_trim import trim
from hms.wire.packed_messages import Head, encode_head

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Ten minutes of 200 orders each, half of them acknowledged in transactions, one expired, and
    three news to a durable subscription; several segments."""
    path = tmp_path_factory.mktemp("history") / "store"
    journal = begin(path)
    for minute in range(10):
        first, at_ms = 1 + minute * 200, START_MS + minute * MINUTE_MS
        done = ranges(RecordType.ACKNOWLEDGED, ORDERS, at_ms, [(first, first + 99)])
        write(journal, batch(first, 200, at_ms=at_ms), group(7, 1, minute + 1, at_ms, [done]))
    write(journal, ranges(RecordType.DISCARDED, ORDERS, START_MS, [(2000, 2000)], Cause.EXPIRED))
    write(journal, batch(5001, 3, number=NEWS))
    write(journal, ranges(RecordType.DELIVERED, BILLING, START_MS, [(5001, 5003)]))
    journal.close()
    return path


def read(spark, path, **options):
    return spark.read.format("hms").options(**options).load(str(path))


def test_every_event_is_a_row_of_the_whole_schema(spark, store):
    """The counts are those that were written, over all segments."""
    frame = read(spark, store)

    assert frame.columns == list(COLUMNS)
    assert {r.event: r["count"] for r in frame.groupBy("event").count().collect()} == {
        "sent": 2003,
        "acknowledged": 1000,
        "expired": 1,
        "delivered": 3,
    }
    assert frame.rdd.getNumPartitions() > 1


def test_offsets_name_every_event_once(spark, store):
    """Reconciliation counts on it (F-Q4)."""
    frame = read(spark, store)

    assert frame.select("offset").distinct().count() == frame.count() == 3007


def test_a_row_carries_the_message_as_it_was_sent(spark, store):
    """Types survive the way through Arrow and the JVM."""
    row = read(spark, store, event="sent").filter("message_id = '000000000005'").collect()[0]

    assert (row.destination, row.destination_kind, row.subscription) == ("orders", "queue", None)
    assert (row.priority, row.kind, row.persistent, row.type) == (5, "text", True, "T")
    assert row.properties == {"Month": "5", "Type": "News"}
    assert (row.long_properties, row.string_properties) == ({"Month": 5}, {"Type": "News"})
    assert row.double_properties == row.boolean_properties == {}
    assert bytes(row.body) == b"5".ljust(20)
    assert bytes(row.head) == encode_head(Head({"Month": 5, "Type": "News"}, type="T"))
    assert row.expiration is None


def test_transactions_causes_and_subscriptions_are_told(spark, store):
    """Who acknowledged together, and why a message left, is asked after an incident."""
    frame = read(spark, store, includeBody="false")

    assert frame.filter("event = 'acknowledged'").select("transaction").distinct().count() == 10
    assert [r.cause for r in frame.filter("event = 'expired'").collect()] == ["expired"]
    told = frame.filter("event = 'delivered'").select("destination", "subscription").distinct()
    assert [tuple(row) for row in told.collect()] == [("news", "billing")]


def test_a_window_of_time_is_half_open_and_in_utc(spark, store):
    """Two windows side by side make one whole, on a machine in any zone."""
    minutes = {"from": "2026-11-01T00:02:00Z", "to": "2026-11-01T00:04:00Z"}
    frame = read(spark, store, view="messages", destination="queue:orders", **minutes)
    times = {r.ms for r in frame.selectExpr("unix_millis(time) AS ms").distinct().collect()}

    assert frame.count() == 400
    assert times == {START_MS + 2 * MINUTE_MS, START_MS + 3 * MINUTE_MS}


def test_a_selector_is_judged_in_the_reader(spark, store):
    """The broker's own rules decide, not Spark's."""
    frame = read(spark, store, selector="Month > 10 AND JMSPriority = 1", destination="orders")

    expected = [i for i in range(1, 2001) if i % 12 == 11 and i % 10 == 1]
    assert [int(r.message_id, 16) for r in frame.sort("offset").collect()] == expected


def test_few_columns_can_be_read_alone(spark, store):
    """Who counts need not pay for bodies."""
    narrow = spark.read.format("hms").schema("event string, offset bigint").load(str(store))

    assert narrow.columns == ["event", "offset"]
    assert narrow.filter("event = 'sent'").count() == 2003


def test_sql_reads_the_history(spark, store):
    """Analysts write SQL."""
    spark.sql(f"CREATE OR REPLACE TEMP VIEW seen USING hms OPTIONS (path '{store}', event 'sent')")
    counted = spark.sql("SELECT destination, count(*) AS n FROM seen GROUP BY 1 ORDER BY 1")

    assert [tuple(row) for row in counted.collect()] == [("news", 3), ("orders", 2000)]


def test_the_tail_is_read_while_the_node_is_writing(spark, tmp_path):
    """The history of the last second matters most after an incident."""
    journal = begin(tmp_path / "live", 1 << 20)
    write(journal, batch(1, 10))
    planned_before = read(spark, tmp_path / "live").count()
    stopping = threading.Event()
    writer = threading.Thread(target=_write_until, args=(journal, stopping))
    writer.start()
    try:
        counts = [
            read(spark, tmp_path / "live").selectExpr("count(*)", "max(offset) - min(offset) + 1")
            for _ in range(3)
        ]
        seen = [tuple(frame.collect()[0]) for frame in counts]
    finally:
        stopping.set()
        writer.join(timeout=250)
        journal.close()
    total = read(spark, tmp_path / "live").count()

    assert planned_before == 10
    # Whole batches of ten, and between first and last nothing but dictionaries is missing.
    assert all(count % 10 == 0 and 0 <= span - count < 1000 for count, span in seen)
    assert 10 <= seen[0][0] <= seen[1][0] <= seen[2][0] <= total


def _write_until(journal, stopping):
    first = 11
    while not stopping.is_set() and first < 100_000:
        write(journal, batch(first, 10))
        first += 10


def test_filters_of_spark_keep_segments_from_being_read(spark, store):
    """Who writes SQL need not know our options."""
    register(spark)  # another test may have made the one that sees no filters known

    def loaded():
        return read(spark, store, pushdown="true")

    ids = loaded().filter("message_id IN ('000000000005', '000000000007', 'x') AND event = 'sent'")
    tail = loaded().filter("offset >= 3000 AND offset < 3004")

    assert loaded().filter("event = 'sent' AND destination = 'news'").count() == 3
    assert sorted(int(row.message_id, 16) for row in ids.collect()) == [5, 7]
    assert tail.rdd.getNumPartitions() == 1 < loaded().rdd.getNumPartitions()
    assert [row.offset for row in tail.sort("offset").collect()] == [3000, 3001, 3002, 3003]
    assert loaded().filter("event = 'sent' AND event = 'expired'").count() == 0
    assert loaded().filter("time >= '2026-11-01T00:09:00Z' AND event = 'sent'").count() == 200


def test_two_scans_of_one_frame_do_not_get_each_others_filters(spark, store):
    """Spark keeps one reader for a frame: filters that are pushed into it would hold for both."""
    frame = read(spark, store)
    sent, done = frame.filter("event = 'sent'"), frame.filter("event = 'acknowledged'")

    assert sent.join(done, "message_id").count() == 1000
    assert sent.union(done).count() == 3003


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selektor": "a = 1"}, "did you mean 'selector'"),
        ({"selector": "a = = 1"}, "HMS-3002 selector, position 4"),
        ({"from": "soon"}, "is no time"),
    ],
)
def test_a_wrong_option_is_refused_in_our_words(spark, store, options, message):
    """An ignored option would read far too much."""
    with pytest.raises(Exception, match=message):
        read(spark, store, **options).count()


def test_registering_twice_and_by_hand_is_harmless(spark, store):
    """Applications register where they please."""
    register(spark)
    spark.dataSource.register(HmsDataSource)

    assert read(spark, store, event="expired").count() == 1


def test_a_session_that_runs_already_is_used(spark):
    """Spark keeps one per process; making another would fail or hide its settings."""
    assert session("other") is spark


def test_a_command_in_another_thread_leaves_the_programs_session_running(spark):
    """A thread of the application's own has no active session: the one made elsewhere counts."""

    def borrow():
        with borrowed_session(None, "a thread's own") as borrowed:
            return borrowed

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(borrow).result() is spark

    assert spark.range(3).count() == 3


class UnsyncedDisk(RealDisk):
    """Nothing cuts the power here: thousands of syncs would take minutes."""

    @staticmethod
    def fdatasync(_fd):
        """At once."""

    def fsync(self, fd):
        """At once."""

    def fsync_dir(self, path):
        """At once."""


def test_thousands_of_small_segments_are_few_partitions(tmp_path):
    """What is shipped every minute leaves a segment each: a task for each of them took minutes."""
    path, count = tmp_path / "store", 600
    journal = begin(path, disk=UnsyncedDisk())
    for number in range(count):
        write(journal, batch(1 + number, 1))
        assert journal.seal() is not None
    write(journal, batch(count + 1, 1))
    journal.close()
    for file in path.glob("0*.log"):
        trim(REAL_DISK, file)

    schema = StructType([StructField("offset", LongType())])
    reader = HmsReader(str(path), Scope(), schema)

    partitions = reader.partitions()

    assert 100 < len(partitions) <= count // 2 + 1
    batches = [batch for one in partitions for batch in reader.read(one)]
    offsets = [one for batch in batches for one in batch.column("offset").to_pylist()]
    assert len(offsets) == count + 1
    assert offsets == sorted(set(offsets))
