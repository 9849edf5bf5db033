"""What stands in no log: bodies and values of properties, unless log_payloads lets (SE-10)."""

from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.testing import node as booted
from tests.support.waiting import wait_until

WAIT_S = 60
BODY, VALUE = "body-7f3a91", "value-58c2d0"
SERVER = {"module": "failing_services", "MIN": 1, "python_path": [str(Path(__file__).parent)]}
QUEUES = {
    "orders": {"max_messages": 3, "limit_behavior": "REJECT_NEWEST"},
    "judged": {"listener": "JUDGE"},
    "failing": {"listener": "FAIL", "redelivery_limit": 1},
}


def _config(*, log_payloads):
    own = {"log_level": "DEBUG", "log_payloads": log_payloads}
    return {"hms": {"queue": QUEUES}, "server": {"failing": SERVER}, "node": {"node1": own}}


def _provoke(conn):
    """Sends, a full queue, a failed call, dead letters of two kinds, a client's own listener."""
    with conn.session() as session, conn.session() as other:
        for queue in ("judged", "failing"):
            session.producer(queue).send(BODY, {"Who": VALUE})
        orders = session.producer("orders")
        for _ in range(3):
            orders.send(BODY, {"Who": VALUE})
        with pytest.raises(hms.errors.QueueFull):
            orders.send(BODY, {"Who": VALUE})
        with pytest.raises(hms.errors.ServiceCallFailed):
            conn.call("FAIL", BODY, timeout_s=WAIT_S)

        def refuse(_message):
            raise hms.Reject("not ours")

        other.consumer("orders").listen(refuse)
        letters = session.consumer("HMS.DLQ")
        for _ in range(5):
            assert letters.receive(WAIT_S).body == BODY


def test_no_body_and_no_value_of_a_property_is_in_a_log(caplog):
    """At DEBUG, of node, services and client, over all that fails."""
    with booted(config=_config(log_payloads=False)) as node:
        with hms.connect(node.address, request_timeout_s=WAIT_S) as conn, caplog.at_level("DEBUG"):
            _provoke(conn)
            alerts = {one["alert"] for one in conn.administer("status")["alerts"]}
        node.stop()
        assert "service FAIL failed" in node.log
        assert "not ours" in node.log
        assert "not ours" in caplog.text
        assert "log_payloads" not in alerts
        for text in (node.log, caplog.text):
            assert BODY not in text
            assert VALUE not in text


def test_payloads_are_logged_for_a_while_and_by_an_order():
    """By services that run already and by those that are started later; it ends by itself, and is
    in the audit as each order is."""
    with (
        booted(config=_config(log_payloads=False)) as node,
        hms.connect(node.address, request_timeout_s=WAIT_S) as conn,
    ):
        tries = count()

        def is_shown():
            """The line is written before the answer comes."""
            body = f"{BODY}-{next(tries)}"
            with pytest.raises(hms.errors.ServiceCallFailed):
                conn.call("FAIL", body, timeout_s=WAIT_S)
            return f"service FAIL was given: '{body}'" in node.log

        def alerts():
            return {one["alert"] for one in conn.administer("alert.list")["active"]}

        assert not is_shown()
        words = ["log", "payloads", "on", "--for", "0", "--connect", node.address]
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, done.output) == (0, "payloads of failures are logged\n")
        wait_until(is_shown)
        wait_until(lambda: "log_payloads" in alerts())
        conn.administer("server.restart", {"name": "failing"})
        wait_until(lambda: node.log.count("runs as process") == 2)
        assert is_shown()
        words[2:5] = ["on", "--for", "1s"]
        assert CliRunner().invoke(main, words).output == "payloads of failures are logged for 1 s\n"
        wait_until(lambda: not is_shown())
        wait_until(lambda: "log_payloads" not in alerts())
        assert "payloads at which services fail are not logged again" in node.log


def test_log_payloads_shows_what_a_service_failed_at_and_is_an_alert():
    """For as long as a fault is looked for; long ones are cut, and forge no line."""
    with booted(config=_config(log_payloads=True)) as node:
        with hms.connect(node.address, request_timeout_s=WAIT_S) as conn:
            wait_until(
                lambda: "log_payloads" in {a["alert"] for a in conn.administer("status")["alerts"]}
            )
            _provoke(conn)
            with pytest.raises(hms.errors.ServiceCallFailed):
                conn.call("FAIL", "line\nERROR forged " + "x" * 5000, timeout_s=WAIT_S)
        node.stop()
        assert f"service FAIL was given: '{BODY}'" in node.log
        assert f"service JUDGE was given: '{BODY}', properties" in node.log
        assert VALUE in node.log
        assert not any(line.startswith("ERROR forged") for line in node.log.splitlines())
        assert "x" * 2000 not in node.log
