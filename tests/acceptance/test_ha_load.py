"""Many planned moves under mixed load, in both directions: no client is told of an error, nothing
comes again, nothing is doubled or lost, and the books balance (must show 7). Behind every fourth
move the machine that led is stopped and booted, as in a rolling restart.

Two processes with folders of their own, an etcd and a PostgreSQL. HMS_HA=full: 200 moves.
"""

import hashlib
import os
import statistics
import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import ClassVar

import pytest

import hms
from tests.acceptance.ha_rig import NOT_NOW, WAIT_S, connect
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
MOVES = int(os.environ.get("HMS_MOVES", "200")) if IS_FULL else 4
QUEUES = ("auto", "client", "listened", "in", "out", "files", "paid", "paid_out")
PATIENT_S = 10
"""The lease: no other move comes in between where a busy machine stands still."""
ROUNDS = 3
"""So many of its steps each client makes between two moves, at least."""


class Client(threading.Thread):
    """Does one thing again and again over a connection of its own, until it is told to end."""

    opened: ClassVar[list[hms.Connection]] = []

    def __init__(self, machines):
        super().__init__(daemon=True)
        self.faults, self.events, self.rounds, self.is_over = [], [], 0, False
        self.connection = connect(
            *machines, exception_listener=self.faults.append, event_listener=self.events.append
        )
        Client.opened.append(self.connection)
        self.open()
        self.start()

    def open(self):
        """What it needs."""

    def step(self):
        """One round."""

    def run(self):
        try:
            while not self.is_over:
                self.step()
                self.rounds += 1
            self.end()
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def end(self):
        """What is left to be done."""


class Sender(Client):
    """Sends to a queue, one after the other."""

    def __init__(self, machines, queue, *, persistent=True):
        self.queue, self.is_persistent, self.sent = queue, persistent, []
        self.longest_s, self._confirmed_at = 0.0, time.monotonic()
        super().__init__(machines)

    def open(self):
        session = self.connection.session()
        self.producer = session.producer(self.queue, persistent=self.is_persistent)

    def step(self):
        body = b"%s %d" % (self.queue.encode(), len(self.sent))
        self.producer.send(body)
        self.sent.append(body)
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._confirmed_at)
        self._confirmed_at = now
        threading.Event().wait(0.002)


class Receiver(Client):
    """Takes what comes to a queue; until everything that was sent is here."""

    ack = hms.AckMode.AUTO

    def __init__(self, machines, queue):
        self.queue, self.found, self.again = queue, [], []
        self.wanted = None
        super().__init__(machines)

    def open(self):
        self.session = self.connection.session(ack=self.ack)
        self.consumer = self.session.consumer(self.queue)

    def take(self, message):
        self.found.append(bytes(message.body))
        if message.redelivered or message.delivery_count > 1:
            self.again.append(bytes(message.body))

    def step(self):
        if (message := self.consumer.receive(0.2)) is not None:
            self.take(message)

    def end(self):
        wait_until(lambda: self.step() or self.wanted is not None, WAIT_S)
        wait_until(lambda: self.step() or len(self.found) >= self.wanted, WAIT_S)


class Manual(Receiver):
    """Acknowledges every few messages."""

    ack = hms.AckMode.CLIENT

    def step(self):
        held = None
        for _ in range(5):
            if (message := self.consumer.receive(0.05)) is not None:
                self.take(message)
                held = message
        if held is not None:
            self.session.ack()


class Listening(Receiver):
    """Has a listener, which takes its time."""

    def open(self):
        super().open()
        self.consumer.listen(self.hear)

    def hear(self, message):
        threading.Event().wait(0.005)
        self.take(message)

    def step(self):
        threading.Event().wait(0.05)


class Files(Receiver):
    """Saves the file of each message."""

    def take(self, message):
        path = self.folder / f"{len(self.found)}"
        message.save(path)
        self.found.append(hashlib.sha256(path.read_bytes()).digest())
        if message.redelivered:
            self.again.append(self.found[-1])
        path.unlink()


class FileSender(Client):
    """Sends files."""

    def open(self):
        self.sent = []
        self.producer = self.connection.session().producer("files")

    def step(self):
        data, path = os.urandom(400_000), self.folder / "source"
        path.write_bytes(data)
        self.producer.send(hms.Message.file(path))
        self.sent.append(hashlib.sha256(data).digest())


class Mover(Client):
    """Moves messages between two queues, some in each transaction."""

    def open(self):
        self.session = self.connection.session(transacted=True)
        self.consumer = self.session.consumer("in")
        self.producer = self.session.producer("out")
        self.again = []

    def step(self):
        message = self.consumer.receive(0.1)
        for _ in range(3):
            if message is None:
                break
            if message.redelivered:
                self.again.append(bytes(message.body))
            self.producer.send(message.body)
            message = self.consumer.receive(0)
        if message is not None:
            self.producer.send(message.body)
        self.session.commit()


class Paying(Client):
    """Transactions with a row in PostgreSQL and a message, in two phases."""

    def open(self):
        self.paid, self._numbers = [], count()

    def step(self):
        number = f"p{next(self._numbers)}"
        with self.connection.transaction(timeout_s=WAIT_S):
            hms.rm("pg").execute("INSERT INTO paid VALUES (%s)", (number,))
            word = hms.rm("hms").producer("paid")
            word.send(number.encode())
            word.close()
        self.paid.append(number.encode())


class Calling(Client):
    """Calls a service."""

    def open(self):
        self._numbers = count()

    def step(self):
        data = b"%d" % next(self._numbers)
        assert self.connection.call("ECHO", data, timeout_s=WAIT_S).data == data


@contextmanager
def closing_all():
    """No client goes on reconnecting beside the tests that follow."""
    try:
        yield
    finally:
        while Client.opened:
            with suppress(hms.HmsError):
                Client.opened.pop().close()


@pytest.fixture
def paying():
    with postgres_server({"max_prepared_transactions": "50"}) as server:
        server.ask("CREATE TABLE paid (id varchar(64) PRIMARY KEY)")
        yield server


def restart(one, two):
    """A machine that follows gets another release, say."""
    one.stop()
    one.boot()
    two.wait_for_both()


def go_on(clients, rounds):
    """Until each has made so many steps more, or has failed."""
    marks = [(one, one.rounds + rounds) for one in clients]
    wait_until(lambda: all(one.faults or one.rounds >= mark for one, mark in marks), WAIT_S)


def gap(senders, act):
    """The longest time without a confirmation that one of them sees meanwhile."""
    for one in senders:
        one.longest_s = 0.0
    act()
    go_on(senders, 1)
    return max(one.longest_s for one in senders)


def figures(name, gaps):
    """As the table of figures has them."""
    gaps = sorted(gaps)
    at = {"p50": statistics.median(gaps), "p99": gaps[int(0.99 * (len(gaps) - 1))], "max": gaps[-1]}
    shown = {f"{name}_gap_{word}_s": round(value, 2) for word, value in at.items()}
    return {f"{name}s": len(gaps)} | shown


def move(two, refused):
    """The other one leads. refused: gets why not, where that one was silent just then, as on a busy
    machine; it is said again, as an operator would."""
    while True:
        with connect(*two.machines) as operator:
            before = operator.administer("status")["replication"]
            try:
                operator.administer("replica.switchover")
            except hms.SwitchoverRefused as fault:
                if not NOT_NOW.search(str(fault)):
                    raise
                refused.append(str(fault))
            except hms.ConnectionLost:  # the machine may end before its answer is read
                if two.replication()["epoch"] > before["epoch"]:
                    break
            else:
                break
        two.wait_for_both()
    wait_until(lambda: two.replication()["replica"] != before["replica"], WAIT_S)
    two.wait_for_both()


@pytest.mark.timeout(600 + 30 * MOVES)
def test_planned_moves_under_mixed_load_are_noticed_by_nobody(tmp_path, paying, record_property):
    """Each client makes some steps between two moves; then all that was sent is there once."""
    config = {
        "hms": {"queue": {name: {} for name in QUEUES}},
        "rm": {"pg": {"kind": "postgresql", "open": paying.url}},
        "server": {"echo": {"module": "hms.boot.bench.echo", "MIN": 1, "MAX": 1}},
    }
    # No client that is late, of some dozens in one process, is taken for gone.
    node = {"replica_timeout_s": 1, "recovery_interval_s": 1.0, "heartbeat_s": 60}
    Files.folder = FileSender.folder = tmp_path
    with (
        arbiter(tmp_path) as decided_by,
        pair(tmp_path, {**decided_by, "lease_s": PATIENT_S}, node=node, **config) as two,
        closing_all(),
    ):
        two.boot()
        senders = {name: Sender(two.machines, name) for name in ("auto", "client", "listened")}
        senders["in"] = Sender(two.machines, "in")
        passing = Sender(two.machines, "paid_out", persistent=False)
        receivers = {
            "auto": Receiver(two.machines, "auto"),
            "client": Manual(two.machines, "client"),
            "listened": Listening(two.machines, "listened"),
            "out": Receiver(two.machines, "out"),
            "files": Files(two.machines, "files"),
            "paid": Receiver(two.machines, "paid"),
        }
        unlogged = Receiver(two.machines, "paid_out")
        files, mover = FileSender(two.machines), Mover(two.machines)
        paid, calls = Paying(two.machines), Calling(two.machines)
        active = [*senders.values(), passing, files, mover, paid, calls]
        every = [*active, *receivers.values(), unlogged]
        gaps, restarts, refused, sending = [], [], [], list(senders.values())
        for number in range(MOVES):
            go_on(every, ROUNDS)
            assert [one.faults for one in every if one.faults] == []
            gaps.append(gap(sending, lambda: move(two, refused)))
            if number % 4 == 3:
                restarts.append(gap(sending, lambda: restart(two.follower, two)))
        found = figures("move", gaps) | figures("restart", restarts) | {"refused": len(refused)}
        record_property("figures", found)
        for one in active:
            if one is not mover:
                one.is_over = True
                one.join(WAIT_S)
        sent = {
            **{name: senders[name].sent for name in ("auto", "client", "listened")},
            "out": senders["in"].sent,
            "files": files.sent,
            "paid": paid.paid,
        }
        found["confirmed"] = sum(map(len, sent.values()))
        for one in [*receivers.values(), unlogged]:
            one.is_over = True
        for name, one in receivers.items():
            one.wanted = len(sent[name])
        unlogged.wanted = 0
        for one in [*receivers.values(), unlogged]:
            one.join(2 * WAIT_S)
        mover.is_over = True
        mover.join(WAIT_S)

        assert [(type(one), one.faults) for one in every if one.faults] == []
        assert [(type(one), one.again) for one in receivers.values() if one.again] == []
        assert mover.again == []
        for name, one in receivers.items():
            assert sorted(one.found) == sorted(sent[name]), name
        assert receivers["auto"].found == sent["auto"]  # in order
        assert len(unlogged.found) == len(set(unlogged.found))  # at most once
        assert {row[0].encode() for row in paying.ask("SELECT id FROM paid")} == set(paid.paid)
        for one in every:
            assert {event.kind for event in one.events} <= {
                "moved",
                "reconnected",
                "reconnect_failed",
            }
        with connect(*two.machines) as connection:
            assert connection.administer("status")["replication"]["epoch"] == 1 + MOVES
