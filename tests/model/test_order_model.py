"""Orders and groups against a naive model: no overlap, nothing overtakes, nothing is forgotten.

The machine looks at the engine's own lines for what waits, and at what consumers were given for
what is out. After every step it asks what the rules allow, by looking at every message; the engine
looks at a few only.
"""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import hms
from hms.engine.engine import Return
from hms.engine.groups.group_marks import mark_of
from hms.engine.groups.message_sort import entry_bytes
from tests.support.effort import walks
from tests.support.order_rig import CLIENT, TRANSACTED, OrderRig, sorted_queue

QUEUES = ("plain", "lists", "late", "rising")
CONSUMERS = ("c", "d", "e", "t")
"""Three that acknowledge by call, on two connections, and one in transactions."""
WHERE = {"c": (1, CLIENT), "d": (1, CLIENT), "e": (2, CLIENT), "t": (2, TRANSACTED)}
GROUP_LIFE_MS = 10_000


class OrderMachine(RuleBasedStateMachine):
    """Queues with groups, lists, delays and a sort; four consumers; crashes."""

    @initialize(queue=st.sampled_from(QUEUES))
    def begin(self, queue):
        self.rig = OrderRig(sorted_queue("rising", "n"))
        self.queue = queue
        self.number = 0
        self.queue_of = {}
        self.in_transaction = []
        self._open()

    # what is done

    @rule(
        names=st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
        kind=st.sampled_from(["plain", "group", "group", "order", "end"]),
        priority=st.sampled_from([4, 4, 4, 9]),
        key=st.integers(0, 3),
        session=st.sampled_from([CLIENT, CLIENT, TRANSACTED]),
        is_persistent=st.sampled_from([True, True, False]),
        ttl_ms=st.sampled_from([0, 0, 0, 700]),
        delay_ms=st.sampled_from([0, 0, 0, 300]),
    )
    def send(self, names, kind, key, session, **options):
        for name in names:
            own = {"n": key} if key else {}
            if kind in ("group", "end"):
                own["JMSXGroupID"] = name
            if kind == "end":
                own["JMSXGroupSeq"] = -1
            if kind == "order":
                own["order"] = name
            self._send(self.queue, session, **own, **options)

    @precondition(lambda self: self.queue == "lists")
    @rule(
        name=st.sampled_from("ab"),
        numbers=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        session=st.sampled_from([CLIENT, CLIENT, CLIENT, TRANSACTED]),
        is_persistent=st.sampled_from([True, True, False]),
    )
    def send_to_a_list(self, name, numbers, session, is_persistent):
        for number in numbers:
            own = {"GROUP_NAME": name, "GROUP_NUMBERING": number, "GROUP_END": number == 3}
            with contextlib.suppress(hms.GroupMessageInvalid):
                self._send("lists", session, is_persistent=is_persistent, **own)

    def _send(self, queue, session, **options):
        self.number += 1
        self.rig.send(f"{self.number}", queue, session, connection=3, **options)

    def _open(self):
        for name, (connection, session) in WHERE.items():
            if name not in self.queue_of:
                self.queue_of[name] = self.queue
                options = {"connection": connection, "session": session, "credit": 2}
                self.rig.consume(name, self.queue, **options)

    def _is_gone(self, name):
        del self.queue_of[name]
        self.rig.held.pop(self.rig.consumers[name], None)

    @rule(counts=st.lists(st.integers(0, 3), min_size=4, max_size=4))
    def give_credit(self, counts):
        for name, count in zip(CONSUMERS, counts, strict=True):
            if count and name in self.queue_of:
                self.rig.credit(name, count)

    @rule(
        picks=st.lists(st.tuples(st.sampled_from(CONSUMERS), st.integers(0, 9)), max_size=6),
        how=st.sampled_from([None, None, None, Return.FAILED, Return.RELEASED]),
    )
    def settle(self, picks, how):
        for name, pick in picks:
            held = self._held(name) if name in self.queue_of else []
            if held:
                self._settle(name, held[pick % len(held)], how)

    @rule(how=st.sampled_from([None, Return.FAILED]))
    def settle_all(self, how):
        for name in sorted(self.queue_of):
            for one in list(self._held(name)):
                self._settle(name, one, how)

    def _settle(self, name, chosen, how):
        (first, *_) = _flat(chosen)
        body = bytes(first.payload[first.head_bytes :]).decode()
        if how is not None:
            self.rig.give_back(name, how, body)
            return
        if WHERE[name][1] == TRANSACTED:
            self.in_transaction.append((self.queue_of[name], chosen))
        self.rig.acknowledge(name, body)

    @rule(is_kept=st.booleans(), connection=st.sampled_from([2, 3]))
    def end_a_transaction(self, is_kept, connection):
        if connection not in self.rig.engine.state.connections:
            return
        if connection == 2:
            self.in_transaction = []
        (self.rig.commit if is_kept else self.rig.rollback)(connection)

    @rule(
        what=st.sampled_from(["close", "away", "recover", "lose", "crash", "purge"]),
        name=st.sampled_from(CONSUMERS),
    )
    def trouble(self, what, name):
        getattr(self, f"_{what}")(name)
        if what != "away":
            self._open()

    def _close(self, name):
        if name in self.queue_of:
            self.rig.close(name)
            self._is_gone(name)

    _away = _close

    def _recover(self, name):
        self.rig.recover(WHERE[name][0])

    def _lose(self, name):
        connection = WHERE[name][0]
        if connection == 2:
            self.in_transaction = []
        for each in [n for n in self.queue_of if WHERE[n][0] == connection]:
            self._is_gone(each)
        self.rig.lose(connection)

    def _crash(self, _name):
        self.queue_of, self.in_transaction = {}, []
        self.rig.boot()

    def _purge(self, _name):
        rig, queue = self.rig, self.queue
        rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": queue}, rig.now_ms, fx))

    @rule(ms=st.sampled_from([1, 300, 1000, GROUP_LIFE_MS]))
    def pass_time(self, ms):
        self.rig.pass_time(ms)

    # what has to hold

    def _held(self, name):
        return self.rig.held.get(self.rig.consumers[name], [])

    def _out(self, queue):
        """Everything that is out, each with its holder."""
        found = [
            (m, name) for name, at in self.queue_of.items() if at == queue for m in self._held(name)
        ]
        return found + [(m, "t") for at, m in self.in_transaction if at == queue]

    def _ready(self, queue):
        consumers = self.rig.engine.state.queues[queue].consumers
        return [c for c in consumers if c.credit > 0]

    @invariant()
    def the_counts_of_a_line_are_right(self):
        if not hasattr(self, "rig"):
            return
        for queue in QUEUES:
            line = self.rig.line(queue)
            waiting = list(line.in_order())
            assert line.waiting_count == len({m.id for m in waiting}) == len(waiting)
            assert [line.entry(m) for m in waiting] == sorted(line.entry(m) for m in waiting)
            free = [m for m in waiting if line.groups.is_free(m)]
            assert line.held_count == len(waiting) - len(free)
            out = [m for each, _ in self._out(queue) for m in _flat(each)]
            assert line.out_count == len(out)

    @invariant()
    def the_books_of_memory_balance(self):
        if not hasattr(self, "rig"):
            return
        state = self.rig.engine.state
        assert state.waiting_bytes == sum(q.line.size_bytes for q in state.queues.values())
        groups = [q.line.groups for q in state.queues.values() if q.line.groups is not None]
        sorted_lines = [q.line for q in state.queues.values() if q.line.sort is not None]
        keys = sum(entry_bytes(e) for line in sorted_lines for e in line._ready._back)
        assert state.shares.quota_bytes == keys + sum(t.memory_bytes for t in groups)

    @invariant()
    def a_group_is_at_one_consumer(self):
        if not hasattr(self, "rig"):
            return
        for queue in QUEUES:
            holders = {}
            for message, name in self._out(queue):
                mark = _mark(message, queue)
                if mark is not None and mark.kind == "group":
                    holders.setdefault(mark.name, set()).add(name)
            assert all(len(names) == 1 for names in holders.values()), holders

    @invariant()
    def an_order_has_one_message_out_and_none_was_passed(self):
        if not hasattr(self, "rig"):
            return
        for queue in QUEUES:
            out = {}
            for message, _ in self._out(queue):
                mark = _mark(message, queue)
                if mark is not None and mark.kind == "order":
                    assert mark.name not in out, f"two of order {mark.name} are out"
                    out[mark.name] = mark.number
            line = self.rig.line(queue)
            late = [m for m in line.delayed if line.attempts(m)]
            for message in (*line.in_order(), *late):
                mark = _mark(message, queue)
                if mark is not None and mark.kind == "order" and mark.name in out:
                    is_new = not line.deliveries(message) and not line.attempts(message)
                    assert is_new or mark.number > out[mark.name]

    @invariant()
    def lists_are_whole(self):
        if not hasattr(self, "rig"):
            return
        for message, _ in self._out("lists"):
            if isinstance(message, list):
                numbers = [_mark(m, "lists").number for m in message]
                assert numbers == [1, 2, 3]

    @invariant()
    def what_may_go_out_is_out(self):
        """Nothing waits for a consumer that has room for it."""
        if not hasattr(self, "rig"):
            return
        for queue in QUEUES:
            if self._ready(queue):
                for message in self.rig.line(queue).in_order():
                    assert not self._may_go(queue, message), f"{message.id} waits at {queue}"

    def _may_go(self, queue, message):
        line = self.rig.line(queue)
        mark = _mark(message, queue)
        if mark is None:
            return True
        out = [(m, n) for each, n in self._out(queue) for m in _flat(each)]
        mates = [(m, n) for m, n in out if (_mark(m, queue) or (0, 0))[:2] == mark[:2]]
        late = [m for m in line.delayed if line.attempts(m)]
        if any((_mark(m, queue) or (0, 0))[:2] == mark[:2] for m in late):
            return False
        if mark.kind == "order":
            return not mates
        if mark.kind == "gather":
            group = line.groups._of[message.id]
            return len(group.waiting) == 3 and not group.is_broken
        group = line.groups._of[message.id]
        if group.owner is None or (group.is_ending and mates):
            return not mates
        return group.owner.credit > 0


def _flat(message):
    return message if isinstance(message, list) else [message]


def _mark(message, queue):
    (first, *_) = _flat(message)
    return mark_of(first, gathers=queue == "lists")


TestOrders = OrderMachine.TestCase
TestOrders.settings = settings(
    max_examples=walks(60),
    stateful_step_count=50,
    deadline=None,
)
