"""A client that does at random whatever a client may do."""

import contextlib
import random

from hms.engine.effects import Deliver
from hms.engine.engine import ConsumerRequest, Return
from hms.engine.schedule.schedule_plans import Plan
from hms.errors.catalogue import TransactionRolledBack
from hms.errors.tree import HmsError
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages
from tests.support.branch_walk import SESSION, BranchSteps

QUEUES, SUBSCRIPTIONS = ("a", "b", "c"), ("one", "two")
PLACES = (*(f"queue:{name}" for name in (*QUEUES, "HMS.DLQ")), "subscription:one@t")
HUGE_UID = (1 << 64) - 5
"""A client's number as a client may choose it: above what a database takes as it is."""


class Walk(BranchSteps):
    """One client that does whatever a client may do, chosen by a seed."""

    def __init__(self, node, seed):
        self.node, self.random = node, random.Random(seed)
        self.sequences = {}
        self.connections = 0
        self.connect()

    def connect(self):
        """A client with two sessions, producers for everything and consumers everywhere."""
        self.connections += 1
        number, engine = self.connections, self.node.engine
        uid = self.random.choice((77, 78, HUGE_UID))
        engine.open_connection(number, uid, "", "")
        self.out, self.handles = {}, {}
        for session, kind in ((1, ""), (2, "transacted"), (SESSION, "xa")):
            engine.open_session(number, session, 2 if session == 1 else 0, kind)
            for i, (what, name) in enumerate(
                (*(("queue", name) for name in QUEUES), ("topic", "t")), 1
            ):
                producer = session * 10 + i
                engine.open_producer(number, producer, session, what, name)
                memory = engine.state.memories.producer(uid, producer)
                self.sequences[producer] = memory.last_sequence + 1
        self.commit_number = engine.state.memories.last_commit(uid, 2)
        for i, name in enumerate(QUEUES, 1):
            self._consume(10 + i, 1, "queue", name)
            self._consume(20 + i, 2, "queue", name)
            self._consume(40 + i, SESSION, "queue", name)
        for i, name in enumerate(SUBSCRIPTIONS, 1):
            self._consume(30 + i, 1, "topic", "t", durable=name)

    def _consume(self, handle, session, kind, destination, durable=""):
        node = self.node
        selector = "Color = 'red'" if durable == "two" else ""
        request = ConsumerRequest(
            handle, session, kind, destination, 0, durable=durable, selector=selector
        )
        at = (self.connections, request, 1, node.now_ms)
        self.handles[handle] = 0
        self._run(lambda fx: node.engine.open_consumer(*at, fx))

    def step(self):
        """One thing that a client may do."""
        self.node.now_ms += self.random.randrange(50)
        self.random.choice(
            (
                *(self.send,) * 4,
                *(self.credit,) * 4,
                *(self.settle,) * 5,
                self.commit,
                *(self.branch,) * 6,
                self.branch,
                self.decision,
                self.rollback,
                self.recover,
                self.tick,
                self.leave,
                self.operate,
                self.schedule,
            )
        )()

    def _run(self, call):
        fx = self.node.run(call)
        for effect in fx.out:
            if isinstance(effect, Deliver) and effect.connection == self.connections:
                known = self.out.setdefault(effect.consumer, {})
                known.update((m.id, effect.epoch) for m in effect.messages)

    def send(self):
        choose, node = self.random, self.node
        producer = choose.choice(list(self.sequences))
        count = choose.choice((1, 1, 2, 5, 70))
        messages = []
        for _ in range(count):
            color = choose.choice(("red", "blue"))
            limit = {"JMS_HMS_RedeliveryLimit": 2} if choose.random() < 0.1 else {}
            head = encode_head(Head({"Color": color} | limit)) if choose.random() < 0.8 else b""
            body = choose.randbytes(choose.choice((1, 7, 100, 3000)))
            ttl_ms = choose.choice((0, 0, 0, 100, 100_000))
            delay_ms = choose.choice((5, 60, 900)) if choose.random() < 0.1 else 0
            row = ROW.pack(len(head), len(body), ttl_ms, delay_ms, choose.randrange(10), 0, 0, 0)
            messages.append((row, head, body))
        first = self.sequences[producer]
        if choose.random() < 0.1 and producer < 20:
            first += 5  # a batch that a crash has lost comes later
        self.sequences[producer] = first + count
        pack = memoryview(pack_messages(messages))
        is_persistent = choose.random() < 0.9
        send = node.engine.send
        at = (self.connections, 1, producer, first, count, is_persistent, pack, node.now_ms)
        with contextlib.suppress(TransactionRolledBack):  # its branch is over
            self._run(lambda fx: send(*at, fx))

    def schedule(self):
        """A message that is sent again and again; or one schedule less."""
        choose, node = self.random, self.node
        engine, now_ms = node.engine, node.now_ms
        name = f"s{choose.randrange(6)}"
        if choose.random() < 0.3:
            with contextlib.suppress(HmsError):
                self._run(
                    lambda fx: engine.administer("schedule.cancel", {"name": name}, now_ms, fx)
                )
            return
        every_ms, count = choose.choice((100, 1000)), choose.choice((0, 0, 2))
        options = {"first_ms": now_ms + every_ms, "count_max": count}
        plan = Plan(name, "queue", "a", "", every_ms, **options)
        body = choose.randbytes(choose.choice((1, 500)))
        pack = memoryview(ROW.pack(0, len(body), 0, 0, 4, 0, 0, 0) + body)
        at = (self.connections, 1, 11, plan, pack, now_ms)
        self._run(lambda fx: engine.schedule(*at, fx, may_replace=True))

    def credit(self):
        handle = self.random.choice(list(self.handles))
        at = (self.connections, handle, self._epoch(handle), self.random.choice((1, 3, 50)))
        self._run(lambda fx: self.node.engine.credit(*at, self.node.now_ms, fx))

    def settle(self):
        if not self.out:
            return
        handle = self.random.choice(list(self.out))
        known = self.out[handle]
        chosen = self.random.sample(sorted(known), self.random.randint(0, len(known)))
        for id_ in chosen:
            del known[id_]
        spans, engine = [(id_, id_) for id_ in sorted(chosen)], self.node.engine
        at = (self.connections, handle, self._epoch(handle), spans)
        how = self.random.choice((None, None, Return.FAILED, Return.RELEASED))
        if how is None:
            self._run(lambda fx: engine.acknowledge(*at, self.node.now_ms, fx))
        else:
            self._run(lambda fx: engine.give_back(*at, how, self.node.now_ms, fx))

    def _epoch(self, handle):
        return self.node.engine.state.connection(self.connections).consumers[handle].epoch

    def commit(self):
        self.commit_number += 1
        at = (self.connections, 2, 1, self.commit_number, self.node.now_ms)
        self._run(lambda fx: self.node.engine.commit(*at, fx))

    def rollback(self):
        at = (self.connections, 2, 1, self.node.now_ms)
        self._run(lambda fx: self.node.engine.rollback(*at, fx))

    def recover(self):
        at = (self.connections, 1, 1, self.node.now_ms)
        self._run(lambda fx: self.node.engine.recover(*at, fx))

    def tick(self):
        self._run(lambda fx: self.node.engine.tick(self.node.now_ms, fx))

    def leave(self):
        """The client is lost and comes back."""
        number, engine = self.connections, self.node.engine
        self._run(lambda fx: engine.close_connection(number, self.node.now_ms, fx))
        self.connect()

    def _manage(self):
        """Messages are moved, copied, altered, and sent back where they came from."""
        engine, now_ms, choice = self.node.engine, self.node.now_ms, self.random.choice
        verb, more = choice(
            [
                ("message.move", {"to": choice(QUEUES)}),
                ("message.copy", {"to": choice(QUEUES)}),
                ("message.alter", {"priority": choice((-1, 0, 9)), "ttl_ms": choice((0, 90_000))}),
                ("message.alter", {"deliver_at_ms": now_ms + choice((0, 500))}),
                ("message.expire", {}),
                ("dlq.return", {}),
            ]
        )
        asked = {"place": choice(PLACES), "limit": choice((1, 3, 250)), **more}
        with contextlib.suppress(HmsError):  # from a queue into itself
            self._run(lambda fx: engine.administer(verb, asked, now_ms, fx))

    def operate(self):
        """An operator, or a subscriber that wants no more."""
        engine, now_ms = self.node.engine, self.node.now_ms
        if self.random.random() < 0.5:
            self._manage()
            return
        if self.random.random() < 0.5:
            self._run(lambda fx: engine.administer("queue.purge", {"name": "c"}, now_ms, fx))
            return
        handle = 31
        self._run(lambda fx: engine.close_consumer(self.connections, handle, now_ms, fx))
        self.out.pop(handle, None)
        with contextlib.suppress(HmsError):  # a transaction holds some of it
            self._run(lambda fx: engine.unsubscribe("t", "one", now_ms, fx))
        self._consume(handle, 1, "topic", "t", durable="one")
