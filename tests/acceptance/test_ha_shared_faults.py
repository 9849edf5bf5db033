"""A directory that three machines share, under load: the active one is killed, or stands still past
its lease, while two standbys wait for its place. On tmpfs, on ext4 of its own, and on NFSv4.

HMS_HA=full: 50 faults on each file system; HMS_FAULTS=N: so many. HMS_HA_SEED=N has the faults of a
run again. HMS_NFS=FOLDER: a folder on NFSv4, as one machine mounts it from itself.
"""

import os
import random
import shutil
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from faults_rig import Steady

import hms
from hms.testing.nodes import TestNode
from tests.acceptance.ha_rig import WAIT_S, active_of, connect, ended
from tests.acceptance.test_ha_shared_store import LEASE_S, generation, is_active
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
FAULTS = int(os.environ.get("HMS_FAULTS", "50")) if IS_FULL else 0
NAMES = ("a", "b", "c")
LATE = b"written behind a pause"
QUEUES = {"queue": {"orders": {}, "ledger": {}, "announced": {}, "late": {}}}
NODE = {
    "shared": True,
    "lease_s": LEASE_S,
    "segment_bytes": "4 MiB",
    "max_message_bytes": "1 MiB",
    "max_transaction_bytes": "1 MiB",
}
EXT4_BYTES = 1 << 30
LEAST_BYTES = 1 << 29


@contextmanager
def tmpfs(_folder):
    """As every Linux has it."""
    place = Path("/dev/shm")
    if not place.is_mount() or shutil.disk_usage(place).free < LEAST_BYTES:
        pytest.skip("/dev/shm has no room")
    made = Path(tempfile.mkdtemp(prefix="hms-shared-", dir=place))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def ext4(folder):
    """In a file of its own."""
    image, place = folder / "ext4", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(EXT4_BYTES)
    try:
        for words in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", image, place]):
            subprocess.run(words, check=True, capture_output=True, timeout=WAIT_S)
    except (FileNotFoundError, subprocess.CalledProcessError) as fault:
        told = fault.stderr.decode().strip() if hasattr(fault, "stderr") else fault
        pytest.skip(f"no ext4 can be made and mounted here: {told}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=WAIT_S)


@contextmanager
def nfs(_folder):
    """Nobody but the machine's owner exports anything."""
    if "nfs4" not in Path("/proc/filesystems").read_text():
        pytest.skip("the kernel has no NFSv4")
    if "HMS_NFS" not in os.environ:
        pytest.skip("HMS_NFS names no folder on NFSv4")
    made = Path(tempfile.mkdtemp(prefix="hms-shared-", dir=os.environ["HMS_NFS"]))
    try:
        yield made
    finally:
        shutil.rmtree(made)


class Place:
    """Three machines and their store."""

    def __init__(self, folder, store):
        config = {"hms": QUEUES, "node": {"node1": NODE}}
        self.nodes, self.store, self.late = [], store, []
        for name in NAMES:
            own = folder / name
            own.mkdir()
            self.nodes.append(TestNode(own, store, config, (), (), ()))

    def boot(self):
        """One has the store, two wait for it."""
        for number, one in enumerate(self.nodes):
            one.boot(standby=number > 0)

    def taken_over(self, before, *nodes):
        """Until the store has been taken by one of these; where both try at one instant, one may
        take it from the other before that one has locked it, and that one goes on waiting."""
        assert generation(*nodes) > before

    def kill(self):
        """Both standbys see at once that the store is free."""
        before, one = generation(*self.nodes), active_of(self.nodes)
        one.kill()
        self.taken_over(before, *[other for other in self.nodes if other is not one])
        one.boot(standby=True)

    def pause(self):
        """It goes on when another one has the store, with a send that it never saw."""
        before, one = generation(*self.nodes), active_of(self.nodes)
        with connect(one, reconnect=False) as old, old.session() as session:
            producer = session.producer("late")
            one.pause()
            late = producer.send_async(LATE)
            self.taken_over(before, *[other for other in self.nodes if other is not one])
            one.resume()
            wait_until(lambda: not one.is_running or not is_active(one), WAIT_S)
            # Refused where it finds first that its folder is gone: then it is nowhere either.
            assert isinstance(late.exception(WAIT_S), hms.SendInDoubt | hms.StoreFull)
        if not one.is_running:  # the first one, which nobody booted as a standby
            assert "HMS-5020" in one.log
            one.boot(standby=True)

    def has_nothing_late(self):
        """Neither in a queue nor in a file."""
        with connect(*self.nodes) as connection:
            shown = connection.administer("queue.show", {"name": "late"})
        assert shown["waiting"] == 0
        files = [file for file in self.store.rglob("*") if file.is_file()]
        assert [file for file in files if LATE in file.read_bytes()] == []


KINDS = (Place.kill, Place.pause)
SHORT = {"tmpfs": [Place.kill], "ext4": [Place.pause]}
"""Both are tried once in test_ha_shared_store.py, too."""


@pytest.mark.timeout(300 + 60 * FAULTS)
@pytest.mark.parametrize("kind", [tmpfs, ext4, nfs], ids=lambda kind: kind.__name__)
def test_whoever_loses_a_shared_directory_confirms_nothing_and_one_standby_has_it(
    kind, tmp_path, record_property
):
    """One of both takes it each time; nothing is lost, doubled or told to a client, and no byte
    that an old owner wrote later is in the store."""
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    dice, figures = random.Random(seed), {"files": kind.__name__, "seed": seed}
    record_property("figures", figures)
    with kind(tmp_path) as files:
        place = Place(tmp_path, files / "store")
        with ended(place.nodes):
            place.boot()
            with closing(Steady([one.address for one in place.nodes])) as load:
                chosen = dice.choices(KINDS, k=FAULTS) or SHORT.get(kind.__name__, KINDS)
                for number, fault in enumerate(chosen):
                    load.await_flow(20)
                    fault(place)
                    figures["faults"] = number + 1
                load.await_flow(20)
                figures |= load.finish() | {"take-overs": generation(*place.nodes) - 1}
            assert figures["take-overs"] >= figures["faults"]
            place.has_nothing_late()
