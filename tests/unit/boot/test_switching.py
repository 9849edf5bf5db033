"""A planned move waits until the replica that is to lead has applied the log, and says how far.

The node, its copies and its clients are stand-ins; tests/acceptance/test_ha_switchover.py has real
ones.
"""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from hms.boot.switching import REST_BYTES, REST_LATER, Switching
from hms.errors.catalogue import NodeStopping, SwitchoverRefused
from hms.server.draining import Left
from hms.wire.operations import SwitchOver

WAIT_S = 60


class Draining:
    def __init__(self):
        self.happened = []

    def begin(self, _fx):
        self.happened.append("begun")

    def end(self, _fx):
        self.happened.append("ended")

    def finish(self):
        self.happened.append("finished")

    def left(self):
        return Left()


class Moving:
    """A move to b, which has these numbers of bytes to apply, one after the other; the last one
    stays."""

    def __init__(self, *left):
        self.left, self.asked, self.on_asked = list(left), 0, lambda: None
        self.tells_after = 0
        """So many times it is asked before it says something."""
        self.draining, self.end, self.moved = Draining(), threading.Event(), threading.Event()
        self.fault, self.waited, self.lock = None, [], threading.Lock()
        broker = SimpleNamespace(
            draining=self.draining,
            engine=SimpleNamespace(state=SimpleNamespace(connections={})),
            command=self.command,
            look=lambda look: look(None),
        )
        taken = SimpleNamespace(
            may_lead=lambda to: to or "b",
            hand_over=lambda to: to,
            readiness=None,
            to_apply=self.to_apply,
            has_told=lambda _to, _within_s: self.asked >= self.tells_after,
            epoch=4,
        )
        node = SimpleNamespace(name="n", drain_s=30)
        self.switching = Switching(node, taken, broker, lambda: None, self.moved.set)

    def command(self, act):
        with self.lock:
            act([], 0)

    def to_apply(self, _to):
        self.asked += 1
        self.waited.append(self.switching.waits_for)
        self.on_asked()
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def ordered(self, **how):
        with self.lock:
            later = self.switching.begin(SwitchOver(**how))
            later.then = self.ended
        assert self.end.wait(WAIT_S)
        return self

    def ended(self, fault):
        self.fault = fault
        self.end.set()


@contextmanager
def refused(moving, match):
    """And nothing was begun."""
    with pytest.raises(SwitchoverRefused, match=match):
        yield
    assert moving.draining.happened == []
    assert not moving.moved.is_set()
    assert not moving.switching.is_on
    assert moving.switching.waits_for == ""


def raised(moving):
    if moving.fault is not None:
        raise moving.fault


def test_nothing_stops_before_the_rest_of_the_log_is_small():
    moving = Moving(9 << 20, 5 << 20, 2 << 20, REST_BYTES)
    drains = []
    moving.on_asked = lambda: drains.append(bool(moving.draining.happened))

    moving.ordered()

    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)
    assert drains == [False] * 4 + [True]  # once more at the end of the drain
    assert moving.waited[2] == "b, which has up to 5,120 KiB of the log to apply"
    assert moving.draining.happened == ["begun", "finished"]


@pytest.mark.parametrize("left", [None, 0, REST_BYTES])
def test_one_that_has_it_or_does_not_say_is_not_waited_for(left):
    """A warm standby reads the log when it leads; one of a release before is not asked."""
    moving = Moving(left).ordered(apply_s=0)
    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)


def test_a_rest_that_stays_large_refuses_the_move_with_its_size():
    moving = Moving(9 << 20, 3 << 20, 3 << 20)
    with refused(
        moving, r"has up to 3,072 KiB of the log to apply, and 64 KiB may be left; it had up to 9,"
    ):
        raised(moving.ordered(apply_s=0.2))


def test_by_force_it_is_not_waited_for_longer():
    moving = Moving(9 << 20).ordered(apply_s=0, is_forced=True)
    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)


def test_one_that_is_booted_anew_while_the_node_drains_is_waited_for():
    """Its new process has applied nothing."""
    again = REST_LATER * REST_BYTES + 1
    moving = Moving(0, again, again, 0).ordered()
    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)
    assert moving.asked >= 4


def test_what_was_known_of_it_before_the_order_does_not_count():
    """Its process had just ended, the one before had all: the node drained for one that lacked the
    whole log, or handed over to nobody."""
    moving = Moving(0, 0, 0, 9 << 20, 0)
    moving.tells_after = 3
    drains = []
    moving.on_asked = lambda: drains.append(bool(moving.draining.happened))

    moving.ordered()

    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)
    assert drains[:5] == [False] * 5
    assert moving.waited[1] == "b, which has not said yet how much of the log it has to apply"


def test_one_that_never_says_it_refuses_the_move():
    moving = Moving(0)
    moving.tells_after = 1 << 30
    with refused(
        moving, r"after 0\.\d s it has not said how much of the log it has to apply\. More"
    ):
        raised(moving.ordered(apply_s=0.2))


def test_by_force_one_that_does_not_say_it_is_not_waited_for_longer():
    moving = Moving(0)
    moving.tells_after = 1 << 30
    moving.ordered(apply_s=0, is_forced=True)
    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)


def test_one_that_is_silent_for_a_moment_has_what_it_had():
    moving = Moving(9 << 20, 9 << 20, None, None, 0).ordered()
    assert moving.fault is None
    assert moving.moved.wait(WAIT_S)


def test_a_node_that_is_stopped_meanwhile_does_not_move():
    moving = Moving(9 << 20)

    def stops():
        moving.switching.is_stopping = moving.asked > 2

    moving.on_asked = stops
    with pytest.raises(NodeStopping):
        raised(moving.ordered())
    assert moving.draining.happened == []


def test_a_second_move_is_refused_while_one_waits():
    moving = Moving(9 << 20)
    seen = []

    def second():
        if moving.asked == 3:
            with pytest.raises(SwitchoverRefused, match="a move to b is under way") as fault:
                moving.switching.begin(SwitchOver())
            seen.append(fault)
            moving.left = [0]

    moving.on_asked = second
    moving.ordered()
    assert moving.fault is None
    assert len(seen) == 1
