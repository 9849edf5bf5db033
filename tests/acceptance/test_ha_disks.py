"""Disks of three copies under load: lost for good, a bit flipped in the newest and in the oldest
segment, a copy restored from yesterday. Each is named and mended as docs/how-to/after-a-disk-is-
lost.md says, and nothing that was confirmed is missing or doubled (must show 9).

HMS_HA=full: 60 faults, 5 of each on each machine in turn.
"""

import os
import shutil
from itertools import count, product
from pathlib import Path

import pytest
from copies_rig import NAMES, copies_in

from hms.errors.catalogue import BootFailed
from hms.history.archive_all import seal
from hms.store.journal.confirmed_place import confirmed_place
from tests.acceptance.ha_rig import WAIT_S, Sender, connect, hms_command, type_switchover
from tests.acceptance.test_ha_damage import HEADER_BYTES, SMALL, flip, flip_in, known_starts, names
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
ROUNDS = int(os.environ.get("HMS_DISKS", "5")) if IS_FULL else 0
MORE = 20
"""Messages that are confirmed before, during and after each fault."""


def status(one):
    """What `hms replica status` says on a machine."""
    return hms_command(one, "replica", "status", "--json")[1]


def counts(copies, name):
    """Whether its copy is one of those that confirm, and it knows that."""
    return '"copy": "counts"' in status(copies.nodes[name])


def lost(copies, name, sender, _folder):
    """Its disk is gone for good: boot with an empty store."""
    one = copies.nodes[name]
    one.kill()
    shutil.rmtree(one.store)
    sender.wait_for(MORE)
    one.boot()


def newest(copies, name, sender, _folder):
    """A bit of what it had answered for last: named at its boot, repaired when it follows."""
    one = copies.nodes[name]
    sender.wait_for(MORE)
    one.kill()
    place = confirmed_place(Path(one.store))
    flip(Path(one.store, f"{place.segment:016d}.log"), place.offset - 9)
    sender.wait_for(MORE)
    seen = len(one.log)
    one.boot()
    wait_until(lambda: f"segment {place.segment} " in one.log[seen:], WAIT_S)
    wait_until(lambda: "damaged" in one.log[seen:], WAIT_S)


def oldest(copies, name, sender, _folder):
    """A bit of a segment that is written no more: found by scrubbing, and repaired by a machine
    that follows; one that leads is moved away from."""
    one = copies.nodes[name]
    seal(copies.nodes[copies.leader].address)
    sender.wait_for(MORE)
    segment = names(one)[0]
    seen, number = len(one.log), int(segment[:16])
    flip_in(one, segment, HEADER_BYTES + 40)
    if copies.leader == name:
        with connect(one) as connection:
            wait_until(lambda: "copy_damaged" in str(connection.administer("alert.list")), WAIT_S)
        wait_until(lambda: '"copy": "damaged"' in status(one), WAIT_S)
        to = next(other for other in NAMES if other != name)
        assert type_switchover(one, "--to", to)[0] == 0
    wait_until(lambda: f"segment {number} is repaired" in one.log[seen:], WAIT_S)
    assert f"segment {number} is damaged" in one.log[seen:]


def yesterday(copies, name, sender, folder):
    """A backup is put in its place: refused, moved aside, and a new copy comes."""
    one = copies.nodes[name]
    one.kill()
    shutil.copytree(one.store, folder / "yesterday")
    sender.wait_for(MORE)
    before = known_starts(one)
    one.boot()
    wait_until(lambda: known_starts(one).get(name, 0) > before.get(name, 0), WAIT_S)
    copies.wait_for_all()
    sender.wait_for(MORE)
    one.kill()
    shutil.rmtree(one.store)
    (folder / "yesterday").rename(one.store)
    with pytest.raises(BootFailed, match="HMS-5068"):
        one.boot()
    wait_until(lambda: "went back" in status(one), WAIT_S)
    code, said = hms_command(one, "replica", "repair", "--yes")
    assert (code, "store.aside-" in said) == (0, True), said
    one.boot()


FAULTS = (lost, newest, oldest, yesterday)


def chosen(copies):
    """Which fault each machine has in turn: all of them on each, or one of each with each role."""
    if ROUNDS:
        yield from list(product(NAMES, FAULTS)) * ROUNDS
        return
    for number, fault in enumerate(FAULTS):
        others = [name for name in NAMES if name != copies.leader]
        yield (copies.leader if number % 2 else others[number // 2]), fault


@pytest.mark.timeout(240 + 90 * len(NAMES) * len(FAULTS) * ROUNDS)
def test_whatever_becomes_of_one_disk_is_named_and_mended_and_nothing_is_lost(
    tmp_path, record_property
):
    """Nobody is told of anything, as two copies are whole all the time."""
    config = {"hms": {"queue": {"orders": {}}}, "node": SMALL, "replica": {"scrub_s": 0.05}}
    done, folders = [], count()
    with copies_in(tmp_path, **config) as copies:
        copies.heal()
        sender = Sender(list(copies.nodes.values()))
        for name, fault in chosen(copies):
            folder = tmp_path / f"fault{next(folders)}"
            folder.mkdir()
            sender.wait_for(MORE)
            fault(copies, name, sender, folder)
            wait_until(lambda: counts(copies, name), 2 * WAIT_S)  # noqa: B023
            copies.wait_for_all()
            sender.wait_for(MORE)
            done.append(fault.__name__)
        sender.end()
        record_property("figures", {"faults": len(done), "confirmed": len(sender.confirmed)})

        for name in NAMES:  # each has all, when it leads
            if copies.leader != name:
                copies.move(name)
            assert copies.bodies() == sender.confirmed
