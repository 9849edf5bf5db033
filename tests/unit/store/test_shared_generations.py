"""Who owns a shared directory: one rename wins, and nothing of the old owner is read any more."""

import os
from pathlib import Path

import pytest

from hms.errors import SharedStoreUnsafe, StoreFenced, StoreUnavailable
from hms.store.journal import Journal
from hms.store.shared import (
    SHARED_DISK,
    Generations,
    Heartbeat,
    check_mount,
    present_folder,
    time_in,
)
from hms.store.shared.generations import BEAT_NAME
from tests.support.waiting import wait_until
from tests.unit.journal_support import SMALL, dictionary


def opened(folder):
    """A journal that has begun, as its owner has it."""
    journal = Journal.open(folder, segment_bytes=SMALL, node_uid=1, disk=SHARED_DISK)
    records = [bytes(payload) for _, _, _, payload, _ in journal.recover()]
    journal.start(dictionary)
    return journal, records


def write(journal, body):
    journal.append(3, 1, [body])
    journal.commit()


@pytest.fixture
def shared(tmp_path):
    return Generations(tmp_path / "store")


def claimed(shared, *, by_force=False):
    seen = shared.look()
    folder = shared.claim(seen) if by_force else shared.claim_free(seen)
    assert folder is not None
    shared.settle(folder)
    return folder


def test_the_first_one_begins_and_a_second_one_is_not_let_in(shared):
    """As long as the owner has the lock."""
    folder = claimed(shared)
    journal, _ = opened(folder)

    assert (folder.name, shared.look().generation) == ("gen.1", 1)
    assert shared.claim_free(shared.look()) is None
    assert shared.holder(shared.look()) == str(os.getpid())
    journal.close()
    assert claimed(shared).name == "gen.2"
    assert present_folder(shared.base).name == "gen.2"


def test_of_two_standbys_one_wins(shared):
    """Both have seen the same silent owner."""
    journal, _ = opened(claimed(shared))
    seen = shared.look()

    assert shared.claim(seen).name == "gen.2"
    assert shared.claim(seen) is None
    journal.close()


def test_what_was_confirmed_is_there_and_nothing_is_confirmed_any_more(shared):
    """The old owner's next commit fails, whether it writes before it looks or not."""
    old, _ = opened(claimed(shared))
    write(old, b"confirmed")
    folder = claimed(shared, by_force=True)
    new, found = opened(folder)

    assert b"confirmed" in found
    with pytest.raises(StoreFenced) as caught:
        write(old, b"late")
    assert (caught.value.theirs, caught.value.ours) == (2, 1)
    write(new, b"mine")
    new.close()
    _, found = opened(claimed(shared))
    assert (b"mine" in found, b"late" in found) == (True, False)


def test_bytes_that_the_old_owner_writes_late_are_in_no_log(shared):
    """It was stopped between its look and its write: what it has open is another file by now."""
    old, _ = opened(claimed(shared))
    write(old, b"confirmed")
    open_here = [(fd, Path(f"/proc/self/fd/{fd.name}")) for fd in Path("/proc/self/fd").iterdir()]
    names = {int(fd.name): str(link.readlink()) for fd, link in open_here if link.is_symlink()}
    mine = [
        fd for fd, name in names.items() if name.startswith(str(shared.base)) and ".log" in name
    ]
    folder = claimed(shared, by_force=True)
    before = {file.name: file.read_bytes() for file in folder.glob("*.log")}

    for fd in mine:
        os.pwrite(fd, b"late" * 100, 64)

    assert mine
    assert {file.name: file.read_bytes() for file in folder.glob("*.log")} == before
    new, found = opened(folder)
    assert b"confirmed" in found
    new.close()


def test_an_overtaken_owner_begins_no_empty_store(shared):
    """Its folder is gone; made again, it would be served as if nothing had been sent."""
    folder = claimed(shared)
    folder.rename(shared.base / "gen.2")

    with pytest.raises(StoreUnavailable, match=r"gen\.1"):
        Journal.open(folder, segment_bytes=SMALL, node_uid=1, disk=SHARED_DISK)
    assert not folder.exists()


def test_somebody_who_died_while_taking_over_leaves_no_lock(shared):
    """Then nobody is let in by the lock, and the silence of a lease decides."""
    claimed(shared)
    seen = shared.look()

    assert shared.claim_free(seen) is None
    assert not shared.is_locked(seen)
    assert shared.claim(seen).name == "gen.2"


def test_an_idle_owner_learns_by_its_heartbeat(shared):
    """It writes nothing, so its journal has nothing to look at."""
    folder = claimed(shared)
    told = []
    beat = Heartbeat(folder, 0.05, lambda: 7)
    beat.on_fenced = told.append
    first = shared.look()
    wait_until(lambda: shared.look() != first)
    shared.claim(shared.look())
    beat._thread.join(60)

    assert [type(one) for one in told] == [StoreFenced]
    assert time_in(first.beat) == 7
    assert (shared.base / "gen.2" / BEAT_NAME).exists()
    assert not folder.exists()


LINE = "36 35 0:32 / {point} rw,relatime shared:1 - {kind} host:/x rw,{options}"


@pytest.mark.parametrize(
    ("kind", "options", "failed"),
    [
        ("ext4", "data=ordered", None),
        ("nfs4", "vers=4.1,noac,lookupcache=none", None),
        ("nfs4", "vers=4.1,lookupcache=none", "noac"),
        ("nfs4", "vers=4.1", "noac,lookupcache=none"),
        ("nfs", "vers=3,noac,lookupcache=none", "vers=3 has no leases"),
        ("cifs", "vers=3.1.1", "SMB"),
    ],
)
def test_a_file_system_that_cannot_carry_it_is_refused(tmp_path, kind, options, failed):
    """By what its mount says; the mount nearest to the path counts."""
    mounts = "\n".join(
        [
            LINE.format(point="/", kind="ext4", options="x"),
            LINE.format(point=tmp_path, kind=kind, options=options),
            LINE.format(point=tmp_path / "other", kind="cifs", options="x"),
        ]
    )
    if failed is None:
        check_mount(tmp_path / "store", mounts)
        return
    with pytest.raises(SharedStoreUnsafe, match=failed):
        check_mount(tmp_path / "store", mounts)


@pytest.mark.parametrize(
    "beat",
    [
        b"",
        b"12 3\n",
        b"12 3 1700000000000 00000000\n",
        b"12 3 -7 5d5b5bd1\n",
        b"12 3 17000000000x0 5d5b5bd1\n",
        b"12 3 1700000000000 ",
        b"\xff\xfe 3 4 5\n",
    ],
)
def test_a_beat_of_a_release_before_or_that_is_torn_tells_no_time(beat):
    """A wrong time would be taken up, and what lives for an hour would be over."""
    assert time_in(beat) is None
