"""Every command on messages by selector, beside eight consumers and four producers, while the node
is killed again and again: books exact, each command in the audit, each row of the history with the
number of the command that caused it, the longest hold of the lock.

The long form, with as many messages, and kills, as the environment says:

    HMS_CROWD=1000000 HMS_CROWD_KILLS=50 \
        scripts/test tests/acceptance/operations/test_messages_crowd.py
"""

import json
import os
import threading
import time
from collections import Counter

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.client.message_admin import Outcome
from hms.history.audit_trail import entries_of_log
from hms.history.scan import plan, read_part
from hms.history.scope import Scope
from hms.records.audit import breaks_of
from tests.support.secured import document, secured_node
from tests.support.waiting import wait_until

CROWD = int(os.environ.get("HMS_CROWD", "4000"))
KILLS = int(os.environ.get("HMS_CROWD_KILLS", "3"))
CONSUMERS, PRODUCERS = 8, 4
WAIT_S = 120
CONNECT = {"reconnect_interval_s": 0.05, "connect_timeout_s": WAIT_S}
CONFIG = {
    "hms": {
        "queue": {
            "orders": {"expired_to": "old"},
            **{name: {} for name in ("late", "done", "old", "copies")},
        }
    }
}
KINDS = ("take", "take", "take", "stay", "move", "delete", "expire", "carry")
"""JMSTypes, by number: consumers get the first, and each other is for a command."""
QUEUES = ("orders", "late", "done", "old")
AT_ONCE = 2000
ATTEMPTS = 10


def kind_of(number):
    return KINDS[number % len(KINDS)]


def numbered(numbers):
    return (hms.Message(b"%d" % n, {"N": n}, type=kind_of(n)) for n in numbers)


class Crowd:
    """Who sends and who receives, over kills."""

    def __init__(self, node):
        self.sent, self.unsure = set(), set()
        self.received, self.seen = set(), set()
        self.again = Counter()
        self.faults = []
        self._node, self._stop = node, threading.Event()
        self._lock = threading.Lock()
        works = [(self._send, n) for n in range(PRODUCERS)]
        works += [(self._receive, n) for n in range(CONSUMERS)]
        self._threads = [threading.Thread(target=self._run, args=one) for one in works]

    def _run(self, work, number):
        try:
            work(number)
        except Exception as fault:  # noqa: BLE001 - told by the test
            self.faults.append(fault)

    def _send(self, lane):
        number = CROWD + lane
        with hms.connect(self._node.address, **CONNECT) as connection:
            producer = connection.session().producer("orders")
            while not self._stop.is_set():
                try:
                    producer.send(b"%d" % number, {"N": number}, type=kind_of(number))
                    self.sent.add(number)
                except hms.HmsError:
                    self.unsure.add(number)
                number += PRODUCERS
                self._stop.wait(0.005)

    def _receive(self, _):
        with hms.connect(self._node.address, **CONNECT) as connection:
            session = connection.session(ack=hms.AckMode.CLIENT)
            consumer = session.consumer("orders", selector="JMSType = 'take'", prefetch=50)
            while not self._stop.is_set():
                try:
                    message = consumer.receive(timeout_s=0.2)
                    if message is None:
                        continue
                    number = int(message.body)
                    self.seen.add(number)
                    message.ack()
                except hms.HmsError:
                    continue
                with self._lock:
                    self.again[number] += number in self.received
                    self.received.add(number)
                self._stop.wait(0.002)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


class Operator:
    """Gives one command after the other, each again until it is done; counts what it was told."""

    def __init__(self, node, folder):
        self._node, self._folder, self._runs = node, folder, 0
        self.done, self.given, self.cut = Counter(), Counter(), 0
        self.deleted = 0

    def _until_done(self, what, command):
        for attempt in range(ATTEMPTS):
            self.given[what] += 1
            try:
                with hms.connect(self._node.address, **CONNECT, reconnect=False) as connection:
                    outcome = command(connection.admin)
            except hms.HmsError:
                self.cut += 1
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            self.done[what] += outcome.count if isinstance(outcome, Outcome) else 1
            return

    def round(self):
        """Every command once, by selector."""

        def place(admin, queue, selector, **more):
            return admin.messages(f"queue:{queue}").where(selector, limit=AT_ONCE, **more)

        self._until_done(
            "message.move", lambda a: place(a, "orders", "JMSType = 'move'").move(to="late")
        )
        self._until_done(
            "message.move", lambda a: place(a, "late", "JMSType = 'move'").paused().move(to="done")
        )
        self._until_done(
            "message.move",
            lambda a: (
                place(a, "done", "JMSType = 'move'", newest_first=True)
                .where(limit=200)
                .atomic()
                .move(to="late")
            ),
        )
        self._until_done(
            "message.copy", lambda a: place(a, "late", "JMSType = 'move'").copy(to="copies")
        )
        self._until_done("message.delete", lambda a: place(a, "copies", "N >= 0").delete())
        self._until_done(
            "message.delete", lambda a: place(a, "orders", "JMSType = 'delete'").delete()
        )
        self._until_done(
            "message.expire", lambda a: place(a, "orders", "JMSType = 'expire'").expire()
        )
        self._until_done(
            "message.alter", lambda a: place(a, "late", "JMSPriority = 4").alter(priority=7)
        )
        self._until_done("message.list", lambda a: place(a, "orders", "N >= 0").list(["N"]))
        self._until_done("message.list", lambda a: place(a, "orders", "JMSType = 'stay'").count())
        self._until_done("message.view", self._view)
        self._carry()

    def _view(self, admin):
        rows = admin.messages("queue:orders").where("JMSType = 'stay'", limit=1).list()
        return admin.view("queue:orders", rows[0]["id"]) if rows else None

    def _carry(self):
        """Out with a file, and in again: what a cut left in the queue is removed by its id."""
        self._runs += 1
        file = self._folder / f"{self._runs}.jsonl"
        self._until_done(
            "message.move",
            lambda a: (
                a.messages("queue:orders").where("JMSType = 'carry'", limit=300).move(to="done")
            ),
        )
        self._command("export", "queue:done", "--to", str(file), "--replace",
                      "--selector", "JMSType = 'carry'")  # fmt: skip
        ids = [json.loads(line)["id"] for line in file.read_bytes().splitlines()[1:-1]]
        if ids:
            self._until_done(
                "message.delete", lambda a: a.messages("queue:done").where(ids=ids).delete()
            )
            self._command("import", str(file), "--into", "late", "--run", f"run {self._runs}")

    def _command(self, *words):
        for _ in range(ATTEMPTS):
            with hms.connect(self._node.address, **CONNECT):
                pass  # the node is there, for a moment at least
            line = ["message", *words, "--connect", self._node.address, "--json"]
            done = CliRunner().invoke(main, line)
            self.given[f"message {words[0]}"] += 1
            if done.exit_code == 0:
                self.done[f"message {words[0]}"] += 1
                return
            self.cut += 1
        raise AssertionError(f"{words}: {done.output} {done.exception}")


def holds(node):
    """The longest hold of the engine's lock since boot."""
    with hms.connect(node.address, **CONNECT, reconnect=False) as connection:
        return {
            name: value
            for name, value in connection.administer("status").items()
            if name.startswith("lock_held_max")
        }


def where(node):
    """In which queue each body waits, and how often, when nobody has any of them."""
    found = {}
    with hms.connect(node.address, **CONNECT) as connection, connection.session() as session:

        def is_settled():
            shown = [connection.administer("queue.show", {"name": name}) for name in QUEUES]
            return not any(one["in_flight"] for one in shown)

        wait_until(is_settled, timeout_s=WAIT_S)
        for queue in QUEUES:
            with session.browser(queue, oldest_first=True) as browser:
                found[queue] = Counter(int(message.body) for message in browser)
    return found


def kill_beside(node, operator):
    """Kill the node every few commands of an operator: the longest hold of all its lives, how long
    each boot took, and what went wrong."""
    worst, boots, faults, is_over = [], [], [], threading.Event()

    def operate():
        try:
            while not is_over.is_set():
                operator.round()
        except Exception as fault:  # noqa: BLE001 - told by the test
            faults.append(fault)

    thread = threading.Thread(target=operate)
    thread.start()
    while len(boots) < KILLS and thread.is_alive():
        wanted = sum(operator.given.values()) + 3 + len(boots) % 5
        wait_until(
            lambda wanted=wanted: sum(operator.given.values()) >= wanted or faults,
            timeout_s=WAIT_S,
        )
        worst.append(holds(node))
        node.kill()
        at = time.monotonic()
        node.boot()
        boots.append(time.monotonic() - at)
    is_over.set()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "the operator's round does not end"
    worst.append(holds(node))
    return max(worst, key=lambda one: one["lock_held_max_cpu_ms"]), boots, faults


ROWS = {
    "message.move": "moved",
    "message.alter": "moved",
    "message.copy": "forwarded",
    "message.delete": "purged",
    "message.expire": "expired",
}
"""What each command leaves in the history."""


def rows_of(store):
    """In the log and its history: how often each event was caused by each order."""
    found = Counter()
    for part in plan(store, Scope()):
        for batch in read_part(part, Scope(), ("event", "operation")):
            found.update((one.event, one.operation) for one in batch)
    return found


def check_history(rows, commands, done):
    """Each row that only an operator can cause names an order of its kind, and what commands were
    told is there; a command that was cut may have done more."""
    by_command = Counter()
    for (event, number), count in rows.items():
        assert number is None or number in commands, (event, number)
        by_command[event, commands.get(number)] += count
    for event in ("moved", "purged", "expired", "forwarded"):
        assert by_command[event, None] == 0, (event, "without an order")
    assert {(event, command) for event, command in by_command if event in ROWS.values()} <= {
        *((event, command) for command, event in ROWS.items()),
        *(("forwarded", command) for command in ("message.move", "message.alter")),
        ("forwarded", "message.expire"),
    }
    for command, event in ROWS.items():
        assert by_command[event, command] >= done[command], command
    return by_command


@pytest.mark.timeout(3600 + CROWD // 200)
def test_books_are_exact_beside_a_crowd_and_kills(tmp_path, record_property):
    """P6 and P9: each message is in one place, or received, or deleted as one that may be."""
    begun = time.monotonic()
    with secured_node(tmp_path, document(), CONFIG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send_many(numbered(range(CROWD)))
        filled_s = time.monotonic() - begun
        operator = Operator(node, tmp_path)
        with Crowd(node) as crowd:
            worst, boots, faults = kill_beside(node, operator)
        found = where(node)
        store = node.store
        node.stop()
        entries = list(entries_of_log(store))
        rows = rows_of(store)

    assert faults == crowd.faults == []
    there = sum(found.values(), Counter())
    known = {*range(CROWD), *crowd.sent}
    orders = {entry.number: entry.command for entry in entries if entry.result == 0}
    told = Counter(orders.values())
    in_history = check_history(rows, orders, operator.done)
    figures = {
        "messages": CROWD,
        "kills": len(boots),
        "sent_beside": len(crowd.sent),
        "received": len(crowd.received),
        "received_again": sum(crowd.again.values()),
        "given": dict(operator.given),
        "cut": operator.cut,
        "done": dict(operator.done),
        "audited": dict(told),
        "in_history": {f"{c} {e}": n for (e, c), n in in_history.items() if c in ROWS},
        "boot_s_max": round(max(boots), 1),
        "fill_s": round(filled_s, 1),
        "seconds": round(time.monotonic() - begun, 1),
        **worst,
    }
    record_property("figures", figures)
    print(json.dumps(figures))
    assert {n for n, count in there.items() if count > 1} == set(), "doubled"
    assert crowd.received & {*there} == set(), "received, and there"
    gone = known - {*there} - crowd.received - crowd.seen
    assert {kind_of(n) for n in gone} <= {"delete"}, "lost"
    assert {*there} - known - crowd.unsure == set(), "unknown"
    assert {kind_of(n) for n in found["old"]} <= {"expire"}
    assert {kind_of(n) for n in found["late"]} <= {"move", "carry"}
    assert list(breaks_of(entries)) == []
    for verb in ("move", "copy", "delete", "expire", "alter"):
        assert told[f"message.{verb}"] > 0, verb
