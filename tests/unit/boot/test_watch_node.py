"""Alerts of the node itself: each is provoked, and ends."""

from types import SimpleNamespace

import pytest

from hms.boot.clock import EvenClock
from hms.boot.monitoring.watch_node import STEP_SHOWN_S, NodeWatch
from hms.boot.sections import Alerts as Limits
from hms.engine.xa.branch import BranchState
from hms.server.alerts import Alerts


class Rig:
    """A node whose clocks and figures stand here."""

    def __init__(self):
        self.now_s, self.ahead_ms, self.backed_up_ms = 100.0, 1_700_000_000_000, 0
        self.shipped_ms = 0
        self.resources = {}
        self.branches = []
        self.peers = {}
        self.links, self.clocks = [], []
        self.clock = EvenClock(self.machine_ns, lambda: round(self.now_s * 1e9))
        self.alerts = Alerts(self.clock, lambda: self.now_s)
        self.watch = NodeWatch(
            self.alerts,
            Limits(),
            lambda: self.backed_up_ms,
            lambda: self.shipped_ms,
            lambda: SimpleNamespace(describe=lambda: self.resources),
            self.clock,
            self.clock.machine_ms,
            lambda: self.now_s,
            clocks=lambda: self.clocks,
        )

    def machine_ns(self):
        return (self.ahead_ms + round(self.now_s * 1000)) * 1_000_000

    def look(self, later_s=1.0):
        """What is wrong so much later, by name."""
        self.now_s += later_s
        state = SimpleNamespace(
            branches=SimpleNamespace(in_doubt=lambda: self.branches),
            decisions=SimpleNamespace(decided={}),
        )
        told = {"links": self.links}
        cluster = SimpleNamespace(peers=self.peers, describe_links=lambda: told)
        self.watch.look_at_engine(SimpleNamespace(state=state, cluster=cluster))
        self.watch.look()
        return {one["alert"]: one["text"] for one in self.alerts.active()}


@pytest.fixture
def rig():
    made = Rig()
    assert made.look() == {}
    return made


def test_what_an_operator_decided_is_an_alert_until_it_is_forgotten(rig):
    """The transaction manager may have decided otherwise."""
    rig.branches = [SimpleNamespace(state=BranchState.PREPARED)]
    assert rig.look() == {}
    rig.branches.append(SimpleNamespace(state=None))
    assert rig.look().keys() == {"heuristic_outcome"}
    rig.branches.pop()
    assert rig.look() == {}


def test_a_peer_that_cannot_be_reached_is_an_alert(rig):
    """After ten seconds: a link that comes again at once is none."""
    rig.peers = {2: SimpleNamespace(name="node2", is_up=False)}
    assert rig.look() == {}
    assert rig.look(10) == {"peer_down": "node2 cannot be reached"}
    rig.peers[2].is_up = True
    assert rig.look() == {}


def test_nodes_whose_clocks_differ_are_named(rig):
    """Two hours were told by nobody. Who has just come has said too little to tell."""
    rig.links = [
        {"node": "node2", "clock_ahead_s": 7200.0},
        {"node": "node3", "clock_ahead_s": None},
        {"node": "node4", "clock_ahead_s": -0.9},
        {"node": "node5", "clock_ahead_s": -1.5},
    ]
    assert rig.look() == {}
    said = "the clock of node2 is 7,200.0 s ahead, the clock of node5 is 1.5 s behind"
    assert rig.look(10) == {"clock_differs": said}
    del rig.links[3], rig.links[0]
    assert rig.look() == {}


def test_replicas_whose_clocks_differ_are_named(rig):
    """The one that takes over has the node's time follow its own."""
    rig.clocks = [
        {"node": "b", "clock_ahead_s": -7200.0},
        {"node": "c", "clock_ahead_s": None},
        {"node": "d", "clock_ahead_s": 1.0},
    ]
    assert rig.look() == {}
    assert rig.look(10) == {"clock_differs": "the clock of b is 7,200.0 s behind"}
    rig.clocks[0]["clock_ahead_s"] = 0.5
    assert rig.look() == {}


def test_a_resource_manager_that_is_down_is_named(rig):
    """Transactions with it wait."""
    rows = [{"name": "pg", "state": "down"}, {"name": "maria", "state": "up"}]
    rig.resources = {"recovery": {"resources": rows}}
    assert rig.look() == {}
    assert rig.look(60) == {"resource_down": "pg cannot be reached"}
    rows[0]["state"] = "up"
    assert rig.look() == {}


@pytest.mark.parametrize(("step_s", "way"), [(90, "ahead"), (-90, "back")])
def test_a_clock_that_steps_is_told_for_ten_minutes(rig, step_s, way):
    """What expires and what is due follows it. Half a second is no step."""
    rig.ahead_ms += 500
    assert rig.look() == {}
    rig.ahead_ms += 1000 * step_s
    assert rig.look() == {"clock_stepped": f"the clock went 90.0 s {way}"}
    assert rig.look(STEP_SHOWN_S - 1).keys() == {"clock_stepped"}
    assert rig.look() == {}


def test_a_clock_that_went_back_while_the_node_was_down_is_told():
    """The log knew a later time, which the node goes on from; it said "ahead"."""
    rig = Rig()
    rig.clock.begin_at(rig.clock() + 7_200_000)
    assert rig.look() == {"clock_stepped": "the clock went 7200.0 s back"}
    assert rig.look(STEP_SHOWN_S) == {}


def test_a_clock_that_cannot_be_read_has_not_stepped(rig):
    """A machine past 2262 has none; the next look compares with the one before."""
    before, rig.ahead_ms = rig.ahead_ms, 1 << 60
    assert rig.look() == {}
    rig.ahead_ms = before
    assert rig.look() == {}


def test_a_backup_that_is_overdue_is_told_until_one_is_begun(rig):
    """Also when there was none since the boot; a step of the clock does not make it late."""
    rig.ahead_ms += 100_000_000
    assert rig.look().keys() == {"clock_stepped"}
    assert rig.look(93_000) == {}
    assert rig.look(700).keys() == {"backup_overdue"}
    rig.backed_up_ms = rig.clock()
    assert rig.look() == {}
    assert rig.look(93_601).keys() == {"backup_overdue"}


def test_shipping_that_falls_behind_is_told_until_it_goes_on(rig):
    """Whoever never shipped is not missed."""
    assert rig.look(1000) == {}
    rig.shipped_ms = rig.clock()
    assert rig.look() == {}
    assert rig.look(300) == {"ship_lag": "nothing was shipped for 300 s"}
    rig.shipped_ms = rig.clock()
    assert rig.look() == {}
