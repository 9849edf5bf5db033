"""Wrong clocks against everything that waits for a time: the engine with the node's clock.

Each cell: what the machine's clock does, whether at a boot or while the node runs, and what waits.
Time is judged by a clock that nobody sets. A hundredth of it is the clock's to be wrong by.
"""

import random

import pytest

from hms.boot.clock import EvenClock
from hms.engine.cluster.cluster_settings import ClusterSettings
from hms.engine.effects import Effects
from hms.engine.engine import Engine, Return
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.settings import EngineSettings
from hms.wire.packed_messages import ROW, Head, encode_head
from tests.support.engine_rig import EngineRig

MS = 1_000_000
S = 1000 * MS
HOUR = 3600 * S
LOOK = S // 4
TROUBLES = ("behind", "ahead", "stepping", "stopped", "suspended")
WAITS_S = 20
SLACK = 0.03
"""Of the time: a hundredth, and how rarely it is looked."""


class Machine:
    """A wall clock with a trouble, and the one that nobody sets."""

    def __init__(self):
        self.true = self.wall = 1_700_000_000 * S
        self.trouble, self._chance = "", random.Random(7)

    def begin(self, trouble):
        """From now on."""
        self.trouble = trouble
        if trouble in ("behind", "ahead"):
            self.wall += HOUR if trouble == "ahead" else -HOUR
        elif trouble == "suspended":
            self.true += HOUR
            self.wall += HOUR

    def wait(self):
        """The time of a look passes."""
        self.true += LOOK
        if self.trouble != "stopped":
            self.wall += LOOK
        if self.trouble == "stepping":
            self.wall += self._chance.choice((HOUR, -HOUR, 2 * HOUR, S, 0))


class Rig(EngineRig):
    """Boots as a node does: no earlier than its log ends."""

    def __init__(self):
        self.machine = Machine()
        self.clock = self._new_clock()
        cluster = ClusterSettings(((2, "n2"),), 1000, ())
        super().__init__(node_index=1, cluster=cluster)

    def _new_clock(self):
        return EvenClock(lambda: self.machine.wall, lambda: self.machine.true)

    def start(self, *args, **options):
        """Boot from the log, with a clock of its own."""
        trial = Engine(EngineSettings(node_index=1))
        recovery = trial.recovery()
        for kind, payload in self.log:
            recovery.apply(kind, payload)
        self.clock = self._new_clock()
        self.clock.begin_at(trial.state.now_ms + 1)
        self.now_ms = self.clock()
        super().start(*args, **options)

    def look(self):
        """A quarter of a second passes."""
        self.machine.wait()
        self.now_ms = self.clock()
        self.run(lambda fx: self.engine.tick(self.now_ms, fx))

    def seconds_until(self, is_done, most_s=10 * WAITS_S):
        """How long that takes, by the clock that nobody sets."""
        begun = self.machine.true
        while not is_done():
            assert self.machine.true - begun < most_s * S, "it does not happen"
            self.look()
        return (self.machine.true - begun) / S

    def put(self, producer=1, ttl_ms=0, delay_ms=0):
        """A message with times of its own."""
        self.sequence += 1
        head = encode_head(Head())
        pack = memoryview(ROW.pack(len(head), 1, ttl_ms, delay_ms, 4, 0, 0, 0) + head + b"x")
        where = (1, 5, producer, self.sequence, 1)
        self.run(
            lambda fx: self.engine.send(
                *where, pack=pack, is_persistent=True, now_ms=self.now_ms, fx=fx
            )
        )

    def line(self, name="orders"):
        """What waits there."""
        return self.engine.state.queues[name].line


def _trouble(rig, trouble, when):
    """The trouble begins, while the node runs or while it is down."""
    rig.machine.begin(trouble)
    if when == "boot":
        rig.start()


def _check(took_s, wanted_s, trouble, when="running"):
    """An hour of sleep counts as time that has passed; so does one that the wall clock tells of at
    a boot, for nobody else knows how long the node was down."""
    if trouble == "suspended" or (trouble, when) == ("ahead", "boot"):
        assert took_s <= 1
    else:
        assert abs(took_s - wanted_s) <= wanted_s * SLACK + 0.5


every_trouble = pytest.mark.parametrize("trouble", TROUBLES)
every_moment = pytest.mark.parametrize("when", ["boot", "running"])


@every_trouble
@every_moment
def test_what_may_live_so_long_lives_so_long(trouble, when):
    """Not a minute less when a time service corrects an hour, and not an hour more."""
    rig = Rig()
    rig.put(ttl_ms=WAITS_S * 1000)
    _trouble(rig, trouble, when)
    _check(rig.seconds_until(lambda: rig.line().waiting_count == 0), WAITS_S, trouble, when)
    rig.put(ttl_ms=WAITS_S * 1000)
    _check(rig.seconds_until(lambda: rig.line().waiting_count == 0), WAITS_S, "")


@every_trouble
@every_moment
def test_what_is_delayed_comes_in_time(trouble, when):
    """Time stood still after a boot with the clock behind."""
    rig = Rig()
    rig.put(delay_ms=WAITS_S * 1000)
    _trouble(rig, trouble, when)
    _check(rig.seconds_until(lambda: rig.line().waiting_count == 1), WAITS_S, trouble, when)
    rig.put(delay_ms=WAITS_S * 1000)
    _check(rig.seconds_until(lambda: rig.line().waiting_count == 2), WAITS_S, "")


@every_trouble
@every_moment
def test_what_failed_comes_again_in_time(trouble, when):
    """Its queue waits for a second."""
    rig = Rig()
    rig.put(producer=3)
    for is_first in (True, False):
        (message,) = rig.consume(1, "slow")
        span = [(message.id, message.id)]
        rig.run(lambda fx, s=span: rig.engine.give_back(1, 1, 0, s, Return.FAILED, rig.now_ms, fx))
        rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))
        if is_first:
            _trouble(rig, trouble, when)
        took_s = rig.seconds_until(lambda: rig.line("slow").waiting_count == 1)
        _check(took_s, 1, *((trouble, when) if is_first else ("",)))


@every_trouble
@every_moment
def test_a_schedule_keeps_its_interval(trouble, when):
    """Neither a burst nor a silence of an hour."""
    rig = Rig()
    first_ms, body = rig.now_ms + 2000, ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) + b"x"
    plan = Plan("beat", "queue", "orders", every_ms=2000, first_ms=first_ms, missed="ONE")
    rig.run(
        lambda fx: rig.engine.schedule(
            1, 5, 1, plan, memoryview(body), rig.now_ms, fx, may_replace=False
        )
    )
    _trouble(rig, trouble, when)
    rig.look()
    rig.seconds_until(lambda: rig.engine.due_ms() > rig.now_ms)  # what was due is sent
    before = rig.line().waiting_count
    took_s = rig.seconds_until(lambda: rig.line().waiting_count >= before + 10)
    assert 17 <= took_s <= 23
    if trouble == "suspended":  # who was asleep has missed nothing, who was down sends one
        assert rig.line().waiting_count >= (1_800 if when == "running" else 11)


@every_trouble
@every_moment
def test_a_lease_ends_in_time(trouble, when):
    """A temporary queue waits a minute for the connection that owns it; a branch for its end."""
    rig = Rig()
    state = rig.engine.state
    name = rig.engine.create_temporary(1, "queue", Effects())
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    _trouble(rig, trouble, when)
    if when == "boot":
        assert name not in rig.engine.state.queues
        return
    _check(rig.seconds_until(lambda: name not in state.temporaries), 60, trouble)


@every_trouble
@every_moment
def test_a_boot_is_told_from_the_last_one_by_the_log(trouble, when):
    """Incarnation, ids and times go on, whatever the clock says."""
    rig, told = Rig(), []
    for _ in range(3):
        moves = rig.engine.state.moves
        rig.put()
        told.append((moves.incarnation, rig.line().everything()[-1].id, rig.now_ms))
        lives = {moves.life}
        _trouble(rig, trouble, when)
        rig.look()
        rig.start()
        lives.add(rig.engine.state.moves.life)
        assert len(lives) == 1
    step = 2 if when == "boot" else 1
    assert [incarnation for incarnation, _, _ in told] == [1, 1 + step, 1 + 2 * step]
    assert told == sorted(told)
    assert len({one[2] for one in told}) == 3
