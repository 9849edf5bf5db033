"""The engine against a naive model: whatever happens, every message is in exactly one place.

The model knows of each message only whether it is wanted, done or dead. The log is a list of
records; a crash throws the engine away and builds a new one from the list.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hms.engine.effects import Deliver, Effects
from hms.engine.engine import ConsumerRequest, Engine, Return
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings, EngineSettings
from hms.errors.tree import HmsError
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.effort import walks

LIMIT = 3
SETTINGS = EngineSettings(
    redelivery_limit=LIMIT,
    destinations=(
        DestinationSettings("queue", "a"),
        DestinationSettings("queue", "b"),
        DestinationSettings("topic", "t"),
    ),
)
PLAIN, CLIENT, TRANSACTED = 1, 2, 3
"""Session handles; also of their consumers and producers, times ten, plus one per destination."""
QUEUES = ("a", "b")
DELAY_MS = 1_000


@dataclass
class Held:
    """A delivery that the client holds."""

    consumer: int
    epoch: int
    message_id: int


@dataclass
class Model:
    """What has to be true."""

    wanted: dict[str, dict[int, bool]] = field(default_factory=dict)  # place → id → persistent
    done: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    delivered: dict[tuple[str, int], int] = field(default_factory=dict)
    failed: dict[tuple[str, int], int] = field(default_factory=dict)


class EngineMachine(RuleBasedStateMachine):
    """One client, two queues, a topic with a shared durable subscription, and crashes."""

    @initialize()
    def boot(self):
        self.log: list[tuple[int, bytes]] = []
        self.model = Model({name: {} for name in (*QUEUES, "sub", DEAD_LETTER_QUEUE)})
        self.now_ms = 1_000
        self.connection = 0
        self.sequence = 0
        self._start()

    # plumbing

    def _start(self):
        self.engine = Engine(SETTINGS)
        recovery = self.engine.recovery()
        for kind, payload in self.log:
            recovery.apply(kind, payload)
        recovery.finish()
        self._run(lambda fx: self.engine.boot(self.now_ms, None, "test", fx))
        self._connect()

    def _connect(self):
        self.connection += 1
        self.held: list[Held] = []
        self.pending_sends: list[tuple[str, int, bool]] = []
        self.pending_acks: list[tuple[str, int]] = []
        number, engine = self.connection, self.engine
        assert engine.open_connection(number, 77, "", "") is None
        for session, kind in ((PLAIN, ""), (CLIENT, ""), (TRANSACTED, "transacted")):
            engine.open_session(number, session, 2 if session == CLIENT else 0, kind)
            for i, (what, name) in enumerate((("queue", "a"), ("queue", "b"), ("topic", "t"))):
                engine.open_producer(number, session * 10 + i, session, what, name)
        self.consumers = {
            CLIENT * 10: "a",
            CLIENT * 10 + 1: "sub",
            CLIENT * 10 + 2: "sub",
            TRANSACTED * 10: "b",
        }
        self.epochs = dict.fromkeys(self.consumers, 0)
        for handle, place in self.consumers.items():
            is_topic = place == "sub"
            request = ConsumerRequest(
                handle,
                handle // 10,
                "topic" if is_topic else "queue",
                "t" if is_topic else place,
                0,
                durable="billing" if is_topic else "",
                is_shared=is_topic,
                redelivery_delay_ms=DELAY_MS if handle == CLIENT * 10 + 2 else 0,
            )
            self._run(lambda fx, r=request: engine.open_consumer(number, r, 1, self.now_ms, fx))

    def _run(self, call):
        fx = Effects()
        result = call(fx)
        self.log += [(record.type, b"".join(record.parts)) for record in fx.records]
        for effect in fx.out:
            if isinstance(effect, Deliver):
                self._delivered(effect)
        return result

    def _delivered(self, effect):
        place = self.consumers[effect.consumer]
        counts = effect.counts or [1] * len(effect.messages)
        for message, count in zip(effect.messages, counts, strict=True):
            assert message.id in self.model.wanted[place], "delivered although it is done or dead"
            assert not any(
                h.message_id == message.id and self.consumers[h.consumer] == place
                for h in self.held
                if h.epoch == self.epochs[h.consumer]
            ), "delivered twice at once"
            assert count == self.model.delivered.get((place, message.id), 0) + 1
            self.held.append(Held(effect.consumer, effect.epoch, message.id))

    def _live(self, session=None):
        return [
            h
            for h in self.held
            if h.epoch == self.epochs[h.consumer]
            and (session is None or h.consumer // 10 == session)
        ]

    # rules

    @rule(
        session=st.sampled_from([PLAIN, TRANSACTED]),
        to=st.integers(0, 2),
        count=st.integers(1, 5),
        is_persistent=st.booleans(),
        priorities=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    )
    def send(self, session, to, count, is_persistent, priorities):
        place = (*QUEUES, "sub")[to]
        rows = [(ROW.pack(0, 2, 0, 0, priorities[i], 0, 0, 0), b"", b"ab") for i in range(count)]
        before = self.engine.state.ids.next_id
        self.sequence += 10
        self._forget_nothing_yet(session, place, before, count, is_persistent)
        self._run(
            lambda fx: self.engine.send(
                self.connection,
                1,
                session * 10 + to,
                self.sequence,
                count,
                is_persistent,
                memoryview(pack_messages(rows)),
                self.now_ms,
                fx,
            )
        )

    def _forget_nothing_yet(self, session, place, first, count, is_persistent):
        for message_id in range(first, first + count):
            if session == TRANSACTED:
                self.pending_sends.append((place, message_id, is_persistent))
            else:
                self.model.wanted[place][message_id] = is_persistent

    @rule(which=st.integers(0, 3), count=st.integers(1, 4))
    def credit(self, which, count):
        handle = list(self.consumers)[which]
        epoch = self.epochs[handle]
        self._run(
            lambda fx: self.engine.credit(self.connection, handle, epoch, count, self.now_ms, fx)
        )

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def acknowledge(self, data):
        held = data.draw(st.sampled_from(self._live()))
        self.held.remove(held)
        place = self.consumers[held.consumer]
        if held.consumer // 10 == TRANSACTED:
            self.pending_acks.append((place, held.message_id))
        else:
            self._done(place, held.message_id)
        span = [(held.message_id, held.message_id)]
        settled = self._run(
            lambda fx: self.engine.acknowledge(
                self.connection, held.consumer, held.epoch, span, self.now_ms, fx
            )
        )
        assert settled == 1

    @precondition(lambda self: self._live())
    @rule(data=st.data(), how=st.sampled_from([Return.FAILED, Return.RELEASED]))
    def give_back(self, data, how):
        held = data.draw(st.sampled_from(self._live()))
        self.held.remove(held)
        self._came_back(self.consumers[held.consumer], held.message_id, how)
        span = [(held.message_id, held.message_id)]
        self._run(
            lambda fx: self.engine.give_back(
                self.connection, held.consumer, held.epoch, span, how, self.now_ms, fx
            )
        )

    @rule(after_ms=st.sampled_from([1, DELAY_MS // 2, DELAY_MS]))
    def pass_time(self, after_ms):
        self.now_ms += after_ms
        self._run(lambda fx: self.engine.tick(self.now_ms, fx))
        due_ms = self.engine.due_ms()
        assert due_ms is None or due_ms > self.now_ms

    @rule()
    def commit(self):
        for place, message_id, is_persistent in self.pending_sends:
            self.model.wanted[place][message_id] = is_persistent
        for place, message_id in self.pending_acks:
            self._done(place, message_id)
        self.pending_sends, self.pending_acks = [], []
        number = self.engine.state.memories.last_commit(77, TRANSACTED) + 1
        self._run(
            lambda fx: self.engine.commit(self.connection, TRANSACTED, 1, number, self.now_ms, fx)
        )

    @rule()
    def rollback(self):
        for place, message_id in self.pending_acks:
            self._came_back(place, message_id, Return.FAILED)
        self.pending_sends, self.pending_acks = [], []
        self._next_epoch(TRANSACTED)
        self._run(lambda fx: self.engine.rollback(self.connection, TRANSACTED, 1, self.now_ms, fx))

    @rule()
    def recover(self):
        self._next_epoch(CLIENT)
        self._run(lambda fx: self.engine.recover(self.connection, CLIENT, 1, self.now_ms, fx))

    @rule()
    def lose_the_client(self):
        for held in self._live():
            self._came_back(self.consumers[held.consumer], held.message_id, None)
        for place, message_id in self.pending_acks:
            self._came_back(place, message_id, None)
        self._run(lambda fx: self.engine.close_connection(self.connection, self.now_ms, fx))
        self._connect()

    @rule()
    def crash(self):
        for held in self._live():
            self._came_back(self.consumers[held.consumer], held.message_id, None)
        for place, message_id in self.pending_acks:
            self._came_back(place, message_id, None)
        for wanted in self.model.wanted.values():
            for message_id in [m for m, is_persistent in wanted.items() if not is_persistent]:
                del wanted[message_id]
        highest = self.engine.state.ids.next_id
        self._start()
        assert self.engine.state.ids.next_id >= highest, "an id would be given twice"

    @rule()
    def refused_commands_change_nothing(self):
        before = self._everything()
        for call in (
            lambda fx: self.engine.commit(self.connection, PLAIN, 1, 1, self.now_ms, fx),
            lambda _: self.engine.open_producer(self.connection, 99, PLAIN, "queue", "nowhere"),
            lambda fx: self.engine.unsubscribe("t", "nobody", self.now_ms, fx),
        ):
            fx = Effects()
            try:
                call(fx)
            except HmsError:
                assert not fx.records
                assert not fx.out
            else:
                raise AssertionError("it was not refused")
        assert self._everything() == before

    # the model's own steps

    def _done(self, place, message_id):
        del self.model.wanted[place][message_id]
        self.model.done.add(message_id)
        self.model.delivered.pop((place, message_id), None)
        self.model.failed.pop((place, message_id), None)

    def _came_back(self, place, message_id, how):
        key = (place, message_id)
        if how is not Return.RELEASED:
            self.model.delivered[key] = self.model.delivered.get(key, 0) + 1
        if how is Return.FAILED:
            self.model.failed[key] = self.model.failed.get(key, 0) + 1
            if self.model.failed[key] >= LIMIT:
                is_persistent = self.model.wanted[place].pop(message_id)
                self.model.wanted[DEAD_LETTER_QUEUE][message_id] = is_persistent

    def _next_epoch(self, session):
        for handle in self.consumers:
            if handle // 10 == session:
                self.epochs[handle] += 1

    def _places(self):
        state = self.engine.state
        places = dict(state.queues)
        places["sub"] = state.topics["t"].durable("billing")
        return places

    def _everything(self):
        return {
            name: ([m.id for m in place.line.in_order()], place.line.out_count)
            for name, place in self._places().items()
        }

    @invariant()
    def every_wanted_message_is_in_exactly_one_place(self):
        if not hasattr(self, "engine"):
            return
        tx = {}
        for place, message_id in self.pending_acks:
            tx.setdefault(place, []).append(message_id)
        for name, place in self._places().items():
            waiting = [m.id for m in place.line.in_order()]
            delayed = [m.id for m in place.line.everything()][len(waiting) :]
            out = [i for c in place.consumers for i in c.out]
            every = waiting + delayed + out + tx.get(name, [])
            assert len(every) == len(set(every)), f"{name}: a message is there twice"
            assert set(every) == set(self.model.wanted[name]), name
            assert place.line.waiting_count == len(waiting)
            assert place.line.delayed_count == len(delayed)
            assert place.line.out_count == len(out) + len(tx.get(name, []))

    @invariant()
    def waiting_messages_stand_in_order(self):
        if not hasattr(self, "engine"):
            return
        for name, place in self._places().items():
            order = [(-m.priority, m.seq) for m in place.line.in_order()]
            assert order == sorted(order), name

    @invariant()
    def the_books_of_memory_balance(self):
        if not hasattr(self, "engine"):
            return
        sizes = sum(place.line.size_bytes for place in self._places().values())
        assert self.engine.state.waiting_bytes == sizes


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=walks(100),
    stateful_step_count=40,
    deadline=None,
)
