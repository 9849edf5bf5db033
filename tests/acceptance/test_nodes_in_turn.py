"""Two nodes that know nothing of each other, both given to clients, killed in turn under load.

Each client keeps books of what it was told: a send or commit that was confirmed is there exactly
once, what was rolled back is nowhere, what is in doubt is there once or not at all, and nothing is
received for good twice. HMS_KILLS=50 is the long form.
"""

import contextlib
import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from kills_rig import sized

import hms
from hms.testing import node
from tests.support.waiting import drained

KILLS = sized("HMS_KILLS", 4)
WAIT_S = 60
CONFIG = {"hms": {"queue": {"work": {}}}}
CLIENT = {"request_timeout_s": 9, "reconnect_interval_s": 0.2}
BACKLOG_MAX = 2_000
ASYNC = 40
IN_DOUBT = (
    hms.SendInDoubt,
    hms.CommitInDoubt,
    hms.AcknowledgeLost,
    hms.ConnectionLost,
    hms.RequestTimeout,
)


class Books:
    """What the clients were told, by message."""

    def __init__(self):
        self.told = {}
        self.taken, self.perhaps_taken = Counter(), Counter()
        self.steps = Counter()
        self.faults = []
        self.is_over = False
        self._left_behind = 0
        self._changed = threading.Condition()

    def add(self, who, keys, outcome):
        """A client was told that of the sending or the receiving of messages."""
        with self._changed:
            self.steps[who] += 1
            for key in keys:
                if who.startswith("send"):
                    self.told[key] = outcome
                elif outcome == "done":
                    self.taken[key] += 1
                elif outcome == "in doubt":
                    self.perhaps_taken[key] += 1
            self._changed.notify_all()

    def until(self, is_so):
        """Wait until it is so, or the run is over."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.is_over or is_so(), WAIT_S)

    def wait_for_steps(self, names, count):
        """Until each of these clients was told of so many outcomes more."""
        before = self.steps.copy()
        self.until(lambda: all(self.steps[name] >= before[name] + count for name in names))
        assert not self.faults

    @property
    def _backlog(self):
        return len(self.told) - len(self.taken)

    def has_room(self):
        """Whether those who receive keep up, where they are now."""
        return self._backlog - self._left_behind < BACKLOG_MAX

    def leave_behind(self):
        """The clients may move: what waits at this node is out of reach meanwhile."""
        with self._changed:
            self._left_behind = self._backlog
            self._changed.notify_all()

    def end(self):
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def fail(self, fault):
        self.faults.append(fault)
        self.end()

    def wrong(self, left):
        """(doubled, lost, of which more is there than was told), given what the queues hold."""
        doubled, lost, untrue = [], [], []
        for key in {*self.told, *self.taken, *self.perhaps_taken, *left}:
            least = left[key] + self.taken[key]
            outcome = self.told[key]
            if least > 1:
                doubled.append(key)
            elif outcome == "done" and least + self.perhaps_taken[key] < 1:
                lost.append(key)
            elif outcome == "rolled back" and least + self.perhaps_taken[key]:
                untrue.append(key)
        return doubled, lost, untrue


class Client:
    """A client of both nodes: what it does again and again, until the run is over."""

    def __init__(self, books, addresses, name, **session):
        self.books, self.name = books, name
        self.conn = hms.connect(addresses, **CLIENT)
        self.session = self.conn.session(**session)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def end(self):
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.conn.close()

    def _run(self):
        try:
            number = 0
            while not self.books.is_over:
                number += 1
                self.work(number)
        except BaseException as fault:
            self.books.fail(fault)
            raise

    def tell(self, keys, doing):
        """Do it, and write down what became of it."""
        outcome = "done"
        try:
            doing()
        except IN_DOUBT:
            outcome = "in doubt"
        except hms.TransactionRolledBack:
            outcome = "rolled back"
        self.books.add(self.name, keys, outcome)

    def finish(self, keys, doing):
        """Do it in the transaction and commit; if it cannot be done, roll back."""
        try:
            doing()
        except (*IN_DOUBT, hms.TransactionRolledBack):
            with contextlib.suppress(hms.HmsError):
                self.session.rollback()
            self.books.add(self.name, keys, "rolled back")
        else:
            self.tell(keys, self.session.commit)


class Sender(Client):
    """Sends without waiting, and waits."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._producer = self.session.producer("work")

    def work(self, number):
        self.books.until(self.books.has_room)
        keys = [b"%s-%d-%d" % (self.name.encode(), number, n) for n in range(ASYNC)]
        sent = [(key, self._producer.send_async(key)) for key in keys[:-1]]
        self.tell(keys[-1:], lambda: self._producer.send(keys[-1]))
        for key, future in sent:
            self.tell([key], lambda future=future: future.result(WAIT_S))


class Committer(Client):
    """Sends two messages in each transaction."""

    def __init__(self, *arguments):
        super().__init__(*arguments, transacted=True)
        self._producer = self.session.producer("work")

    def work(self, number):
        self.books.until(self.books.has_room)
        keys = [b"%s-%d-%d" % (self.name.encode(), number, n) for n in range(2)]
        self.finish(keys, lambda: self._producer.send_many(keys))


class Receiver(Client):
    """Receives a few in each transaction, which is committed."""

    def __init__(self, *arguments):
        super().__init__(*arguments, transacted=True)
        self._consumer = self.session.consumer("work", prefetch=50)

    def work(self, _):
        keys = []
        while len(keys) < 5 and (message := self._consumer.receive(0.2)) is not None:
            keys.append(message.body)
        if keys:
            self.tell(keys, self.session.commit)


class Acker(Client):
    """Acknowledges each message."""

    def __init__(self, *arguments):
        super().__init__(*arguments, ack=hms.AckMode.CLIENT)
        self._consumer = self.session.consumer("work", prefetch=50)

    def work(self, _):
        with contextlib.suppress(hms.AcknowledgeLost):  # of one before, which comes again
            message = self._consumer.receive(0.2)
            if message is not None:
                self.tell([message.body], message.ack)


def left_in(one):
    """What a node's queue still holds."""
    with hms.connect(one.address) as conn, conn.session() as session:
        return Counter(message.body for message in drained(conn, session.consumer("work")))


@pytest.mark.timeout(300 + 30 * KILLS)
def test_nothing_is_doubled_lost_or_denied_when_nodes_die_in_turn(record_property):
    """169 sends were stored twice in three hops, and 42 commits denied, 10 of them wrongly."""
    books = Books()
    with ExitStack() as stack:
        nodes = [stack.enter_context(node(config=CONFIG)) for _ in range(2)]
        addresses = [one.address for one in nodes]
        clients = [
            Sender(books, addresses, "send"),
            Committer(books, addresses, "send-in-transaction"),
            Receiver(books, addresses, "take-in-transaction"),
            Acker(books, addresses, "take"),
        ]
        senders = [one.name for one in clients[:2]]
        stack.callback(books.end)
        for one in clients:
            one.start()
        for kill in range(KILLS):
            books.wait_for_steps(senders, 20)
            victim = addresses.index(clients[0].conn.link.address)
            nodes[victim].kill()
            books.leave_behind()
            if kill % 2:  # the clients move to the other node, else they wait for this one
                books.wait_for_steps(senders, 5)
            nodes[victim].boot(warm=True)
        books.wait_for_steps(senders, 20)
        books.end()
        for one in clients:
            one.end()
        left = sum((left_in(one) for one in nodes), Counter())

    assert not books.faults
    doubled, lost, untrue = books.wrong(left)
    figures = Counter(books.told.values())
    record_property("figures", {"kills": KILLS, "sent": len(books.told), **figures})
    assert (doubled, lost, untrue) == ([], [], [])
    assert figures["done"]
