"""hms client against a real node: who is connected, and what becomes of one that is closed."""

import json
import queue

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main

CONFIG = {"hms": {"queue": {"orders": {}}}}
WAIT_S = 30


@pytest.fixture
def command(node):
    def run(*words, code=0):
        """The data that a command prints; of one that is refused what it says."""
        done = CliRunner().invoke(main, [*words, "--connect", node.address, "--json"])
        assert done.exit_code == code, done.output
        return f"{done.output} {done.exception}" if code else json.loads(done.stdout or "null")

    return run


def test_an_operator_finds_who_holds_a_message_and_closes_it(node, command):
    """The client hears why, its message goes back as if it had not failed, and it may come back."""
    told = queue.Queue()
    options = {"client_name": "barista", "client_id": "bar", "reconnect_interval_s": 0.05}
    with hms.connect(node.address, exception_listener=told.put, **options) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        receipt = session.producer("orders").send(b"coffee")
        consumer = session.consumer("orders", selector="N IS NULL")
        assert consumer.receive(WAIT_S).body == b"coffee"

        (row,) = command("client", "list", "--client-name", "barista")
        assert (row["client_id"], row["consumers"], row["producers"]) == ("bar", 1, 1)
        assert row["in_flight"] == 1
        assert row["since_ms"] > 0
        shown = command("client", "show", str(row["id"]))
        (held,) = shown["consumers_open"]
        assert (held["destination"], held["selector"]) == ("queue:orders", "N IS NULL")
        assert held["oldest_in_flight"] == receipt.message_id
        command("client", "close", str(row["id"]), "--reason", "maintenance of the bar")

        error = told.get(timeout=WAIT_S)
        assert isinstance(error, hms.errors.ClosedByOperator)
        assert "maintenance of the bar" in str(error)
        again = consumer.receive(WAIT_S)
        assert (again.body, again.redelivered) == (b"coffee", True)
        again.ack()
        (row_again,) = command("client", "list", "--client-name", "barista")
        assert row_again["id"] != row["id"]
    assert "HMS-3006" in command("client", "show", str(row["id"]), code=1)
    assert "HMS-3006" in command("client", "close", "999", code=1)
