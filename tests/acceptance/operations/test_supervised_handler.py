"""[dlq.NAME]: a handler of dead letters that the node starts, and starts again."""

import json
import os
import signal

from click.testing import CliRunner

import hms
import hms.testing
from hms.boot.cli import main
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

WAIT_S = 60
QUEUES = {"orders": {"redelivery_limit": 1}, "manual": {}, "other": {}}
TABLE = "WAIT(NO) RETRYINT(1)\nACTION(FWD) FWDQ('{}') HEADER(NO)\n"


def configured(rules, **more):
    return {"hms": {"queue": QUEUES}, "dlq": {"night": {"rules": str(rules), **more}}}


def dead_letter(address, **settings):
    """One of the queue orders; its id."""
    with hms.connect(address, **settings) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        sent = session.producer("orders").send(b"coffee").message_id
        consumer = session.consumer("orders", prefetch=1)
        assert consumer.receive(WAIT_S).message_id == sent
        session.recover()
        return sent


def waiting(connection, queue):
    return connection.administer("queue.show", {"name": queue})["waiting"]


def command(node, *words, code=0):
    line = [*words, "--config", str(node.config_file), "--json"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == code, f"{done.output} {done.exception}"
    return json.loads(done.stdout) if not code else f"{done.output} {done.exception}"


def handler_of(connection):
    (found,) = connection.administer("server.list")
    assert found["name"] == "_dlq.night"
    return found


def test_the_node_keeps_a_handler_running_and_takes_another_table(tmp_path):
    """Through WAIT(NO), a kill, a faulty table and one that is another."""
    rules = tmp_path / "night.rules"
    rules.write_text(TABLE.format("manual"))
    with (
        hms.testing.node(config=configured(rules)) as node,
        hms.connect(node.address) as connection,
    ):
        for count in (1, 2):
            dead_letter(node.address)
            wait_until(lambda n=count: waiting(connection, "manual") == n, WAIT_S)
        (pid,) = handler_of(connection)["pids"]
        os.kill(pid, signal.SIGKILL)
        dead_letter(node.address)
        wait_until(lambda: waiting(connection, "manual") == 3, WAIT_S)
        assert handler_of(connection)["pids"] != [pid]

        rules.write_text("ACTION(FWD) FWDQ('other'\n")
        said = command(node, "dlq", "reload", "night", code=1)
        assert "night.rules:1" in said
        dead_letter(node.address)
        wait_until(lambda: waiting(connection, "manual") == 4, WAIT_S)

        rules.write_text(TABLE.format("other"))
        assert command(node, "dlq", "reload", "night") == {"rules": 1}
        dead_letter(node.address)
        wait_until(lambda: waiting(connection, "other") == 1, WAIT_S)
        assert (waiting(connection, "manual"), waiting(connection, "HMS.DLQ")) == (4, 0)
        assert "there is no [dlq.day]" in command(node, "dlq", "reload", "day", code=2)


def test_a_table_that_is_faulty_at_the_boot_is_told_and_the_node_boots(tmp_path):
    """Dead letters are no reason to take no messages."""
    rules = tmp_path / "night.rules"
    rules.write_text("ACTION(NONSENSE)\n")
    with (
        hms.testing.node(config=configured(rules)) as node,
        hms.connect(node.address) as connection,
    ):
        wait_until(lambda: f"{rules}:1" in node.log, WAIT_S)
        wait_until(lambda: "exit code 1" in handler_of(connection)["failing"], WAIT_S)
        sent = dead_letter(node.address)
        rules.write_text(TABLE.format("manual"))
        wait_until(lambda: waiting(connection, "manual") == 1, WAIT_S)
        with connection.session() as session, session.browser("manual") as browser:
            assert [one.message_id for one in browser] == [sent]


def test_a_handler_of_a_secured_node_has_the_rights_of_its_user(tmp_path):
    """And no others: what it may not do stays, and is told."""
    rules, secret = tmp_path / "night.rules", tmp_path / "night.password"
    rules.write_text(TABLE.format("manual"))
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    held = document(
        letters=[
            *(
                "view node:*",
                "view queue:*",
                "browse queue:HMS.DLQ",
                "purge queue:HMS.DLQ",
                "manage queue:HMS.DLQ",
            ),
            "produce queue:manual",
        ]
    )
    own = {"user": "letters", "password": f"file:{secret}"}
    with (
        secured_node(tmp_path, held, configured(rules, **own)) as node,
        hms.connect(node.address) as connection,
    ):
        dead_letter(node.address)
        wait_until(lambda: waiting(connection, "manual") == 1, WAIT_S)
        rules.write_text(TABLE.format("other"))
        command(node, "dlq", "reload", "night")
        dead_letter(node.address)
        wait_until(lambda: "permission to produce queue:other" in node.log, WAIT_S)
        assert (waiting(connection, "other"), waiting(connection, "HMS.DLQ")) == (0, 1)
        assert PASSWORD not in node.log
