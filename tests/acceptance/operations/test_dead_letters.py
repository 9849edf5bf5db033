"""Dead letters against a real node: they say why, and a rules table handles them.

A long form gives the handlers as many letters as the environment says:

    HMS_LETTERS=5000 scripts/test tests/acceptance/operations/test_dead_letters.py
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.client.letter_rules.rules_handler import RulesHandler
from hms.client.letter_rules.rules_table import read_table
from tests.support.waiting import wait_until

CONFIG = {
    "hms": {
        "queue": {
            "orders": {"redelivery_limit": 1},
            "ALARM": {},
            "DEADQ": {},
            "DEADQ.MANUAL.INTERVENTION": {},
        }
    }
}
LETTERS = int(os.environ.get("HMS_LETTERS", "150"))
WAIT_S = 60
SAMPLE = """
* the guide's table, on one node
WAIT(NO) RETRYINT(1)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)
REASON(MQRC_PUT_INHIBITED) ACTION(RETRY) RETRY(2)
MSGTYPE(MQMT_REQUEST) REPLYQM(AAAA.*) +
    ACTION(FWD) FWDQ(DEADQ) FWDQM(&REPLYQM)
DESTQM(bbbb.1) action(fwd) fwdq(&DESTQ) header(no)
REPLYQM(CCCC.*) ACTION(FWD) FWDQ(ALARM)
PERSIST(MQPER_NOT_PERSISTENT) ACTION(DISCARD)
REPLYQM('?*') ACTION(FWD) FWDQ(DEADQ.MANUAL.INTERVENTION) FWDQM(&REPLYQM)
ACTION(FWD) FWDQ(DEADQ.MANUAL.INTERVENTION)
"""


@pytest.fixture
def node(emptied):
    """One for all tests."""
    return emptied


@pytest.fixture
def command(node):
    def run(*words, code=0, stdin=None):
        """What a command prints, as data; each line is one."""
        line = [*words, "--connect", node.address, "--json"]
        done = CliRunner().invoke(main, line, input=stdin)
        assert done.exit_code == code, f"{done.output} {done.exception}"
        return [json.loads(text) for text in done.stdout.splitlines()]

    return run


def give(node, messages, *, persistent=True):
    """Put messages into orders, and give each up for the reason that it names."""
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders", persistent=persistent)
        producer.send_many(messages)

    def listener(message):
        raise hms.Reject(f"of {message.body.decode()}", message.properties["Reason"])

    def is_over():
        shown = connection.administer("queue.show", {"name": "orders"})
        return not shown["waiting"] + shown["in_flight"]

    with hms.connect(node.address) as connection, connection.session() as session:
        session.consumer("orders").listen(listener)
        wait_until(is_over, timeout_s=WAIT_S)  # the letters may be handled already


def held(node, *queues):
    """Bodies by queue."""
    found = {}
    with hms.connect(node.address) as connection, connection.session() as session:
        for queue in queues:
            with session.browser(queue, oldest_first=True) as browser:
                found[queue] = sorted(m.body.decode() for m in browser)
    return found


def order(body, reason="REJECTED", reply_to=None, **properties):
    return hms.Message(body.encode(), {"Reason": reason, **properties}, reply_to=reply_to)


@pytest.mark.parametrize("transacted", [False, True])
def test_a_dead_letter_says_what_its_consumer_raised(node, command, transacted):
    """Not only the log of a process that is gone: the letter itself."""
    failed = threading.Event()

    def listener(message):
        failed.set()
        raise KeyError("no such table")

    with hms.connect(node.address) as connection:
        with connection.session() as session:
            session.producer("orders").send(b"two coffees", {"Table": 5})
        with connection.session(transacted=transacted) as session:
            session.consumer("orders").listen(listener)
            assert failed.wait(WAIT_S)
            letters = connection.admin.messages("queue:HMS.DLQ")
            wait_until(lambda: letters.count().count == 1, timeout_s=WAIT_S)
        with connection.session() as session, session.browser("HMS.DLQ") as browser:
            (letter,) = browser
            told = dict(letter.properties)
            copy = hms.Message(letter.body, dict(letter.properties))

    assert (told["$DeadReason"], told["$DeadText"]) == (
        "REDELIVERY_LIMIT",
        "KeyError: 'no such table'",
    )
    assert (told["Table"], told["$DeadOrigin"]) == (5, "queue:orders")
    assert dict(copy.properties) == {"Table": 5}
    (listed,) = command("dlq", "list")[0]
    (shown,) = command("dlq", "show", letter.message_id)
    (browsed,) = command("browse", "HMS.DLQ")
    assert listed["text"] == shown["text"] == browsed["$DeadText"] == told["$DeadText"]


def test_the_guides_table_runs_on_real_letters(node, command, tmp_path):
    """What goes to another node fails there, and the next rule takes it."""
    rules = tmp_path / "sample.rules"
    rules.write_text(SAMPLE)
    away = {"JMS_HMS_ReplyNode": "AAAA.1"}
    letters = [
        order("full", "QUEUE_FULL"),
        order("request", reply_to="queue:ALARM", **away),
        order("moved", JMS_HMS_DestinationNode="BBBB.1"),
        order("alarm", reply_to="queue:x", JMS_HMS_ReplyNode="CCCC.1"),
        order("plain"),
    ]
    give(node, letters)
    give(node, [order("fleeting")], persistent=False)
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer("HMS.DLQ").send(b"foreign")

    (checked,) = command("dlq", "check", str(rules))
    told = command("dlq", "handle", str(rules))

    assert (checked["rules"], checked["faults"]) == (8, [])
    assert held(node, "orders", "ALARM", "DEADQ", "DEADQ.MANUAL.INTERVENTION", "HMS.DLQ") == {
        "orders": ["full", "moved"],
        "ALARM": ["alarm"],
        "DEADQ": [],
        "DEADQ.MANUAL.INTERVENTION": ["plain", "request"],
        "HMS.DLQ": ["foreign"],
    }
    counts = [(one["matched"], one["done"], one["failed"]) for one in told[-1]["rules"]]
    assert counts == [
        *((1, 1, 0), (0, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 0), (1, 1, 0)),
        *((1, 0, 1), (2, 2, 0)),
    ]
    assert (told[-1]["left"], told[-1]["foreign"]) == (0, 1)


class _Killed(BaseException):
    """The handler's process is gone."""


class _Cut:
    """A connection of a handler that is killed at its nth command: before it is sent, or after it
    took effect."""

    def __init__(self, connection, at, *, is_after):
        self.node_name, self._connection = connection.node_name, connection
        self._left, self._is_after = at, is_after

    def administer(self, verb, arguments):
        self._left -= 1
        if self._left == 0 and not self._is_after:
            raise _Killed
        said = self._connection.administer(verb, arguments)
        if self._left == 0:
            raise _Killed
        return said


def handler(connection, text):
    clock = {"now_s": time.monotonic, "time_ms": lambda: 0, "sleep": lambda _: None}
    return RulesHandler(connection, read_table(text), **clock)


RULES = """WAIT(NO) RETRYINT(1)
REASON(QUEUE_FULL) ACTION(RETRY)
REASON(DECODE_ERROR) ACTION(FWD) FWDQ(DEADQ)
REASON(NOT_AUTHORIZED) ACTION(FWD) FWDQ(ALARM) HEADER(NO)
"""
PLACES = {
    "QUEUE_FULL": "orders",
    "DECODE_ERROR": "DEADQ",
    "NOT_AUTHORIZED": "ALARM",
    "REJECTED": "HMS.DLQ",
}


def mixed(count):
    reasons = list(PLACES)
    return [order(f"{n:06d}", reasons[n % len(reasons)]) for n in range(count)]


def is_as_wanted(node, count):
    found = held(node, *PLACES.values())
    wanted = {
        queue: [f"{n:06d}" for n in range(count) if list(PLACES)[n % len(PLACES)] == reason]
        for reason, queue in PLACES.items()
    }
    return found == wanted


def test_a_handler_that_is_killed_at_any_step_loses_and_doubles_nothing(node):
    """Each action is one command, so each letter is in one place; the next handler goes on."""
    give(node, mixed(8))
    with hms.connect(node.address) as connection:
        kills = 0
        for at in range(1, 100):
            try:
                handler(_Cut(connection, 1 + at % 3, is_after=at % 2 == 0), RULES).run()
                break
            except _Killed:
                kills += 1

    assert kills >= 6
    assert is_as_wanted(node, 8)


def test_two_handlers_at_once_do_each_thing_once(node):
    """While the letters still come."""
    done, faults = Counter(), []

    def work():
        try:
            with hms.connect(node.address) as connection:
                one = handler(connection, RULES)
                one.run()
                done.update(one.walk.counts.done.elements())
        except Exception as fault:  # noqa: BLE001 - told by the test
            faults.append(fault)

    give(node, mixed(LETTERS))
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S + LETTERS)
        assert not thread.is_alive()

    assert faults == []
    assert is_as_wanted(node, LETTERS)
    acted = [n for n in range(LETTERS) if list(PLACES)[n % len(PLACES)] != "REJECTED"]
    assert sum(done.values()) == len(acted)


def test_a_faulty_table_starts_nothing(node, command, tmp_path):
    """Every fault is named, and no letter is touched."""
    rules = tmp_path / "faulty.rules"
    rules.write_text("ACTION(DISCRAD)\nACTION(RETRY) HEADER(NO)\n")
    give(node, [order("plain")])

    (said,) = command("dlq", "check", str(rules), code=1)
    ran = CliRunner().invoke(main, ["dlq", "handle", str(rules), "--connect", node.address])

    assert [(one["line"], one["column"]) for one in said["faults"]] == [(1, 8), (2, 15)]
    assert ran.exit_code == 1
    assert "faulty.rules:2:15: HEADER" in f"{ran.output} {ran.exception}"
    assert held(node, "HMS.DLQ") == {"HMS.DLQ": ["plain"]}


def test_a_handler_that_is_told_to_read_a_faulty_table_keeps_the_old_one(node, tmp_path):
    """SIGHUP at night: a slip stops nothing; the next table without faults is taken."""
    rules, said = tmp_path / "night.rules", tmp_path / "said"
    rules.write_text("WAIT(YES)\nDESTQ(orders) ACTION(DISCARD)\nACTION(FWD) FWDQ(DEADQ)\n")
    line = [sys.executable, "-m", "hms.boot", "dlq", "handle", str(rules)]
    with said.open("wb") as out:
        running = subprocess.Popen([*line, "--connect", node.address], stdout=out, stderr=out)
    try:
        give(node, [order("first")])
        wait_until(lambda: held(node, "DEADQ")["DEADQ"] == ["first"], timeout_s=WAIT_S)
        for text in ("ACTION(DISCRAD)\n", "EXTENSIONS(YES)\nSELECTOR('a >') ACTION(DISCARD)\n"):
            rules.write_text(text)
            before = said.read_text().count("the old table stays")
            running.send_signal(signal.SIGHUP)
            wait_until(
                lambda before=before: said.read_text().count("the old table stays") > before,
                timeout_s=WAIT_S,
            )
        give(node, [order("second")])
        wait_until(lambda: held(node, "DEADQ")["DEADQ"] == ["first", "second"], timeout_s=WAIT_S)
        rules.write_text("WAIT(YES)\nDESTQ('orders') ACTION(FWD) FWDQ(ALARM)\n")
        running.send_signal(signal.SIGHUP)
        wait_until(lambda: "from now on" in said.read_text(), timeout_s=WAIT_S)
        give(node, [order("third")])
        wait_until(lambda: held(node, "ALARM")["ALARM"] == ["third"], timeout_s=WAIT_S)
    finally:
        running.kill()
        running.wait()
    assert "night.rules:1:8: ACTION" in said.read_text()
    assert "night.rules:2:10: SELECTOR" in said.read_text()


def test_an_unquoted_name_in_small_letters_is_warned_of_and_means_another_queue(
    node, command, tmp_path
):
    """G14: without quotes it is folded to capitals, and names of HMS have case."""
    rules = tmp_path / "small.rules"
    rules.write_text("WAIT(NO)\nDESTQ(orders) ACTION(DISCARD)\nACTION(FWD) FWDQ(alarm)\n")
    give(node, [order("plain")])

    (said,) = command("dlq", "check", str(rules))
    told = [(one["line"], one["column"], one["keyword"]) for one in said["warnings"]]
    assert (2, 7, "DESTQ") in told
    assert (3, 18, "FWDQ") in told
    command("dlq", "handle", str(rules))
    assert held(node, "ALARM", "HMS.DLQ") == {"ALARM": ["plain"], "HMS.DLQ": []}
