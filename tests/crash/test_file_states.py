"""The power goes while files come: what was confirmed is there, and is what was sent (P1)."""

import contextlib
import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hms.errors.catalogue import SpoolFailed, SpoolFull
from hms.store import files as files_module
from hms.store.files import FileStore
from tests.crash.legal import Legal
from tests.crash.program import fail_at, io_error, no_fault
from tests.crash.recording import Killed, Noted, RecordingDisk

FOLDER = Path("/store/files")
SEED = 1
PER_POINT = 6


def name_of(number):
    """A file of one sender."""
    return f"{1:016x}-{number:08x}"


def data_of(number):
    """Some pages, unlike those of any other."""
    return random.Random(number).randbytes(700 + 1900 * number % 9000)


def opened(disk):
    """The store of a new process."""
    files = FileStore(FOLDER, 1 << 30, disk)
    return files, files.open()


def send(disk, files, number):
    """A client sends a file in three blocks; what it is told is noted."""
    data = data_of(number)
    part = files.begin(name_of(number), len(data))
    for at in range(part.written_bytes, len(data), 1 + len(data) // 3):
        files.write(part, at, data[at : at + 1 + len(data) // 3])
    disk.note("confirmed", (files.finish(part, hashlib.sha256(data).hexdigest()), data))


def live(disk, work):
    """One life of the node."""
    try:
        files, _ = opened(disk)
        work(files)
    except (Killed, SpoolFailed, SpoolFull):
        pass
    finally:
        disk.before = no_fault
        disk.end_process()


def program(disk):
    """Files come, and are dropped; processes die, syncs and writes fail, senders try again."""
    for number in range(1, 4):
        live(disk, lambda files, number=number: send(disk, files, number))

    def drop(files):
        for full in files.open()[:1]:
            disk.note("dropped", full)
            files.remove(full)

    live(disk, drop)
    number = 4
    for call in ("pwritev", "fsync", "rename", "fsync_dir"):
        for nth, fault in ((1, Killed()), (1, io_error()), (2, Killed())):
            live(disk, _failing(disk, number, call, nth, fault))
            live(disk, _again(disk, number))
            number += 1
    disk.before = fail_at(1, "unlink", Killed())
    live(disk, _failing(disk, number, "fsync", 1, io_error(), and_killed=True))
    live(disk, _again(disk, number))


def _failing(disk, number, call, nth, fault, *, and_killed=False):
    def work(files):
        files.open()
        fail = fail_at(nth, call, fault)
        kill = fail_at(1, "unlink", Killed()) if and_killed else no_fault

        def before(now, name):
            fail(now, name)
            kill(now, name)

        disk.before = before
        send(disk, files, number)

    return work


def _again(disk, number):
    def work(files):
        for _ in range(2):  # a sender that was told of a fault tries once more
            with contextlib.suppress(SpoolFailed, SpoolFull):
                if files.found(name_of(number), _digest(number)) is None:
                    send(disk, files, number)
                return

    return work


def _digest(number):
    return hashlib.sha256(data_of(number)).hexdigest()


def judge(files: dict[str, bytes], confirmed: dict[str, bytes], dropped: set[str]) -> str | None:
    """What is wrong with a crash state, or None."""
    disk = RecordingDisk(files)
    store, full = opened(disk)
    for name, data in confirmed.items():
        if name not in dropped and name not in full:
            return f"{name} was confirmed and is gone"
        if name in full and store.read(name, 0, 1 << 20) != data:
            return f"{name} is not what was sent"
    for name in full:
        data = store.read(name, 0, 1 << 20)
        if hashlib.sha256(data).hexdigest() != name.rpartition("-")[2]:
            return f"{name} is not what its name says"
    return None


def violations(*, is_first_enough: bool = False) -> tuple[int, list[str]]:
    """Every crash point of the program, in some of its legal states."""
    disk, chance = RecordingDisk(), random.Random(SEED)
    legal = Legal(disk)
    program(disk)
    confirmed: dict[str, bytes] = {}
    dropped: set[str] = set()
    states, found = 0, []
    for at, step in enumerate(disk.steps):
        legal.apply(step)
        if isinstance(step, Noted):
            if step.what == "confirmed":
                confirmed[step.value[0]] = step.value[1]
            elif step.what == "dropped":
                dropped.add(step.value)
            continue
        for files in legal.states(chance, PER_POINT):
            states += 1
            fault = judge(files, confirmed, dropped)
            if fault is not None:
                found.append(f"step {at} {step!r:.80}: {fault}")
                if is_first_enough:
                    return states, found
    assert len(confirmed) >= 14
    return states, found


def test_every_legal_crash_state_has_the_files_that_were_confirmed(capsys):
    """Content, name and folder are safe before anybody is told."""
    states, found = violations()
    with capsys.disabled():
        print(f"\nfile crash states: {states}, {len(found)} violations")
    assert found == []
    assert states > 500


def content_not_synced(patch):
    """The name is made safe, the content is not."""
    patch.setattr(RecordingDisk, "fsync", lambda _self, _fd: None)


def name_not_synced(patch):
    """The content is made safe, the name is not."""
    patch.setattr(RecordingDisk, "fsync_dir", lambda _self, _path: None)


def sync_repeated(patch):
    """A failed sync is tried again, and then reports success."""
    fsync = RecordingDisk.fsync

    def stubborn(self, fd):
        with contextlib.suppress(OSError):
            return fsync(self, fd)
        return fsync(self, fd)

    patch.setattr(RecordingDisk, "fsync", stubborn)


def not_written_again(patch):
    """What a crash has left is believed when it can be read."""
    patch.setattr(
        files_module,
        "write_all",
        lambda disk, fd, data, at: (
            at + len(data[0])
            if disk.pread(fd, len(data[0]), at) == bytes(data[0])
            else _write_all(disk, fd, data, at)
        ),
    )


_write_all = files_module.write_all
PLANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    content_not_synced,
    name_not_synced,
    sync_repeated,
    not_written_again,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_with_files_is_found(plant, monkeypatch):
    """An enumeration that finds nothing must be one that could."""
    plant(monkeypatch)
    assert violations(is_first_enough=True)[1]
