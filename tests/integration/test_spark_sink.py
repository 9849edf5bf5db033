"""Rows of Spark become messages of a running node, each once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import hms
import hms.testing
from hms.history.sink_link import CHUNK_ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONFIG = {
    "hms": {
        "queue": {
            name: {}
            for name in ("orders", "copies", "own", "typed", "twice", "streamed", "threads")
        }
    }
}
COUNT = 2000


@pytest.fixture(scope="module")
def node():
    """A node that took orders."""
    with hms.testing.node(config=CONFIG) as running:
        with hms.connect(running.address) as connection, connection.session() as own:
            producer = own.producer(hms.Queue("orders"))
            for i in range(COUNT):
                properties = {"n": i, "half": i / 2, "odd": bool(i % 2), "name": f"é{i}"}
                producer.send_async(hms.Message.text(f"order {i}", properties), priority=i % 10)
            producer.close()
        yield running


def in_queue(node, name):
    """Its messages, oldest first within a priority."""
    with hms.connect(node.address) as connection, connection.session() as own:
        return list(own.browser(hms.Queue(name), oldest_first=True))


def write(frame, node, **options):
    writer = frame.write.format("hms").option("address", node.address)
    writer.options(**options).mode("append").save()


def test_rows_of_the_history_are_sent_as_they_were(spark, node):
    """Head, body, kind and priority are the same to the byte."""
    path = str(node.store)
    wanted = {"view": "messages", "destination": "queue:orders"}
    rows = spark.read.format("hms").options(**wanted).load(path)
    write(rows.repartition(3, "message_id"), node, destination="queue:copies")
    copies = spark.read.format("hms").options(**wanted | {"destination": "copies"}).load(path)

    def content(frame):
        return sorted((r.head, r.body, r.kind, r.priority) for r in frame.collect())

    assert content(rows) == content(copies)


def test_a_frame_of_ones_own_becomes_messages(spark, node):
    """Columns by their names: body, properties of each type, header fields, the destination."""
    rows = [
        ("typed", "text", {"a": "x"}, {"n": 5}, {"d": 0.5}, {"b": True}, "c1", 7),
        ("typed", None, None, None, None, None, None, None),
    ]
    schema = (
        "destination string, value string, string_properties map<string,string>, "
        "long_properties map<string,bigint>, double_properties map<string,double>, "
        "boolean_properties map<string,boolean>, correlation_id string, priority int"
    )
    write(spark.createDataFrame(rows, schema), node)
    full, empty = in_queue(node, "typed")

    assert (full.body, dict(full.properties)) == ("text", {"a": "x", "n": 5, "d": 0.5, "b": True})
    assert (full.correlation_id, full.priority) == ("c1", 7)
    assert (empty.body, dict(empty.properties), empty.priority) == (None, {}, 4)


def test_a_job_that_fails_half_way_and_is_run_again_sends_each_row_once(spark, node):
    """A task that is tried again has sent some of its rows before."""
    numbers = spark.range(0, 20_000, 1, 2).selectExpr("id", "CAST(id AS STRING) AS value")
    fatal = numbers.selectExpr(
        "IF(id = 17000, CAST(raise_error('planted') AS STRING), value) AS value"
    )
    options = {"destination": "twice", "runId": "job 1"}
    with pytest.raises(Exception, match="planted"):
        write(fatal, node, **options)
    # As if the second task had died behind its first transaction.
    write(numbers.where(f"id < {10_000 + CHUNK_ROWS}"), node, **options)
    write(numbers, node, **options)
    write(numbers, node, **options)

    assert sorted(int(m.body) for m in in_queue(node, "twice")) == list(range(20_000))


def test_other_rows_under_the_same_run_are_refused(spark, node):
    """Passing them over as sent before would lose them."""
    options = {"destination": "own", "runId": "job 2"}
    one = spark.range(1).selectExpr("'a' AS value").coalesce(1)
    other = spark.range(1).selectExpr("'b' AS value").coalesce(1)
    write(one, node, **options)

    with pytest.raises(Exception, match=r"HMS-9079 .* has been sent before with other rows"):
        write(other, node, **options)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"destination": "own"}, "need a column body or value"),
        ("'x' AS value", {}, "need the option destination"),
        ("'x' AS value", {"destinatoin": "own"}, "did you mean 'destination'"),
        ("'x' AS value, 12 AS priority", {"destination": "own"}, "row 1: priority 12"),
        ("'x' AS value", {"destination": "nowhere.here"}, "HMS-4001"),
        ("id AS value", {"destination": "own"}, "neither text nor binary"),
        ("'x' AS value, map('a b', '1') AS properties", {"destination": "own"}, "row 1: HMS-"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_our_words(spark, node, columns, options, message):
    """The reason stands in Spark's exception, with the row."""
    with pytest.raises(Exception, match=message):
        write(spark.range(1).selectExpr(*columns.split(", ", 1)), node, **options)


def test_a_thread_of_the_applications_own_writes_as_the_main_thread_does(spark, node):
    """Spark knows the format only where the thread has a session, which a new one has not."""
    frame = spark.createDataFrame([("of a thread",)], "value string")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write, frame, node, destination="threads").result()

    assert [message.body for message in in_queue(node, "threads")] == ["of a thread"]


def test_overwriting_is_refused(spark, node):
    """A queue is no table."""
    frame = spark.range(1).selectExpr("'x' AS value")
    writer = frame.write.format("hms").options(address=node.address, destination="own")
    with pytest.raises(Exception, match="append"):
        writer.mode("overwrite").save()


def test_a_stream_sends_each_event_once_over_restarts(spark, node, tmp_path):
    """From one node's history into a queue, stopped and started again on one checkpoint."""
    options = {"view": "messages", "destination": "orders", "maxOffsetsPerTrigger": "700"}

    def run():
        rows = spark.readStream.format("hms").options(**options).load(str(node.store))
        query = (
            rows.writeStream.format("hms")
            .options(address=node.address, destination="streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()

    run()
    _forget_last_commit(tmp_path / "checkpoint")
    run()

    bodies = sorted(m.body for m in in_queue(node, "streamed"))
    assert bodies == sorted(f"order {i}" for i in range(COUNT))


def _forget_last_commit(checkpoint):
    """As if Spark had been killed behind the sink and before its own commit."""
    last = max(int(f.name) for f in (checkpoint / "commits").iterdir() if f.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
