"""Limits and pauses against a naive model: what is promised is there, and nobody overtakes (F-C11).

The model keeps for each queue what waits in it, in order, and who stands in line before it.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hms.engine.effects import Confirm, Deliver, Effects, Refusal
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import BatchTooLarge, QueueFull
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.effort import walks

LIMIT, WAIT_MS = 4, 1_000
BEHAVIORS = list(LimitBehavior)
SETTINGS = EngineSettings(
    blocked_ms_max=WAIT_MS,
    destinations=tuple(
        DestinationSettings("queue", str(b), messages_max=LIMIT, limit_behavior=b)
        for b in BEHAVIORS
    ),
)
PAUSES = ("PRODUCTION", "CONSUMPTION", "BOTH")


@dataclass
class Batch:
    """Messages that were sent together: their bodies and priority."""

    correlation: int
    bodies: list[bytes]
    priority: int
    until_ms: int = 0


@dataclass
class Model:
    """One queue. out: what the consumer holds, which counts until it is acknowledged."""

    behavior: LimitBehavior
    limit: int = LIMIT
    waiting: list[tuple[int, int, bytes]] = field(default_factory=list)  # -priority, seq, body
    out: dict[bytes, int] = field(default_factory=dict)
    line: list[Batch] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    seq: int = 0

    def has_room(self, count: int) -> bool:
        return self.behavior.removes or len(self.waiting) + len(self.out) + count <= self.limit

    def store(self, batch: Batch) -> None:
        for body in batch.bodies:
            self.seq += 1
            self.waiting.append((-batch.priority, self.seq, body))
        while self.behavior.removes and len(self.waiting) > self.limit:
            self.waiting.remove(self.next_to_go())
        self.waiting.sort()

    def next_to_go(self) -> tuple[int, int, bytes]:
        if self.behavior is LimitBehavior.REMOVE_OLDEST:
            return min(self.waiting, key=lambda one: one[1])
        return min(self.waiting, key=lambda one: (-one[0], one[1]))


class LimitsMachine(RuleBasedStateMachine):
    """One client with a producer and a consumer; a queue for each behaviour, of which a run uses
    one; and crashes."""

    @initialize(which=st.sampled_from(BEHAVIORS))
    def boot(self, which):
        self.which = which
        self.log: list[tuple[int, bytes]] = []
        self.models = {str(b): Model(b) for b in BEHAVIORS}
        self.now_ms, self.connection, self.sequence = 1_000, 0, 0
        self.told: dict[int, str] = {}
        self.wanted: dict[int, str] = {}
        self._start()

    def _start(self):
        self.engine = Engine(SETTINGS)
        recovery = self.engine.recovery()
        for kind, payload in self.log:
            recovery.apply(kind, payload)
        recovery.finish()
        self._run(lambda fx: self.engine.boot(self.now_ms, None, "test", fx))
        self.connection += 1
        self.engine.open_connection(self.connection, 77, "", "")
        self.engine.open_session(self.connection, 1, 2, "")
        for i, name in enumerate(self.models, 1):
            self.engine.open_producer(self.connection, i, 1, "queue", name)
            request = ConsumerRequest(10 + i, 1, "queue", name, 0)
            self._run(
                lambda fx, r=request: self.engine.open_consumer(
                    self.connection, r, 0, self.now_ms, fx
                )
            )

    def _run(self, call):
        """As the broker does: the command, then those who wait."""
        fx = Effects()
        try:
            call(fx)
        except (QueueFull, BatchTooLarge) as error:
            assert not fx.records, "a refused command changes nothing"
            assert not fx.out
            return type(error).__name__
        self.engine.retry_blocked(self.now_ms, fx)
        self.log += [(record.type, b"".join(record.parts)) for record in fx.records]
        for effect in fx.out:
            if isinstance(effect, Confirm):
                self.told[effect.correlation] = "ok"
            elif isinstance(effect, Refusal):
                self.told[effect.correlation] = type(effect.error).__name__
            elif isinstance(effect, Deliver):
                self._delivered(effect)
        return ""

    def _delivered(self, effect):
        model = list(self.models.values())[effect.consumer - 11]
        for message in effect.messages:
            model.waiting.remove(next(one for one in model.waiting if one[2] == message.payload))
            model.out[message.payload] = message.id

    def _settle_model(self):
        """Those who wait go as far as there is room, in their order."""
        for model in self.models.values():
            while model.line and not model.paused & {"PRODUCTION", "BOTH"}:
                batch, count = model.line[0], len(model.line[0].bodies)
                has_room = model.has_room(count)
                is_patient = model.behavior is LimitBehavior.FLOW_CONTROL and count <= model.limit
                if not has_room and is_patient:
                    break
                del model.line[0]
                if not has_room:  # the limit was lowered, or it came while the queue was paused
                    self.wanted[batch.correlation] = "refused"
                    continue
                self.wanted[batch.correlation] = "ok"
                model.store(batch)

    # rules

    @rule(
        count=st.integers(1, LIMIT + 1),
        priority=st.sampled_from([1, 4, 9]),
    )
    def send(self, count, priority):
        which = self.which
        model, number = self.models[which], BEHAVIORS.index(which) + 1
        first, self.sequence = self.sequence + 1, self.sequence + count
        bodies = [f"{first + i}".encode() for i in range(count)]
        rows = [(ROW.pack(0, len(b), 0, 0, priority, 0, 0, 0), b"", b) for b in bodies]
        pack, is_persistent = memoryview(pack_messages(rows)), True
        batch = Batch(first, bodies, priority, self.now_ms + WAIT_MS)
        is_paused = bool(model.paused & {"PRODUCTION", "BOTH"})
        is_patient = which is LimitBehavior.FLOW_CONTROL
        is_too_large = not is_paused and not which.removes and count > model.limit
        said = self._run(
            lambda fx: self.engine.send(
                self.connection, first, number, first, count, is_persistent, pack, self.now_ms, fx
            )
        )
        if is_too_large:
            assert said == "BatchTooLarge"
        elif is_paused or model.line or model.has_room(count) or is_patient:
            assert said == ""
            model.line.append(batch)
        else:
            assert said == "QueueFull"
        self._settle_model()

    @rule()
    def take_one(self):
        which = self.which
        model, handle = self.models[which], 11 + BEHAVIORS.index(which)
        before = [body for _, _, body in model.waiting]
        count = len(model.out)
        is_halted = bool(model.paused & {"CONSUMPTION", "BOTH"})
        if before and not is_halted:
            self._run(lambda fx: self.engine.credit(self.connection, handle, 0, 1, self.now_ms, fx))
            assert list(model.out)[count:] == before[:1], "the first of them comes"

    @precondition(lambda self: self.models[self.which].out)
    @rule()
    def acknowledge(self):
        model, handle = self.models[self.which], 11 + BEHAVIORS.index(self.which)
        message_id = model.out.pop(next(iter(model.out)))
        span = [(message_id, message_id)]
        self._run(
            lambda fx: self.engine.acknowledge(self.connection, handle, 0, span, self.now_ms, fx)
        )
        self._settle_model()

    @rule(what=st.sampled_from(PAUSES))
    def pause(self, what):
        self._order("pause", what=what)
        both = {"PRODUCTION", "CONSUMPTION"}
        self.models[self.which].paused |= both if what == "BOTH" else {what}

    @rule(what=st.sampled_from(PAUSES))
    def resume(self, what):
        both = {"PRODUCTION", "CONSUMPTION"}
        self.models[self.which].paused -= both if what == "BOTH" else {what}
        self._order("resume", what=what)
        self._settle_model()

    @rule()
    def purge(self):
        self.models[self.which].waiting.clear()
        self._order("purge")
        self._settle_model()

    @rule(limit=st.integers(LIMIT, 2 * LIMIT))
    def alter(self, limit):
        model = self.models[self.which]
        model.limit = limit
        self._order("alter", max_messages=limit)
        model.store(Batch(0, [], 0))
        self._settle_model()

    def _order(self, verb, **arguments):
        self._run(
            lambda fx: self.engine.administer(
                f"queue.{verb}", {"name": str(self.which), **arguments}, self.now_ms, fx
            )
        )

    @rule(after_ms=st.sampled_from([1, WAIT_MS // 2, WAIT_MS]))
    def pass_time(self, after_ms):
        self.now_ms += after_ms
        for model in self.models.values():
            for batch in [b for b in model.line if b.until_ms <= self.now_ms]:
                model.line.remove(batch)
                self.wanted[batch.correlation] = "refused"
        self._run(lambda fx: self.engine.tick(self.now_ms, fx))
        self._settle_model()

    @rule()
    def crash(self):
        for model in self.models.values():
            model.line.clear()
            model.out.clear()
        before = {name: self._bodies(name, with_out=True) for name in self.models}
        self._start()
        for name, model in self.models.items():
            assert sorted(self._bodies(name)) == sorted(before[name]), name
            model.waiting = [(-m.priority, m.seq, m.payload) for m in self._line(name).in_order()]
            model.seq = max([model.seq, *(seq for _, seq, _ in model.waiting)])

    # what must hold

    def _line(self, name):
        return self.engine.state.queues[name].line

    def _bodies(self, name, *, with_out=False):
        found = [m.payload for m in self._line(name).in_order()]
        consumers = self.engine.state.queues[name].consumers if with_out else ()
        return found + [m.payload for c in consumers for m in c.out.values()]

    @invariant()
    def exactly_the_promised_messages_are_there_in_order(self):
        if not hasattr(self, "engine"):
            return
        for name, model in self.models.items():
            assert self._bodies(name) == [body for _, _, body in model.waiting], name
            blocked = self.engine.state.blocked.count(("queue", name))
            assert blocked == len(model.line), name

    @invariant()
    def everybody_was_told_what_became_of_his_send(self):
        if not hasattr(self, "engine"):
            return
        for correlation, outcome in self.wanted.items():
            assert (self.told.get(correlation) == "ok") == (outcome == "ok"), correlation
            assert correlation in self.told


TestLimits = LimitsMachine.TestCase
TestLimits.settings = settings(
    max_examples=walks(100),
    stateful_step_count=50,
    deadline=None,
)
