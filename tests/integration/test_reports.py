"""Reports over a history that a node made, and over one with planted faults."""

import json

import pytest
from click.testing import CliRunner
from history_rig import MINUTE_MS, ORDERS, START_MS, batch, begin, write

import hms
import hms.testing
from hms.history.command import history
from hms.history.reports.every import REPORTS
from hms.history.reports.table import Asked
from hms.records import Cause, RecordType, group, ranges
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONFIG = {
    "hms": {
        "queue": {"orders": {}, "stale": {}, "poison": {"redelivery_limit": 1}, "routed": {}},
        "topic": {"news": {}},
        "subscription": {"audit": {"topic": "news"}, "copy": {"topic": "news", "queue": "routed"}},
    }
}


@pytest.fixture(scope="module")
def node():
    """A node where every end that a message can have has come about."""
    with hms.testing.node(config=CONFIG) as running:
        with hms.connect(running.address) as connection, connection.session() as own:
            _live(connection, own)
        yield running


def _live(connection, own):
    orders = own.producer(hms.Queue("orders"))
    orders.send_many([hms.Message(b"x", {"n": i}) for i in range(100)])
    own.producer(hms.Queue("stale"), ttl_s=0.001).send_many([hms.Message(b"late")] * 3)
    own.producer(hms.Queue("stale")).send(b"in time")
    assert own.consumer(hms.Queue("stale")).receive(timeout_s=60).body == b"in time"
    own.producer(hms.Topic("news")).send_many([hms.Message(b"n")] * 10)
    own.producer(hms.Queue("poison")).send(b"p")
    consumer = own.consumer(hms.Queue("orders"), prefetch=1)
    for _ in range(60):
        assert consumer.receive(timeout_s=60) is not None
    consumer.close()
    with connection.session(transacted=True) as failing:
        assert failing.consumer(hms.Queue("poison")).receive(timeout_s=60) is not None
        failing.rollback()
    routed = own.consumer(hms.Queue("routed"))
    for _ in range(4):
        assert routed.receive(timeout_s=60) is not None
    own.close()
    connection.administer("queue.purge", {"name": "orders"})


def report(spark, path, name, **asked):
    return REPORTS[name](Asked(spark, path, **asked))


def rows_of(made):
    return {row[0]: dict(zip(made.head, row, strict=True)) for row in made.rows}


def test_an_audit_of_a_real_node_adds_up(spark, node):
    """Every message sent is accounted for, at every place, and the node has what should wait."""
    made = report(spark, node.store, "audit", address=node.address)
    rows = rows_of(made)

    assert made.is_good, made.notes
    orders = rows["queue:orders"]
    ends = ("acknowledged", "purged", "waiting")
    assert orders["came"] == 100 == sum(orders[end] for end in ends)
    assert (orders["acknowledged"], orders["waiting"], orders["node has"]) == (60, 0, 0)
    assert (rows["queue:stale"]["acknowledged"], rows["queue:stale"]["expired"]) == (1, 3)
    assert rows["queue:poison"]["dead-lettered"] == 1
    assert rows["queue:HMS.DLQ"]["waiting"] == 1 == rows["queue:HMS.DLQ"]["node has"]
    assert rows["subscription:audit"]["waiting"] == 10 == rows["subscription:audit"]["node has"]
    assert (rows["queue:routed"]["came"], rows["queue:routed"]["acknowledged"]) == (10, 4)


def test_an_audit_finds_what_was_planted(spark, tmp_path):
    """A message that is gone without a cause, or there twice, is what an audit is for."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 10), ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, [(1, 8)]))
    write(journal, ranges(RecordType.DISCARDED, ORDERS, START_MS, [(8, 8)], Cause.PURGED))
    write(journal, ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, [(77, 77)]))
    write(journal, batch(9, 1), batch(20, 1))
    write(journal, ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, [(30, 30)]), batch(30, 1))
    journal.close()
    made = report(spark, tmp_path / "store", "audit")

    assert not made.is_good
    assert made.notes[:4] == [
        "1 left more often than it came: 000000000008 at queue:orders.",
        "1 is there more than once: 000000000009 at queue:orders.",
        "1 left, but never came: 00000000004d at queue:orders.",
        "1 left before it came: 00000000001e at queue:orders.",
    ]


def test_an_audit_finds_that_a_node_has_less_than_it_should(spark, node, tmp_path):
    """The history alone cannot know that a message is lost; beside the node it can."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 10))
    journal.close()
    made = report(spark, tmp_path / "store", "audit", address=node.address)

    assert not made.is_good
    assert "queue:orders: the history says that 10 wait, the node has 0." in made.notes


def test_what_came_before_the_history_begins_is_no_fault(spark, tmp_path):
    """Retention lets the beginning go, not the sense of the rest."""
    journal = begin(tmp_path / "store")
    write(journal, ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, [(1, 5)]), batch(100, 2))
    journal.close()
    made = report(spark, tmp_path / "store", "audit")

    assert made.is_good
    assert rows_of(made)["queue:orders"]["older"] == 5


def test_old_ids_that_come_late_and_those_of_other_nodes_do_not_shift_the_beginning(
    spark, tmp_path
):
    """A commit tells of ids that were given before the history begins, a move of ids that grow by
    another node's count: what had come before would be called a message that never came."""
    journal = begin(tmp_path / "store")
    write(journal, group(7, 1, 1, START_MS, [batch(3, 1)]), batch(100, 2))
    moved = (2 << 40) + 5
    gone = [(50, 50), (moved, moved)]
    write(journal, ranges(RecordType.ACKNOWLEDGED, ORDERS, START_MS, gone))
    journal.close()
    made = report(spark, tmp_path / "store", "audit")

    assert made.is_good, made.notes
    assert rows_of(made)["queue:orders"]["older"] == 2


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Ten minutes of 200 orders each; all but the last minute's are delivered after a second and
    acknowledged after two."""
    path = tmp_path_factory.mktemp("reports") / "store"
    journal = begin(path)
    for minute in range(10):
        first, at_ms = 1 + minute * 200, START_MS + minute * MINUTE_MS
        write(journal, batch(first, 200, at_ms=at_ms))
        if minute < 9:
            span = [(first, first + 199)]
            write(journal, ranges(RecordType.DELIVERED, ORDERS, at_ms + 1000, span))
            write(journal, ranges(RecordType.ACKNOWLEDGED, ORDERS, at_ms + 2000, span))
    write(journal, ranges(RecordType.DISCARDED, ORDERS, START_MS, [(2000, 2000)], Cause.EXPIRED))
    journal.close()
    return path


def test_throughput_counts_by_place_and_over_time(spark, store):
    """What an operator asks first."""
    made = report(spark, store, "throughput")
    row = rows_of(made)["queue:orders"]

    assert (row["sent"], row["delivered"], row["acknowledged"], row["expired"]) == (
        2000,
        1800,
        1800,
        1,
    )
    (curve,) = made.curves
    assert len(curve.lines["queue:orders"]) == 10


def test_latency_is_from_sending_to_delivery_and_acknowledgement(spark, store):
    """In percentiles, because a mean hides those who waited."""
    row = rows_of(report(spark, store, "latency"))["queue:orders"]

    assert row["messages"] == 1800
    assert (row["delivered p50"], row["delivered max"], row["done p99"]) == (1000, 1000, 2000)


def test_backlog_is_what_waits_and_since_when(spark, store):
    """One that grows is the first sign of trouble."""
    row = rows_of(report(spark, store, "backlog"))["queue:orders"]

    assert (row["waiting"], row["oldest since"]) == (199, "2026-11-01 00:09:00")
    assert row["most"] >= 199


def test_dead_letters_and_expiry_are_told_by_origin(spark, node):
    """The reason stands with the message, the report counts it."""
    (letter,) = report(spark, node.store, "dead-letters").rows
    expired = rows_of(report(spark, node.store, "expiry"))["queue:stale"]

    assert letter[0] == "queue:poison"
    assert letter[2:4] == ("queue:HMS.DLQ", 1)
    assert (expired["sent"], expired["expired"], expired["percent"]) == (4, 3, 75.0)


def test_a_window_and_a_destination_narrow_a_report(spark, node, store):
    """Nobody reads a year to see an hour."""
    given = {"from_": "2026-11-01T00:02Z", "to": "2026-11-01T00:04Z", "destination": "queue:orders"}
    row = rows_of(report(spark, store, "throughput", **given))["queue:orders"]

    assert row["sent"] == 400
    assert report(spark, store, "throughput", destination="queue:none").rows == []
    only = report(spark, node.store, "audit", destination="queue:routed")
    assert [row[0] for row in only.rows] == ["queue:routed"]


def test_the_command_writes_for_people_browsers_and_programs(spark, store, tmp_path):
    """One run, every form; the page loads nothing from elsewhere."""
    page, table, columns = (tmp_path / name for name in ("r.html", "r.csv", "r.parquet"))
    told = CliRunner().invoke(
        history,
        f"report throughput --path {store} --json --html {page} --csv {table} --parquet {columns}",
    )

    assert told.exit_code == 0, told.output
    (row,) = json.loads(told.output)["rows"]
    assert row["sent"] == 2000
    assert "<svg" in page.read_text()
    assert "<script" not in page.read_text()
    assert "src=" not in page.read_text()
    assert table.read_text().splitlines()[0].startswith("place,sent,delivered")
    assert spark.read.parquet(str(columns)).collect()[0]["acknowledged"] == 1800


def test_an_audit_that_does_not_add_up_ends_with_a_code_of_its_own(spark, tmp_path):
    """A nightly job must notice."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 2), batch(1, 1))
    journal.close()
    told = CliRunner().invoke(history, ["report", "audit", "--path", str(tmp_path / "store")])

    assert told.exit_code == 3
    assert "is there more than once" in told.output


def _is_at_rest(nodes, waiting):
    """Nothing is on its way, and each knows that the other one asks for no more."""
    told = []
    for one in nodes:
        with hms.connect(one.address) as connection:
            told.append(connection.administer("cluster.status"))
    queues = [status["queues"][0] for status in told]
    elsewhere = [known for queue in reversed(queues) for known in queue["elsewhere"].values()]
    has_told = elsewhere == [{"length": one["length"], "consumers": 0} for one in queues]
    is_all_there = sum(one["length"] for one in queues) == waiting
    return has_told and is_all_there and not any(status["undecided"] for status in told)


def test_the_audits_of_two_nodes_add_up_when_messages_moved(spark):
    """P9: what a node gave to another one has left it, and is accounted for at both."""
    config = {"hms": {"queue": {"orders": {"GLOBAL": "Y"}}}}
    with hms.testing.node(config=config, nodes=2) as first:
        source, target = first.nodes
        with hms.connect(target.address) as near, near.session() as own:
            consumer = own.consumer(hms.Queue("orders"), prefetch=1)
            with hms.connect(source.address) as far, far.session() as other:
                other.producer(hms.Queue("orders")).send_many([hms.Message(b"x")] * 50)
            for _ in range(30):
                assert consumer.receive(timeout_s=60) is not None
        wait_until(lambda: _is_at_rest(first.nodes, 20))
        made = [report(spark, n.store, "audit", address=n.address) for n in first.nodes]
    one, two = (rows_of(each)["queue:orders"] for each in made)

    assert [each.notes for each in made] == [["Everything adds up."]] * 2
    assert one["moved-out"] - one["moved-in"] == two["moved-in"] - two["moved-out"]
    assert (one["came"] - one["moved-in"], two["came"]) == (50, two["moved-in"])
    assert two["acknowledged"] >= 30
    assert one["waiting"] + two["waiting"] + two["acknowledged"] == 50
