"""Schedules against their promise: over any crash each occurrence is sent once, none early.

The log is a list of records; a crash takes away those of its end that were not synced, and the node
is away for a while. Nobody consumes, so what was sent is what waits.
"""

import itertools
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hms.engine.schedule.schedule_plans import Missed, Plan
from hms.errors.catalogue import ScheduleExists
from hms.wire.packed_messages import ROW
from tests.support.effort import walks
from tests.support.engine_rig import EngineRig

NAMES = ("a", "b", "c")
EVERY = (100, 250, 1000)
_TICKS_MAX = 100


class SchedulesMachine(RuleBasedStateMachine):
    """One node with a few schedules, and its crashes."""

    @initialize()
    def boot(self):
        self.rig = EngineRig()
        self.boots = []

    @rule(
        name=st.sampled_from(NAMES),
        every_ms=st.sampled_from(EVERY),
        missed=st.sampled_from(list(Missed)),
        count_max=st.sampled_from([0, 0, 3]),
    )
    def schedule(self, name, every_ms, missed, count_max):
        rig, at = self.rig, self.rig.now_ms
        name = f"{name}{len(self.boots)}.{at}"  # a name is used once, so that numbers tell all
        plan = Plan(
            *(name, "queue", "orders", "", every_ms),
            first_ms=at + every_ms,
            count_max=count_max,
            missed=missed,
        )
        pack = memoryview(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) + b"x")
        try:
            rig.run(lambda fx: rig.engine.schedule(1, 1, 1, plan, pack, at, fx, may_replace=False))
        except ScheduleExists:
            assert self._schedules()

    @rule(after_ms=st.sampled_from([1, 99, 250, 3000]))
    def pass_time(self, after_ms):
        self.rig.now_ms += after_ms
        now_ms = self.rig.now_ms
        self._tick(now_ms)
        for _ in range(_TICKS_MAX):  # so many are sent at once; of ten schedules more may be due
            due_ms = self.rig.engine.due_ms()
            if due_ms is None or due_ms > now_ms:
                break
            self._tick(now_ms)
        assert due_ms is None or due_ms > now_ms

    def _tick(self, now_ms):
        self.rig.run(lambda fx: self.rig.engine.tick(now_ms, fx))

    @rule(down_ms=st.sampled_from([0, 50, 777, 5000]), lost=st.integers(0, 3))
    def crash(self, down_ms, lost):
        del self.rig.log[max(self.rig.booted_at, len(self.rig.log) - lost) :]
        self.rig.now_ms += down_ms
        self.boots.append(self.rig.now_ms)
        self.rig.start()

    @precondition(lambda self: self._schedules())
    @rule(data=st.data())
    def cancel(self, data):
        name = data.draw(st.sampled_from(sorted(self._schedules())))
        arguments, now_ms = {"name": name}, self.rig.now_ms
        self.rig.run(
            lambda fx: self.rig.engine.administer("schedule.cancel", arguments, now_ms, fx)
        )

    def _schedules(self):
        found = self.rig.engine.state.schedules if hasattr(self, "rig") else None
        return found.by_name if found is not None else {}

    @invariant()
    def each_occurrence_was_sent_once_and_none_early(self):
        if not hasattr(self, "rig"):
            return
        found = defaultdict(list)
        for message in self.rig.engine.state.queues["orders"].line.in_order():
            node = message.head().node
            assert message.timestamp_ms >= node["$ScheduledTime"], "early"
            found[node["$ScheduleName"]].append((node["$ScheduleCount"], node["$ScheduledTime"]))
        for name, sent in found.items():
            self._check(name, sorted(sent))

    def _check(self, name, sent):
        assert [number for number, _ in sent] == list(range(1, len(sent) + 1)), name
        schedule = self._schedules().get(name)
        if schedule is None:
            return
        every_ms, missed = schedule.plan.every_ms, schedule.plan.missed
        times = [at_ms for _, at_ms in sent] + [schedule.due_ms]
        for one, following in itertools.pairwise(times):
            assert (following - one) % every_ms == 0, f"{name} left its grid"
            is_next = following - one == every_ms
            was_down = any(one < boot_ms <= following + every_ms for boot_ms in self.boots)
            assert is_next or (was_down and missed != Missed.ALL), f"{name} left out some"

    @invariant()
    def the_books_of_memory_balance(self):
        if not hasattr(self, "rig"):
            return
        state = self.rig.engine.state
        assert state.waiting_bytes == sum(p.line.size_bytes for p in state.places.values())


TestSchedules = SchedulesMachine.TestCase
TestSchedules.settings = settings(
    max_examples=walks(60),
    stateful_step_count=30,
    deadline=None,
)
