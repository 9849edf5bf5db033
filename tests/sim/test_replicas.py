"""Copies of a log under everything that happens to them: python -m tests.sim.replicas --minutes N.

Pure machines, real code of both ends of the link; see tests.sim.replicas.
"""

import os
from collections import Counter

import pytest

from hms.errors.catalogue import StoreNotFinalized
from hms.server.replicas import follower
from hms.server.replicas.frames import BeatAck
from hms.server.replicas.log_copy import LogCopy
from hms.store.journal.segment_walk import Walk, opened, read_info, segment_file, segment_numbers
from tests.sim.replicas import hostile
from tests.sim.replicas.world import FOLDER, LEASE_S, LOG, World
from tests.support.effort import tries

WORLDS = 400 if os.environ.get("HMS_HA") == "full" else 3
FULL = (2, 3, 5)
FIRST, WORLDS_MAX = 15, WORLDS + 20
"""So many more are tried until each kind of event was there."""


@pytest.mark.timeout(1800)
def test_nothing_confirmed_is_lost_and_no_copy_breaks_an_invariant():
    """Kills at any call of the disk, power cuts, pauses, partitions, arbiters that are away."""
    changes = switchovers = set_aside = attacks = damages = 0
    outcomes = Counter()
    for seed in range(FIRST, FIRST + WORLDS_MAX):
        is_covered = (
            set_aside
            and damages
            and switchovers >= WORLDS
            and outcomes.keys() >= {"Lead", "GiveWay", "GaveUp"}
        )
        if seed >= FIRST + WORLDS and is_covered:
            break
        world = World(seed, copies=(3, 2, 5)[seed % 3])
        assert world.run(4000) == [], f"seed {seed}"
        outcomes += world.outcomes
        damages += world.damages
        set_aside += world.set_aside
        attacks += world.attacks
        changes, switchovers = changes + world.role_changes, switchovers + world.switchovers

    assert changes >= 5 * WORLDS
    assert switchovers >= WORLDS
    assert set_aside
    assert attacks > 10 * WORLDS
    assert damages
    assert outcomes.keys() >= {"Lead", "GiveWay", "GaveUp"}


@pytest.mark.timeout(1800)
def test_what_a_promotion_loses_is_told_to_the_client_and_nothing_else_is_lost():
    """Segments leave the log, pinned or to the history; copies are left behind, and an operator has
    one of them lead; disks refuse, and what is said one way stands still."""
    left = promotions = told = refusals = 0
    for seed in FULL:
        world = World(seed, copies=2, is_full=True)
        assert world.run(4000) == [], f"seed {seed}"
        left, promotions = left + world.left, promotions + world.promotions
        told, refusals = told + world.told_lost, refusals + world.refusals

    assert left > 10 * len(FULL)
    assert promotions
    assert told
    assert refusals


@pytest.mark.timeout(1800)
def test_an_asynchronous_copy_counts_never_and_loses_nothing():
    """With one to three that count; an operator makes one of them asynchronous, and back."""
    changes = modes = 0
    for seed in range(FIRST, FIRST + WORLDS + 3):
        world = World(seed, copies=(2, 3, 1)[seed % 3], far=1 + seed % 2)
        assert world.run(3000) == [], f"seed {seed}"
        changes, modes = changes + world.role_changes, modes + world.changes_of_mode

    assert changes >= 5 * WORLDS
    assert modes > WORLDS


@pytest.mark.timeout(600)
def test_a_group_goes_on_when_two_of_its_machines_have_new_disks():
    """Also where every copy confirms: no change of one member alone has enough whole copies. The
    others live, or everybody begins anew."""
    replaced, count = 0, tries(24)
    for number in range(count):
        world = World(9001 + number, 3 + number % 3, confirm="ALL" if number % 2 == 0 else "")
        assert world.run(1000) == []
        replaced += world.replace_two(at_once=number % 4 > 1)
        assert world.run(1000) == [], f"seed {9001 + number}"

    assert replaced > 0.8 * count


def test_what_once_kept_a_group_from_going_on_does_not():
    """Two of three machines had new disks, and confirm was ALL."""
    assert World(9001, 3).run(6000) == []


def test_a_segment_that_was_never_sealed_is_whole_before_the_next_one_begins():
    """Of one that a crash left without a seal, the last record stands where a seal would."""
    assert World(38).run(6000) == []


@pytest.mark.parametrize("copies", [2, 3])
def test_a_log_that_is_read_for_longer_than_a_lease_is_no_reason_to_take_over(copies):
    """Else the next one would read it as long, and so on."""
    world = World(5, copies)
    world.heal()
    led = next(name for name, one in world.processes.items() if one.log is not None)
    before = world.configuration().epoch
    world.reading_s = lambda: 5 * LEASE_S
    world.kill(led, is_power=False)

    world.heal()
    while not any(one.log for one in world.processes.values()):
        world.step()

    assert world.faults == []
    assert world.configuration().epoch == before + 1


def test_a_format_that_a_copy_cannot_read_is_not_for_the_log(monkeypatch):
    """Each says what it reads when it joins; one of a release before says nothing."""
    world = World(5, copies=3)
    monkeypatch.setattr(follower, "FORMATS", (2,))
    world.heal()
    primary = next(one.primary for one in world.processes.values() if one.log is not None)

    primary.check_format(2)
    with pytest.raises(StoreNotFinalized, match="b, c cannot read format 3"):
        primary.check_format(3)
    world.kill("c", is_power=False)
    world.now_s += 3
    with pytest.raises(StoreNotFinalized, match="cannot be asked"):
        primary.check_format(2)


@pytest.mark.parametrize("formats", [(2,), (2, 3, 4)])
def test_a_copy_that_cannot_read_the_log_does_not_count(monkeypatch, formats):
    """One of an older release comes back to a log whose format was raised: it gets all, and would
    lead with what it cannot read. A newer one counts."""
    world = World(5, copies=3)
    world.heal()
    led = next(one for one in world.processes.values() if one.log is not None)
    others = [name for name in world.names if name != led.name]
    monkeypatch.setattr(follower, "FORMATS", formats)
    for name in others:
        world.kill(name, is_power=False)
    world.is_healing = True
    for _ in range(1500):
        led.log.step()
        world.step()

    primary, is_good = led.primary, 3 in formats
    told = primary.troubles()["replica_behind"]
    counted = {row["replica"] for row in primary._rows() if row["is_in_sync"]}
    assert counted == (set(others) if is_good else set())
    assert told == ("" if is_good else told)
    assert is_good or "b, c cannot read format 3 of the log, and does not count" in told
    assert world.faults == []


def test_a_seed_gives_the_same_bytes_at_every_copy_again():
    """What is found can be looked at."""
    first, second = World(3, copies=3), World(3, copies=3)

    assert first.run(800) == second.run(800)
    assert first.digest() == second.digest()


def test_a_copy_that_catches_up_may_take_over_at_any_moment(monkeypatch):
    """A seal says that another segment follows: a copy that has the one without the other, when the
    power goes, looks damaged to its own recovery."""
    world = World(5)
    for _ in range(2500):
        world.step()
    world.heal()
    name = next(name for name, one in world.processes.items() if one.log is None)
    world.kill(name, is_power=True)
    world.replace_disk(name)
    disk, ends = world.disks[name], []
    take = LogCopy.take

    def looked_at(self, said, data):
        take(self, said, data)
        number = max(segment_numbers(disk, FOLDER, ".log"), default=0)
        if self._disk is disk and number:
            info = read_info(disk, segment_file(FOLDER, number), number, is_last=True)
            with opened(disk, info.file) as fd:
                walk = Walk(disk, fd, info)
                list(walk.records())
                ends.append(walk.is_at_seal())

    monkeypatch.setattr(LogCopy, "take", looked_at)
    for _ in range(4000):
        world.step()
        state = world._state(name)
        if state and state.copy_id in {one.copy_id for one in world.configuration().members}:
            break

    assert world.faults == []
    assert len(ends) > 20
    assert not any(ends)


def test_an_answer_to_a_beat_that_was_not_sent_proves_nothing():
    """Leadership is proved by answers to what was asked; one from the future would prove it for
    good."""
    world, primary = World(7), None
    for _ in range(4000):
        world.step()
        led = [one.primary for one in world.processes.values() if one.log is not None]
        primary = next((one for one in led if one._links), None)
        if primary is not None:
            break
    assert primary is not None
    route, link = next(iter(primary._links.items()))
    refused = primary.refused

    primary._receive(route, hostile.frame(BeatAck(1e300), log=LOG, replica=link.member.name))

    assert primary.refused == refused + 1
    assert primary._confirmation.proof_s(primary._clock_s()) <= primary._clock_s()
