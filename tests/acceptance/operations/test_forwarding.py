"""Messages and dead letters that go to a queue of another node, over real links and kills.

A long form handles as many letters, and kills nodes as often, as the environment says:

    HMS_FORWARDED=3000 HMS_KILLS=30 scripts/test tests/acceptance/operations/test_forwarding.py
"""

import contextlib
import json
import os
import threading
import time
from collections import Counter

import pytest
from click.testing import CliRunner

import hms
import hms.testing
from hms.boot.cli import main
from hms.client.letter_rules.rules_handler import RulesHandler
from hms.client.letter_rules.rules_table import read_table
from hms.errors.catalogue import NodeNotUp
from tests.support.waiting import wait_until

CONFIG = {
    "hms": {"queue": {"orders": {}, "late": {}, "one": {"max_messages": 1}, "manual": {}}},
    "svrgroup": {
        f"g{n}": {"NODENAME": f"node{n}", "HMSHEARTBEAT": 8.0}  # a node that waits is not away
        for n in (1, 2)
    },
}
FORWARDED = int(os.environ.get("HMS_FORWARDED", "40"))
KILLS = int(os.environ.get("HMS_KILLS", "4"))
WAIT_S = 60
HANDLER_LIVES = 4
CONNECT = {"reconnect_interval_s": 0.05, "connect_timeout_s": 60, "request_timeout_s": 60}
RULES = """WAIT(NO) RETRYINT(1)
REASON(DECODE_ERROR) ACTION(FWD) FWDQ('late') FWDQM('node2')
REASON(NOT_AUTHORIZED) ACTION(FWD) FWDQ('late') FWDQM('node2') HEADER(NO)
REASON(QUEUE_FULL) ACTION(FWD) FWDQ('nowhere') FWDQM('node2')
REASON(REJECTED) ACTION(FWD) FWDQ('late') FWDQM('AAAA.1')
ACTION(FWD) FWDQ('manual')
"""
REASONS = ("DECODE_ERROR", "NOT_AUTHORIZED", "QUEUE_FULL", "REJECTED")


@pytest.fixture
def pair():
    """Two nodes that hear one another."""
    with hms.testing.node(config=CONFIG, nodes=2) as first:
        for one in first.nodes:
            await_link(one)
        yield first.nodes


def await_link(node):
    with hms.connect(node.address, **CONNECT) as connection:

        def is_up():
            return all(one["is_up"] for one in connection.administer("cluster.status")["members"])

        wait_until(is_up, timeout_s=WAIT_S)


def give_up(node, count):
    """Letters of each reason."""
    with hms.connect(node.address, **CONNECT) as connection, connection.session() as session:
        producer = session.producer("orders", priority=7)
        producer.send_many(
            hms.Message(b"%d" % n, {"Reason": REASONS[n % len(REASONS)]}) for n in range(count)
        )

        def listener(message):
            raise hms.Reject("no", message.properties["Reason"])

        session.consumer("orders").listen(listener)
        letters = connection.admin.messages("queue:HMS.DLQ")
        wait_until(lambda: letters.count().count >= count, timeout_s=WAIT_S)


def handler(connection, text=RULES, told=lambda _: None):
    clock = {"now_s": time.monotonic, "time_ms": lambda: 0, "sleep": time.sleep}
    return RulesHandler(connection, read_table(text), told=told, **clock)


def held(node, *queues):
    """How often each body waits in each queue."""
    found = {}
    with hms.connect(node.address, **CONNECT) as connection, connection.session() as session:
        for queue in queues:
            with session.browser(queue, oldest_first=True) as browser:
                found[queue] = Counter(int(m.body) for m in browser)
    return found


def wanted(count, *reasons):
    return Counter(n for n in range(count) if REASONS[n % len(REASONS)] in reasons)


def test_a_table_forwards_to_another_node_and_goes_on_where_that_refuses(pair, tmp_path):
    """FWDQM: what the other node has is done; a queue that it has not, and a node that is not
    there, are failures, and the next rule takes the letter."""
    here, there = pair
    give_up(here, FORWARDED)
    rules = tmp_path / "away.rules"
    rules.write_text(RULES)
    done = CliRunner().invoke(
        main, ["dlq", "handle", str(rules), "--connect", here.address, "--json"]
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]

    each = FORWARDED // 4
    counts = [(one["matched"], one["done"], one["failed"]) for one in said[-1]["rules"]]
    assert counts == [
        *[(each, each, 0)] * 2,
        *[(each, 0, each)] * 2,
        (2 * each, 2 * each, 0),
    ]
    assert {one["node"] for one in said[:-1] if one["line"] == 2} == {"node2"}
    assert held(here, "HMS.DLQ", "manual") == {
        "HMS.DLQ": Counter(),
        "manual": wanted(FORWARDED, "QUEUE_FULL", "REJECTED"),
    }
    assert held(there, "late") == {"late": wanted(FORWARDED, "DECODE_ERROR", "NOT_AUTHORIZED")}
    with hms.connect(there.address) as connection:
        rows = connection.admin.messages("queue:late").list(["$DeadReason", "$ReturnCount"])
    assert Counter(json.dumps(row["properties"]) for row in rows) == {
        '{"$DeadReason": "DECODE_ERROR"}': each,
        '{"$ReturnCount": 1}': each,
    }
    assert {row["priority"] for row in rows} == {7}


def test_an_operator_moves_messages_to_another_node(pair):
    """§4.2: they keep id, time and properties; a queue that is full there takes what it has room
    for, and the rest comes back; a file stays, and is counted."""
    here, there = pair
    with hms.connect(here.address) as connection, connection.session() as session:
        for n in range(5):
            session.producer("orders").send(b"%d" % n, {"N": n})
        before = {
            row["id"]: row["time_ms"] for row in connection.admin.messages("queue:orders").list()
        }

    def move(*words, code=0):
        line = ["message", "move", "queue:orders", "--to-node", "node2", *words]
        done = CliRunner().invoke(main, [*line, "--connect", here.address, "--json"])
        assert done.exit_code == code, f"{done.output} {done.exception}"
        return json.loads(done.stdout)

    assert move("--to", "late", "--selector", "N < 3", "--dry-run")["would_be_moved"] == 3
    moved = move("--to", "late", "--selector", "N < 3")
    assert (moved["moved"], moved["came_back"], moved["on_their_way"]) == (3, 0, 0)
    with hms.connect(there.address) as connection:
        rows = connection.admin.messages("queue:late").list(["N"])
    assert [(row["properties"]["N"], before[row["id"]] == row["time_ms"]) for row in rows] == [
        (n, True) for n in range(3)
    ]
    full = move("--to", "one", "--all", code=1)
    assert (full["moved"], full["came_back"]) == (1, 1)
    assert "one" in full["why"]
    assert held(here, "orders")["orders"].total() == 1
    assert "nowhere" in move("--to", "nowhere", "--all", code=1)["why"]
    itself = ["message", "move", "queue:orders", "--to", "late", "--to-node", "node1", "--all"]
    done = CliRunner().invoke(main, [*itself, "--connect", here.address])
    assert (done.exit_code, "node1 is the node that is asked" in done.output) == (2, True)
    with hms.connect(here.address) as connection:
        place = connection.admin.messages("queue:orders").everything()
        with pytest.raises(NodeNotUp, match="node9"):
            place.move(to="late", node="node9")


def test_messages_are_not_moved_to_a_node_that_is_gone():
    """As soon as that is known: they stay."""
    with hms.testing.node(config={"hms": CONFIG["hms"]}, nodes=2) as here:
        await_link(here)
        with hms.connect(here.address) as connection:
            place = connection.admin.messages("queue:orders").everything()
            here.nodes[1].kill()

            def is_refused():
                try:
                    place.move(to="late", node="node2")
                except NodeNotUp:
                    return True
                return False

            wait_until(is_refused, timeout_s=WAIT_S)
            connection.session().producer("orders").send(b"1")
            with pytest.raises(NodeNotUp):
                place.move(to="late", node="node2")
        assert held(here, "orders") == {"orders": Counter([1])}


class _HandlerKilledError(Exception):
    """Its process is gone, too."""


class _Killing:
    """A connection of a handler, at whose nth command a node is killed: before it is sent, or
    behind it. A few commands later the handler is killed."""

    def __init__(self, connection, doomed, at, *, is_after):
        self.node_name, self._connection = connection.node_name, connection
        self._doomed, self._left, self._is_after = doomed, at, is_after
        self.has_killed = False

    def administer(self, verb, arguments):
        self._left -= 1
        if self._left < -HANDLER_LIVES:
            raise _HandlerKilledError
        if self._left == 0 and not self._is_after:
            self._kill()
        try:
            return self._connection.administer(verb, arguments)
        finally:
            if self._left == 0 and self._is_after:
                self._kill()

    def _kill(self):
        self.has_killed = True
        self._doomed.kill()
        self._doomed.boot()


def test_what_is_forwarded_is_there_once_whichever_node_is_killed(pair):
    """Each node in turn, before and behind each command of the handler: in the end each letter is
    in one place."""
    here, there = pair
    give_up(here, FORWARDED)
    rules = RULES.replace("('late') FWDQM('node2')", "('late') FWDQM('node2') RETRY(100)")
    kills, at, is_over = 0, 0, False
    while kills < KILLS and not is_over:
        at += 1
        with hms.connect(here.address, **CONNECT, reconnect=False) as connection:
            killing = _Killing(connection, pair[at % 2], 1 + at % 8, is_after=at % 16 < 8)
            with contextlib.suppress(hms.HmsError, _HandlerKilledError):
                handler(killing, rules).run()
                is_over = True
        kills += killing.has_killed
        await_link(here)
    settle(here, rules)

    assert kills == KILLS
    assert held(here, "HMS.DLQ", "manual") == {
        "HMS.DLQ": Counter(),
        "manual": wanted(FORWARDED, "QUEUE_FULL", "REJECTED"),
    }
    assert held(there, "late") == {"late": wanted(FORWARDED, "DECODE_ERROR", "NOT_AUTHORIZED")}


def test_two_handlers_at_once_forward_each_letter_once(pair):
    """And count each action once."""
    here, there = pair
    give_up(here, FORWARDED)
    done, faults = Counter(), []

    def work():
        try:
            with hms.connect(here.address, **CONNECT) as connection:
                one = handler(connection)
                one.run()
                done.update(one.walk.counts.done.elements())
        except Exception as fault:  # noqa: BLE001 - told by the test
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S + FORWARDED)
        assert not thread.is_alive()

    assert faults == []
    each = FORWARDED // 4
    assert done == {0: each, 1: each, 4: 2 * each}
    assert held(here, "manual") == {"manual": wanted(FORWARDED, "QUEUE_FULL", "REJECTED")}
    assert held(there, "late") == {"late": wanted(FORWARDED, "DECODE_ERROR", "NOT_AUTHORIZED")}


def settle(here, rules):
    """Handle what is left, until nothing is, and nothing on its way."""
    with hms.connect(here.address, **CONNECT) as connection:
        letters = connection.admin.messages("queue:HMS.DLQ")

        def is_over():
            handler(connection, rules).run()
            return not letters.forwarded()["count"] and not letters.count().count

        wait_until(is_over, timeout_s=WAIT_S)


def test_a_file_does_not_go_to_another_node(pair, tmp_path):
    """It lies at its node: said, and the message stays."""
    here, _ = pair
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    with hms.connect(here.address) as connection:
        with connection.session() as session:
            session.producer("orders").send(hms.Message.file(path))
        place = connection.admin.messages("queue:orders").everything()
        outcome = place.move(to="late", node="node2")

    assert (outcome.count, dict(outcome.left)) == (0, {"file": 1})
