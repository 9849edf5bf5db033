"""Three copies of a log and an asynchronous one under load, while machines are killed, stand still
and lose their power, and the asynchronous one its disk. It never counts and never leads by itself,
it catches up each time, and a lossy promotion names exactly what is missing.

HMS_HA=full: 40 faults; HMS_FAULTS=N: so many. HMS_HA_SEED=N has the faults of a run again.
"""

import json
import os
import random
import shutil
import threading
from contextlib import closing

import pytest
from faults_rig import NAMES, Steady, group_in
from test_cluster_power import POWERLESS

import hms
from tests.acceptance.ha_rig import WAIT_S, bodies, connect, hms_command
from tests.support.etcd import Etcd
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
FAULTS = int(os.environ.get("HMS_FAULTS", "40")) if IS_FULL else 0
LEASE_S = 3
FAR = "d"
LEADS = "{} leads node1 from epoch "
"""What a machine says when it takes over."""
MISSING = 30


def _wait(seconds):
    threading.Event().wait(seconds)


def kill(group, _dice):
    """The one that leads."""
    group.nodes[group.leader].kill()


def pause(group, dice):
    """The asynchronous one; so nobody waits, and it is far behind when it goes on."""
    before = group.said()["epoch"]
    group.nodes[FAR].pause()
    _wait(dice.uniform(1, 2 * LEASE_S))
    assert before <= group.said()["epoch"]
    group.nodes[FAR].resume()


def power(group, dice):
    """It and some of the others at one instant."""
    names = [FAR, *dice.sample(NAMES, dice.randint(1, 3))]
    group.lose_power(names)
    _wait(dice.uniform(0, LEASE_S))
    for name in names:
        group.nodes[name].boot()


def alone(group, _dice):
    """All others are away for longer than any lease: it leads nothing."""
    group.lose_power(NAMES)
    _wait(3 * LEASE_S)
    code, said = hms_command(group.nodes[FAR], "replica", "status", "--json")
    assert (code, FAR in json.loads(said)["members"]) == (1, False), said
    for name in NAMES:
        group.nodes[name].boot()


def disk(group, _dice):
    """It has none of the log any more."""
    one = group.nodes[FAR]
    one.kill()
    shutil.rmtree(one.store)
    one.boot()


KINDS = (kill, pause, power, alone, disk)


def rows_of(group, name):
    """Of a replica: its old copy is one of them for as long as it might be heard."""
    return [row for row in group.said()["replicas"] if row["replica"] == name]


def never_counts(group):
    """Whatever happened before."""
    said = group.said()
    assert sorted(said["members"]) == list(NAMES)
    (row,) = (row for row in said["replicas"] if row["replica"] == FAR)
    assert (row["mode"], row["is_member"]) == ("ASYNC", False)
    assert row["state"] == "IN_SYNC"
    assert LEADS.format(FAR) not in group.nodes[FAR].log


def has_all(group):
    """The asynchronous copy, by its own word and byte by byte."""

    def is_even():
        rows = group.said()["replicas"]
        return any((row["replica"], row["lag_bytes"]) == (FAR, 0) for row in rows)

    wait_until(is_even, 2 * WAIT_S)
    code, said = hms_command(group.nodes[FAR], "replica", "verify")
    assert code == 0, said


@pytest.mark.timeout(120 * FAULTS + 600)
def test_a_copy_that_never_counts_never_leads_and_catches_up_whatever_fails(
    tmp_path, record_property
):
    """Each kind once in the short form; then all others are lost for good, and an operator has it
    lead: what clients are told to be missing is what it lacks, message by message."""
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    dice, figures = random.Random(seed), {"seed": seed}
    record_property("figures", figures)
    names = (*NAMES, FAR)
    etcd = Etcd(tmp_path)
    etcd.start()
    try:
        endpoints = {name: [etcd.url] for name in names}
        prefixes = dict.fromkeys(names, POWERLESS)
        with group_in(tmp_path, endpoints, prefixes, lease_s=LEASE_S, far=(FAR,)) as group:
            with closing(Steady(group.addresses)) as load:
                for number in range(FAULTS or len(KINDS)):
                    load.await_flow(20)
                    (dice.choice(KINDS) if FAULTS else KINDS[number])(group, dice)
                    group.wait_for_all()
                    wait_until(lambda: len(rows_of(group, FAR)) == 1, WAIT_S)
                    never_counts(group)
                    figures["faults"] = number + 1
                load.await_flow(20)
                figures |= load.finish() | {"take-overs": group.said()["epoch"] - 1}
            assert any(LEADS.format(name) in group.nodes[name].log for name in NAMES)
            has_all(group)
            lose_all_others(group)
    finally:
        etcd.stop()


def lose_all_others(group):
    """With so many messages that it does not have."""
    far, lost = group.nodes[FAR], []
    with connect(*group.nodes.values(), exception_listener=lost.append) as connection:
        producer = connection.session().producer("orders")
        producer.send(b"everywhere")
        has_all(group)
        far.kill()  # one that only stood still would find on its link what was written
        for number in range(MISSING):
            producer.send(b"%d" % number)
        group.lose_power(NAMES)
        far.boot()
        code, said = hms_command(far, "replica", "promote", FAR, "--lossy", "--yes")
        assert (code, f"{FAR} leads" in said) == (0, True), said
        assert LEADS.format(FAR) in far.log
        producer.send(b"goes on")
        wait_until(lambda: any(isinstance(one, hms.ConfirmedLost) for one in lost), WAIT_S)
        (fault,) = (one for one in lost if isinstance(one, hms.ConfirmedLost))
        assert fault.count == MISSING
    assert bodies(far) == [b"everywhere", b"goes on"]
