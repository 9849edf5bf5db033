"""What operators ordered, in the history: each row names the order's record in the audit."""

import json
import os
from collections import Counter, defaultdict

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.history.audit_trail import entries_of_log
from hms.history.scan import plan, read_part
from hms.history.scope import Scope
from hms.records.audit import breaks_of
from tests.support.secured import document, secured_node
from tests.support.waiting import wait_until

COLUMNS = ("event", "cause", "operation", "destination", "message_id")
QUEUES = {"orders": {"redelivery_limit": 1}, "late": {}, "more": {}}
CONFIG = {"hms": {"queue": QUEUES, "topic": {"news": {}}}}
MANY = 6000
WAIT_S = 60


def rows_of(store):
    """Of the log and the history, by the number of the order."""
    found = defaultdict(Counter)
    for part in plan(store, Scope()):
        for batch in read_part(part, Scope(), COLUMNS):
            for one in batch:
                found[one.operation][one.event, one.cause, one.destination] += 1
    return found


def orders_of(store):
    """What the audit has: by command, the numbers of the orders that were done."""
    entries = list(entries_of_log(store))
    assert list(breaks_of(entries)) == []
    found = defaultdict(list)
    for one in entries:
        if not one.result:
            begun = json.loads(one.arguments).get("order", one.number)  # of one in slices
            found[one.command].append(begun)
    return found


def filled(connection, queue, count, size=10):
    session = connection.session()
    producer = session.producer(queue)
    sent = producer.send_many([hms.Message(os.urandom(size)) for _ in range(count)])
    return [one.message_id for one in sent]


@pytest.fixture
def node(tmp_path):
    own = {"max_memory_bytes": 64 << 20}
    with secured_node(tmp_path, document(), CONFIG, own) as node:
        yield node


def test_each_row_that_an_operator_caused_names_the_order(node):
    """At three in the morning somebody wants to know who it was, message by message."""
    with hms.connect(node.address) as connection:
        ids = filled(connection, "orders", 10)
        admin = connection.admin

        def of(*chosen):
            return admin.messages("queue:orders").where(ids=[ids[n] for n in chosen])

        of(0, 1).move(to="late")
        of(2).copy(to="late")
        of(3).delete()
        of(4).expire()
        of(5).alter(priority=9)
        session = connection.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer("orders", prefetch=1)
        assert consumer.receive(WAIT_S) is not None
        session.recover()
        consumer.close()
        session.close()
        letters = admin.messages("queue:HMS.DLQ").everything()
        assert letters.send_back().count == 1
        admin.messages("queue:late").everything().delete()
        connection.administer("queue.purge", {"name": "orders"})
    node.stop()
    rows, orders = rows_of(node.store), orders_of(node.store)
    by_command = {
        command: sum((rows[number] for number in numbers), Counter())
        for command, numbers in orders.items()
    }
    assert by_command["message.move"] == {
        ("moved", "moved", "orders"): 2,
        ("forwarded", None, "late"): 2,
    }
    assert by_command["message.copy"] == {("forwarded", None, "late"): 1}
    assert by_command["message.delete"] == {
        ("purged", "purged", "orders"): 1,
        ("purged", "purged", "late"): 3,
    }
    assert by_command["message.expire"] == {("expired", "expired", "orders"): 1}
    assert by_command["message.alter"] == {
        ("moved", "moved", "orders"): 1,
        ("forwarded", None, "orders"): 1,
    }
    assert by_command["dlq.return"] == {
        ("moved", "moved", "HMS.DLQ"): 1,
        ("forwarded", None, "orders"): 1,
    }
    assert by_command["queue.purge"] == {("purged", "purged", "orders"): 6}
    assert not {"moved", "purged", "expired"} & {event for event, *_ in rows[None]}
    words = ["history", "trace", ids[0], "--path", str(node.store), "--json"]
    life = json.loads(CliRunner().invoke(main, words).output)
    assert [step["operation"] for step in life if step["event"] == "moved"] == orders[
        "message.move"
    ]


def test_a_purge_in_slices_leaves_one_record_that_all_its_rows_name(node):
    """Its number is there from its first slice on, whatever others order meanwhile."""
    with hms.connect(node.address) as connection:
        for _ in range(MANY // 500):
            filled(connection, "orders", 500)
        connection.administer("queue.purge", {"name": "orders"})
        connection.administer("queue.create", {"name": "extra"})
        filled(connection, "extra", 700)
        connection.administer("queue.delete", {"name": "extra", "force": True})
    node.stop()
    rows, orders = rows_of(node.store), orders_of(node.store)
    (purge,), (delete,) = orders["queue.purge"], orders["queue.delete"]
    assert rows[purge] == {("purged", "purged", "orders"): MANY}
    letters = {("discarded", "deleted", "extra"): 700, ("forwarded", None, "HMS.DLQ"): 700}
    assert rows[delete] == letters
    assert {event for event, *_ in rows[None]} == {"sent"}


def test_what_follows_when_a_body_was_read_names_the_order_too(node):
    """Bodies that only the log has are moved behind the order's own record."""
    with hms.connect(node.address) as connection:
        for _ in range(20):
            filled(connection, "orders", 80, 50_000)
        assert connection.administer("metrics.show")["paged_messages"] > 0
        moved = connection.admin.messages("queue:orders").everything().move(to="late")
        assert moved.count == 1600
        wait_until(
            lambda: connection.administer("queue.show", {"name": "late"})["waiting"] == 1600, 60
        )
    node.stop()
    rows, orders = rows_of(node.store), orders_of(node.store)
    done = sum((rows[number] for number in orders["message.move"]), Counter())
    assert done["moved", "moved", "orders"] == 1600
    assert {event for event, *_ in rows[None]} == {"sent"}


def test_what_becomes_a_letter_when_a_body_was_read_names_the_order_too(node):
    """Expired by an operator, into a queue that keeps what expires."""
    with hms.connect(node.address) as connection:
        connection.administer("queue.create", {"name": "extra", "expired_to": "HMS.DLQ"})
        for _ in range(20):
            filled(connection, "extra", 80, 50_000)
        assert connection.administer("metrics.show")["paged_messages"] > 0
        assert connection.admin.messages("queue:extra").everything().expire().count == 1600
        letters = {"name": "HMS.DLQ"}
        wait_until(lambda: connection.administer("queue.show", letters)["waiting"] == 1600, 60)
    node.stop()
    rows, orders = rows_of(node.store), orders_of(node.store)
    done = sum((rows[number] for number in orders["message.expire"]), Counter())
    assert sum(n for (event, *_), n in done.items() if event == "expired") == 1600
    assert {event for event, *_ in rows[None]} == {"sent"}
