"""The history through a real Spark, over a real journal."""

import threading
from contextlib import nullcontext

import pytest
from history_rig import BILLING, MINUTE_MS, NEWS, ORDERS, START, START_MS, batch, begin, write

from field_buffer.catalogue import HistoryError
from field_buffer.packing import Head, encode_head
from hms.history import HmsDataSource, register, replay, resend, session
from hms.history.events import COLUMNS
from hms.records import Cause, RecordType, group, ranges

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def spark():
    """One session for the whole run."""
    made = session("hms-tests")
    yield made
    made.stop()


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
    journal = begin(tmp_path / "live", 256 * 1024)
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
        writer.join(timeout=60)
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


def test_a_stream_is_refused_with_the_reason(spark, store, tmp_path):
    """A query that silently reads nothing would be worse."""
    stream = spark.readStream.format("hms").load(str(store)).writeStream.format("noop")
    with pytest.raises(Exception, match=r"HMS-1010 spark\.readStream"):
        stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)


def test_writing_is_refused_with_the_reason(spark, store):
    """The error names what can be done instead."""
    with pytest.raises(Exception, match=r"hms\.history\.replay"):
        read(spark, store).write.format("hms").mode("append").save()


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


@pytest.fixture
def arrivals(monkeypatch):
    """What would be sent, instead of a node."""
    arrived = []
    monkeypatch.setattr(resend, "open_sender", lambda *_: nullcontext(arrived.extend))
    return arrived


def test_replay_sends_the_window_in_its_order(spark, store, arrivals):
    """Order per destination is what F-Q3 promises, over all segments."""
    report = replay(
        spark,
        store,
        address="tcp://127.0.0.1:1",
        destination="queue:orders",
        into="again",
        from_=START,
        to="2026-11-01T00:09:00Z",
        selector="Month = 3",
    )

    assert [int(row.body) for row in arrivals] == list(range(3, 1801, 12))
    assert (report.rows, report.sent) == (150, 150)
    assert (report.first_offset, report.last_offset) == (arrivals[0].offset, arrivals[-1].offset)


def test_a_fault_in_the_history_stops_a_replay_as_our_own_error(spark, store, arrivals):
    """Applications catch HmsError, and nothing of Spark's."""
    segments = sorted(store.glob("*.log"))
    moved = segments[1].rename(segments[1].with_suffix(".away"))
    try:
        with pytest.raises(HistoryError):
            replay(spark, store, address="tcp://x", destination="orders", into="again")
    finally:
        moved.rename(segments[1])
