"""Three copies of a log, each beside a member of etcd, in network namespaces whose links are cut
under load: at most one side confirms, and nothing confirmed is lost or doubled (must show 2).

HMS_HA=full: 14 set-ups of 180 s, with cuts of 10 and 30 s and 20 s between them.
HMS_HA_SEED=N has the cuts of a run again.
"""

import os
import random
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest
from faults_rig import NAMES, Steady, group_in
from netns_rig import make_lab

from tests.support.etcd_members import EtcdMembers

IS_FULL = os.environ.get("HMS_HA") == "full"


def _one(lab, dice, _led):
    """Any machine alone."""
    lab.isolate(dice.choice(lab.indexes))


def _leader(lab, _dice, led):
    """The one that leads alone."""
    lab.isolate(led)


def _bridge(lab, dice, led):
    """The one that leads and another one do not hear each other; the third one hears both."""
    lab.part(led, dice.choice([one for one in lab.indexes if one != led]))


def _ring(lab, dice, _led):
    """Each is heard by the next one only."""
    lab.ring(dice.sample(lab.indexes, len(lab.indexes)))


def _one_direction(lab, dice, _led):
    """What one says to another one is lost."""
    lab.mute(*dice.sample(lab.indexes, 2))


def _any(lab, dice, led):
    """One of these each time."""
    dice.choice([_one, _leader, _bridge, _ring, _one_direction])(lab, dice, led)


SHAPES = {
    "any machine": _one,
    "leader": _leader,
    "bridge": _bridge,
    "ring": _ring,
    "one direction": _one_direction,
    "any": _any,
}


@dataclass(frozen=True)
class Setup:
    """A shape, how long its cuts last, and the time between them."""

    shape: str
    cut_s: float
    pause_s: float = 20 if IS_FULL else 1
    load_s: float = 180 if IS_FULL else 1

    def __str__(self):
        return f"{self.shape}, {self.cut_s:g} of {self.cut_s + self.pause_s:g} s"


FULL = [
    *[Setup(shape, cut_s) for cut_s in (10, 30) for shape in SHAPES],
    *[Setup(shape, 1, pause_s=1) for shape in ("any machine", "leader")],
]
ORDINARY = [Setup("leader", 6), Setup("bridge", 4)]
SETUPS = FULL if IS_FULL else ORDINARY


@contextmanager
def group_apart(folder):
    """A group, each machine of it in a namespace with a member of etcd; and the laboratory."""
    with closing(make_lab(len(NAMES))) as lab:
        hosts = {name: lab.address(index) for index, name in enumerate(NAMES, 1)}
        prefixes = {name: lab.prefix(index) for index, name in enumerate(NAMES, 1)}
        etcd = EtcdMembers(folder, [(hosts[name], prefixes[name]) for name in NAMES])
        try:
            etcd.start()
            urls = {name: [one.url] for name, one in zip(NAMES, etcd.members, strict=True)}
            with group_in(folder, urls, prefixes, hosts) as group:
                yield lab, group
        finally:
            etcd.stop()


@pytest.fixture
def place(tmp_path_factory):
    """For one set-up: clients of one that failed would take what the next one sends."""
    with group_apart(tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.mark.timeout(900 if IS_FULL else 600)
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_cut_between_copies_and_their_arbiter_loses_doubles_and_splits_nothing(
    setup, place, record_property
):
    """Whoever is cut off confirms nothing that the others do not have."""
    lab, group = place
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    dice, figures = random.Random(seed), {"set-up": str(setup), "seed": seed, "cuts": 0}
    record_property("figures", figures)
    epoch = group.said()["epoch"]
    with closing(Steady(group.addresses)) as load:
        cut_and_heal(lab, group, load, setup, dice, figures)
        figures |= load.finish() | {"take-overs": group.said()["epoch"] - epoch}


def cut_and_heal(lab, group, load, setup, dice, figures):
    """As often as the time allows, once at least."""
    load.await_flow(20)
    until, pause = time.monotonic() + setup.load_s, threading.Event()
    while not figures["cuts"] or time.monotonic() + setup.pause_s < until:
        pause.wait(setup.pause_s)
        SHAPES[setup.shape](lab, dice, 1 + NAMES.index(group.leader))
        figures["cuts"] += 1
        pause.wait(setup.cut_s)
        lab.heal()
        group.wait_for_all()
    load.await_flow(20)
