"""Three copies of a log and an etcd of three members under load, while something fails again and
again: a machine stands still, machines lose their power, members of etcd are away, stand still or
have another time, clocks that drift are set during a take-over. Lost, doubled, unexpected: 0, and
no client is told of an error.

HMS_HA=full: 100 pauses, 100 losses of power, 60 faults of etcd, 40 of clocks; HMS_FAULTS=N: N of
each. HMS_HA_SEED=N has the faults of a run again.
"""

import os
import random
import threading
import time

import pytest
from faults_rig import NAMES, Steady, group_in
from test_cluster_power import POWERLESS

from tests.acceptance.ha_rig import connect
from tests.acceptance.test_clock_steps import WallClock
from tests.support.etcd_members import EtcdMembers
from tests.support.foreign_clock import ForeignClock, is_settable

IS_FULL = os.environ.get("HMS_HA") == "full"
LEASE_S = 6
"""A busy machine stands still for shorter: then the epoch that a test counts stays as it is."""
PAUSE_S = 30 if IS_FULL else 8
SKEW_S = 60
DRIFT = 0.01


class Place:
    """A group, its etcd, its clocks and its load, with what happens to them."""

    def __init__(self, group, etcd, clocks, load, dice):
        self.group, self.etcd, self.clocks = group, etcd, clocks
        self.load, self.dice = load, dice

    def pause(self):
        """A machine stands still: the one that leads every other time."""
        led = self.group.leader
        name = self.dice.choice((led, self.dice.choice([one for one in NAMES if one != led])))
        self.group.nodes[name].pause()
        self._wait(self.dice.uniform(1, PAUSE_S))
        self.group.nodes[name].resume()

    def power(self):
        """One machine, two or all three lose it at one instant."""
        names = self.dice.sample(NAMES, self.dice.randint(1, 3))
        self.group.lose_power(names)
        self._wait(self.dice.uniform(0, LEASE_S))
        for name in names:
            self.group.nodes[name].boot()

    def etcd_fails(self):
        """One member, two or all are away, stand still or have another time: no outage and no
        take-over. Where a majority is away and the primary is killed, a take-over comes when etcd
        is back; where only the time is another one, it comes at once."""
        before = self.group.said()
        chosen = self.dice.sample(self.etcd.members, self.dice.randint(1, 3))
        if is_settable() and self.dice.random() < 1 / 3:
            self._etcd_times(chosen, before)
            return
        is_pause, has_kill = self.dice.random() < 0.5, len(chosen) > 1 and self.dice.random() < 0.3
        for one in chosen:
            one.pause() if is_pause else one.stop()
        self._wait(self.dice.uniform(0, 2 * LEASE_S))
        self.load.await_sends(20)
        if has_kill:
            self.group.nodes[before["replica"]].kill()
            self._wait(LEASE_S)
        if is_pause:
            for one in chosen:
                one.resume()
        self.etcd.start()
        self.load.await_sends(20)
        epochs = self.group.said()["epoch"] - before["epoch"]
        assert epochs > 0 if has_kill else epochs == 0

    def _etcd_times(self, chosen, before):
        for one in chosen:
            skew_s, before_s = self.dice.randint(-SKEW_S, SKEW_S), int(time.time())
            ForeignClock(one.pid).set(skew_s)
            assert before_s <= one.time_s() - skew_s <= time.time()
        has_kill = self.dice.random() < 0.3
        if has_kill:
            self.group.nodes[before["replica"]].kill()
        self._wait(self.dice.uniform(0, 2 * LEASE_S))
        self.load.await_sends(20)
        epochs = self.group.said()["epoch"] - before["epoch"]
        assert epochs > 0 if has_kill else epochs == 0

    def set_clocks(self):
        """Each by up to a minute, also while a copy takes over; they drift all the time."""
        for clock in self.clocks.values():
            clock.set(self.dice.randint(-SKEW_S, SKEW_S))
        before = self.group.said()
        if self.dice.random() < 0.5:
            self.load.await_sends(20)
            assert self.group.said()["epoch"] == before["epoch"]
            return
        self.group.nodes[before["replica"]].kill()
        for clock in self.clocks.values():
            clock.set(self.dice.randint(-SKEW_S, SKEW_S))

    @staticmethod
    def _wait(seconds):
        threading.Event().wait(seconds)


KINDS = {
    "pauses": (Place.pause, 100),
    "power": (Place.power, 100),
    "etcd": (Place.etcd_fails, 60),
    "clocks": (Place.set_clocks, 40),
}


def chosen(kinds):
    """What happens, one after the other: as often as the full form says, or one of each kind."""
    if not IS_FULL:
        return [KINDS[kind][0] for kind in kinds]
    return [
        fault
        for fault, times in map(KINDS.get, kinds)
        for _ in range(int(os.environ.get("HMS_FAULTS", times)))
    ]


@pytest.mark.timeout(90 * 100 if IS_FULL else 600)
@pytest.mark.parametrize(
    "kinds", [[kind] for kind in KINDS] if IS_FULL else [list(KINDS)], ids=",".join
)
def test_whatever_fails_nothing_is_lost_or_doubled_and_no_client_is_told_of_it(
    kinds, tmp_path, record_property
):
    """Two of three are whole, or come back with all that they had answered for."""
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    faults, figures = chosen(kinds), {"kinds": ",".join(kinds), "seed": seed}
    record_property("figures", figures)
    dice, clocks, drifts = random.Random(seed), {}, [DRIFT, -DRIFT, 0]
    if "clocks" not in kinds:
        drifts = [0, 0, 0]
    for name, drift in zip(NAMES, dice.sample(drifts, len(drifts)), strict=True):
        (tmp_path / f"clock-{name}").mkdir()
        clocks[name] = WallClock(tmp_path / f"clock-{name}", drift)
    prefixes = {name: [*clock.prefix, *POWERLESS] for name, clock in clocks.items()}
    etcd = EtcdMembers(tmp_path)
    try:
        etcd.start()
        endpoints = {name: [one.url for one in etcd.members] for name in NAMES}
        with group_in(tmp_path, endpoints, prefixes, lease_s=LEASE_S) as group:
            load = Steady(group.addresses)
            place = Place(group, etcd, clocks, load, dice)
            for number, fault in enumerate(faults, 1):
                load.await_flow(20)
                fault(place)
                group.wait_for_all()
                figures["faults"] = number
            load.await_flow(20)
            figures |= load.finish() | {"take-overs": group.said()["epoch"] - 1}
            with connect(*group.nodes.values()) as operator:
                for name in ("orders", "ledger", "announced"):
                    assert operator.administer("queue.show", {"name": name})["expired"] == 0
    finally:
        etcd.stop()
