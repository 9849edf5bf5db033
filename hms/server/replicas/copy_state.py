"""What a copy knows of itself: a small file REPLICA in the store, replaced in one step.

The copy id is made with the file, so a copy that lost it is another one (H12). Everything in it is
synced before anything that depends on it is said.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hms.errors.catalogue import ReplicaUnknown
from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.segment_walk import all_files, opened

__all__ = ["REPLICA_NAME", "CopyState", "begin_copy", "read_state", "state_of", "write_state"]

REPLICA_NAME: Final = "REPLICA"


class CopyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """log: of the group; copy_id: 32 hexadecimal digits; starts: how often its process started;
    promised: the lowest epoch whose frames are taken."""

    log: str
    copy_id: str
    starts: int = 0
    promised: int = 0


def read_state(disk: Disk, folder: Path, replica: str) -> CopyState | None:
    """What the file says, None when there is none. ReplicaUnknown when it cannot be read."""
    try:
        with opened(disk, folder / REPLICA_NAME) as fd:
            data = disk.pread(fd, disk.size(fd), 0)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=CopyState)
    except msgspec.MsgspecError as error:
        detail = f"{folder / REPLICA_NAME} cannot be read: {error}"
        raise ReplicaUnknown(replica=replica, detail=detail) from error


def write_state(disk: Disk, folder: Path, state: CopyState) -> None:
    """Durable when this returns."""
    new = folder / f"{REPLICA_NAME}.new"
    with opened(disk, new, CREATE) as fd:
        disk.ftruncate(fd, 0)
        write_all(disk, fd, [msgspec.json.encode(state)], 0)
        disk.fsync(fd)
    disk.rename(new, folder / REPLICA_NAME)
    disk.fsync_dir(folder)


def new_id() -> str:
    """Of a log or of a copy."""
    return os.urandom(16).hex()


def state_of(
    disk: Disk, folder: Path, replica: str, log: str, make_id: Callable[[], str] = new_id
) -> CopyState:
    """The copy's state; an empty folder becomes a new copy. ReplicaUnknown for a store that was
    never a copy, or is one of another log.

    A start is counted when the arbiter was read: one that is refused must not count, or a copy that
    went back would come up with what is known of it by trying again.
    """
    disk.make_dir(folder)
    found = read_state(disk, folder, replica)
    if found is None:
        if all_files(disk, folder):
            detail = f"{folder} holds a log that is no copy of the group's"
            raise ReplicaUnknown(replica=replica, detail=detail)
        found = CopyState(log, make_id())
        write_state(disk, folder, found)
    if found.log != log:
        detail = f"{folder} holds a copy of log {found.log}, the group's is {log}"
        raise ReplicaUnknown(replica=replica, detail=detail)
    return found


def begin_copy(disk: Disk, folder: Path, replica: str) -> CopyState:
    """The first copy of a group: what is in the folder is its log."""
    found = read_state(disk, folder, replica)
    state = found or CopyState(new_id(), new_id())
    write_state(disk, folder, state)
    return state
