"""hms store probe --peer: whether two machines can share a folder as one node's store.

Both run the same command on the folder that they mount. The first one makes a folder there, the
second one finds it; what they tell each other lies in files in it, so no network is needed, and
what a mount hides is noticed at once. They go in step: each tells what it did, and waits for what
the other one did. Tried is what a take-over relies on (decision 0051): one rename wins, a name that
was given is seen with the next call, a lock has one holder and ends with it, what was synced is
read by the other one, and a log that is taken over while it is written loses nothing confirmed.
"""

import errno
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from hms.boot.doctor.disk_probe import killed_holder, percentile
from hms.boot.doctor.witness import examined, new_run, write
from hms.errors.catalogue import SharedStoreUnsafe, StoreFailed, StoreFenced
from hms.store.journal.disk import REAL_DISK, UPDATE
from hms.store.shared import SHARED_DISK, Generations, check_mount, present_folder

__all__ = ["FOLDER", "Meeting", "meet", "probe"]

FOLDER: Final = ".hms-peer"
"""Where two machines meet, below the folder that is probed."""
SLOT: Final = 4096
PROGRESS: Final = 2
"""The slot of a number that is told out of step; what is told in step takes the two before."""
LOOK_S: Final = 0.0005
STEP_S: Final = 60.0
"""So long one machine may take for a step; a mount that caches shows it only seconds later."""
SLOW_MS: Final = 1000.0
"""What one tells and the other one sees later than this is cached."""
LOCK_S: Final = 30.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Meeting:
    """Two processes in step. Each has a file that it alone writes; TimeoutError when the other one
    tells nothing any more."""

    def __init__(self, folder: Path, *, is_first: bool, step_s: float = STEP_S) -> None:
        self.folder, self.is_first = folder, is_first
        self._step_s, self._told = step_s, 0
        self._ours = os.open(self._file(is_first=is_first), os.O_RDWR)
        self._theirs = os.open(self._file(is_first=not is_first), os.O_RDONLY)

    def _file(self, *, is_first: bool) -> Path:
        return self.folder / ("first" if is_first else "second")

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._ours)
        os.close(self._theirs)

    def exchange(self, value: Any = None, step_s: float | None = None) -> Any:
        """Tell a value, and return the one that the other machine tells in the same step."""
        self._told += 1
        self._write(self._told % 2, self._told, value)
        until = time.monotonic() + (self._step_s if step_s is None else step_s)
        while True:
            number, theirs = self._read(self._theirs, self._told % 2)
            if number == self._told:
                return theirs
            if time.monotonic() > until:
                detail = "the other machine tells nothing any more"
                raise TimeoutError(errno.ETIMEDOUT, detail, str(self.folder))
            time.sleep(LOOK_S)

    def has_told(self) -> bool:
        """Whether the other machine has told the value of the step that comes next."""
        return self._read(self._theirs, (self._told + 1) % 2)[0] == self._told + 1

    def tell(self, number: int) -> None:
        """A number out of step."""
        self._write(PROGRESS, number, None)

    def wait_for(self, number: int) -> None:
        """Until the other machine has told that number out of step."""
        until = time.monotonic() + self._step_s
        while self._read(self._theirs, PROGRESS)[0] < number:
            if time.monotonic() > until:
                detail = f"the other machine has not written {number} records in time"
                raise TimeoutError(errno.ETIMEDOUT, detail, str(self.folder))
            time.sleep(LOOK_S)

    def _write(self, slot: int, number: int, value: Any) -> None:
        text = json.dumps([number, value]).encode()
        line = b"%08x %s\n" % (crc32(text), text)
        if len(line) > SLOT:
            raise ValueError(f"{len(line)} bytes are too many to tell")
        os.pwrite(self._ours, line.ljust(SLOT, b"\0"), slot * SLOT)
        os.fdatasync(self._ours)

    @staticmethod
    def _read(fd: int, slot: int) -> tuple[int, Any]:
        """The number and what is told with it; 0 for a line that is written just now."""
        line = os.pread(fd, SLOT, slot * SLOT).partition(b"\n")[0]
        crc, _, text = line.partition(b" ")
        if crc != b"%08x" % crc32(text):
            return 0, None
        number, value = json.loads(text)
        return number, value


@contextmanager
def meet(path: Path, wait_s: float, step_s: float = STEP_S) -> Iterator[Meeting]:
    """Wait for the other machine, and be in step with it; what was made there is removed."""
    folder = path / FOLDER
    is_first = _is_first(path, folder)
    try:
        if not is_first:
            _take_part(folder)
        meeting = Meeting(folder, is_first=is_first, step_s=step_s)
        try:
            _greet(meeting, path, wait_s)
            yield meeting
            meeting.exchange("done")
        finally:
            meeting.close()
    finally:
        if is_first:
            shutil.rmtree(folder, ignore_errors=True)


def _is_first(path: Path, folder: Path) -> bool:
    """One rename of a folder wins; its name is there when all is in it."""
    made = Path(tempfile.mkdtemp(prefix=".hms-probe-", dir=path))
    try:
        for name in ("first", "second"):
            (made / name).write_bytes(bytes((PROGRESS + 1) * SLOT))
        made.rename(folder)
    except OSError as fault:
        shutil.rmtree(made, ignore_errors=True)
        if fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _take_part(folder: Path) -> None:
    """There are two at a time."""
    try:
        os.close(os.open(folder / "taken", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        detail = "two have met there already; when none is running, remove that folder"
        raise FileExistsError(errno.EEXIST, detail, str(folder)) from None


def _greet(meeting: Meeting, path: Path, wait_s: float) -> None:
    try:
        meeting.exchange("here", wait_s)
    except TimeoutError:
        if meeting.is_first:
            detail = (
                f"no other machine came for {wait_s:g} s: run the same command there; when it ran, "
                "the two do not see the same folder"
            )
            raise TimeoutError(errno.ETIMEDOUT, detail, str(path)) from None
        detail = f"who made this folder does not answer for {wait_s:g} s: remove it, and begin anew"
        raise TimeoutError(errno.ETIMEDOUT, detail, str(meeting.folder)) from None


def probe(path: Path, rounds: int, wait_s: float, step_s: float = STEP_S) -> dict[str, Any]:
    """What the folder does between two machines. `faults`: what it does not do that a shared store
    needs, as either of the two saw it; is_same_machine: nothing is known of two then."""
    with meet(path, wait_s, step_s) as meeting:
        said: dict[str, Any] = {"role": "first" if meeting.is_first else "second"}
        theirs = meeting.exchange(_who())
        said |= {"peer": theirs["host"], "is_same_machine": theirs["boot"] == _who()["boot"]}
        faults = [fault] if (fault := _mount_fault(path)) else []
        for step in (_turns, _reads, _one_wins, _seen_at_once, _lock, _lock_after_kill, _taken):
            values, found = step(meeting, rounds)
            said |= values
            faults += found
        told = meeting.exchange([one[:300] for one in faults][:8])
        said["faults"] = list(dict.fromkeys([*faults, *told]))
    return said


Step = tuple[dict[str, Any], list[str]]
"""What was measured, and what is wrong."""


def _who() -> dict[str, str]:
    boot = ""
    with suppress(OSError):
        boot = BOOT_ID.read_text().strip()
    return {"host": f"{socket.gethostname()}, process {os.getpid()}", "boot": boot}


def _mount_fault(path: Path) -> str:
    try:
        check_mount(path.resolve())
    except SharedStoreUnsafe as fault:
        return str(fault)
    return ""


def _turns(meeting: Meeting, rounds: int) -> Step:
    """How long it takes until one machine has what the other one wrote and synced, and the other
    way round."""
    values: list[float] = []
    is_slow = False
    for number in range(rounds):
        begun = time.perf_counter()
        theirs_is_slow = meeting.exchange(is_slow)
        if number:  # in the first one they wait for each other
            values.append((time.perf_counter() - begun) * 1000)
        if is_slow or theirs_is_slow:
            break
        is_slow = bool(values) and values[-1] > SLOW_MS
    found = tuple(sorted(values))
    median = percentile(found, 0.5)
    said = {
        "exchange_p50_ms": round(median, 3),
        "exchange_p99_ms": round(percentile(found, 0.99), 3),
    }
    if not is_slow:
        return said, []
    return said, [f"what one machine writes is seen {found[-1]:,.0f} ms later: it is cached"]


def _reads(meeting: Meeting, rounds: int) -> Step:
    """What was synced is read by the other machine, through a file that it opens then."""
    stale = 0
    for number in range(rounds):
        is_writer = (number % 2 == 0) == meeting.is_first
        file, data = meeting.folder / f"data.{number % 4}", b"%08d" % number * 512
        if is_writer:
            fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, data, 0)
                os.fdatasync(fd)
            finally:
                os.close(fd)
        meeting.exchange()
        if not is_writer:
            with suppress(FileNotFoundError):
                stale += file.read_bytes() != data
                data = b""
            stale += bool(data)
        meeting.exchange()
    stale = max(stale, meeting.exchange(stale))
    return {"stale_reads": stale}, [f"{stale} synced files were read as they were"] * bool(stale)


def _one_wins(meeting: Meeting, rounds: int) -> Step:
    """Both rename the same folder at the same time."""
    mine, wrong = 0, 0
    own = "by-first" if meeting.is_first else "by-second"
    for number in range(rounds):
        if meeting.is_first:
            (meeting.folder / f"prize.{number}").mkdir()
        meeting.exchange()
        has_won = True
        try:
            (meeting.folder / f"prize.{number}").rename(meeting.folder / f"{own}.{number}")
        except FileNotFoundError:
            has_won = False
        wrong += meeting.exchange(has_won) == has_won
        mine += has_won
    theirs = meeting.exchange(mine)
    won = {"first": mine, "second": theirs} if meeting.is_first else {"first": theirs}
    said = {"renames_won": won | ({} if meeting.is_first else {"second": mine})}
    return said, [f"{wrong} of {rounds} renames were won by both, or by none"] * bool(wrong)


def _seen_at_once(meeting: Meeting, rounds: int) -> Step:
    """One machine renames a folder, the other one has looked at the old name just before."""
    stale = 0
    for number in range(rounds):
        is_mover = (number % 2 == 0) == meeting.is_first
        old, new = meeting.folder / f"seen.{number}", meeting.folder / f"seen.{number + 1}"
        if number == 0 and is_mover:
            old.mkdir()
        meeting.exchange()
        if not is_mover:
            stale += not old.exists() or new.exists()
        meeting.exchange()
        if is_mover:
            old.rename(new)
        meeting.exchange()
        if not is_mover:
            stale += old.exists() or not new.exists()
        meeting.exchange()
    stale = max(stale, meeting.exchange(stale))
    what = f"{stale} of {rounds} renames were not seen by the other machine with its next call"
    return {"stale_names": stale}, [what] * bool(stale)


def _lock(meeting: Meeting, _rounds: int) -> Step:
    """One machine holds it; the other one is refused, and gets it after that."""
    faults: list[str] = []
    fd = REAL_DISK.open(meeting.folder / "lock", UPDATE | os.O_CREAT)
    try:
        for is_holder in (meeting.is_first, not meeting.is_first):
            if is_holder and not REAL_DISK.lock(fd):
                faults.append("a lock that nobody has was refused")
            meeting.exchange()
            if not is_holder and REAL_DISK.lock(fd):
                faults.append("two machines had the lock at once")
            meeting.exchange()
            if is_holder:
                _unlock(fd)
            meeting.exchange()
            if not is_holder:
                if not REAL_DISK.lock(fd):
                    faults.append("the lock was released and still held")
                _unlock(fd)
            meeting.exchange()
    finally:
        REAL_DISK.close(fd)
    faults = list(dict.fromkeys([*faults, *meeting.exchange(faults)]))
    return {"locks": "; ".join(faults) or "hold"}, faults


def _unlock(fd: int) -> None:
    import fcntl  # noqa: PLC0415 - the store never lets go of a lock but with its file

    fcntl.flock(fd, fcntl.LOCK_UN)


def _lock_after_kill(meeting: Meeting, _rounds: int) -> Step:
    """The lock of a process that is killed at one machine is had by the other one."""
    times: list[float] = []
    faults: list[str] = []
    file = meeting.folder / "held"
    file.touch()
    for is_holder in (meeting.is_first, not meeting.is_first):
        meeting.exchange()
        if is_holder:
            with killed_holder(file):
                meeting.exchange()
                meeting.exchange()
            meeting.exchange()
            meeting.exchange(step_s=LOCK_S + STEP_S)
            continue
        fd = REAL_DISK.open(file, UPDATE)
        try:
            meeting.exchange()
            if REAL_DISK.lock(fd):
                faults.append("two machines had the lock at once")
                _unlock(fd)
            meeting.exchange()
            meeting.exchange()
            begun = time.monotonic()
            while not (is_had := REAL_DISK.lock(fd)) and time.monotonic() < begun + LOCK_S:
                time.sleep(LOOK_S)
            times.append((time.monotonic() - begun) * 1000)
            if not is_had:
                faults.append(f"the lock of a killed process was held for {LOCK_S:g} s")
        finally:
            REAL_DISK.close(fd)
        meeting.exchange()
    times += meeting.exchange(times)
    return {"lock_after_kill_ms": round(max(times, default=0.0), 3)}, faults


def _taken(meeting: Meeting, rounds: int) -> Step:
    """A log is taken over while its owner writes, in each direction; with the code of the node."""
    said: dict[str, Any] = {"confirmed": 0, "found": 0, "lost": 0}
    faults: list[str] = []
    for number, is_owner in enumerate((meeting.is_first, not meeting.is_first)):
        run = new_run()
        run = run if is_owner else meeting.exchange()
        base = meeting.folder / f"store.{number}"
        if is_owner:
            generations = Generations(base)
            generations.claim(generations.look())
            meeting.exchange(run)
            told, fault = _owns(meeting, present_folder(base), run)
            faults += [fault] * bool(fault)
            meeting.tell(0)
            meeting.exchange()
            meeting.exchange(told)
            found = meeting.exchange()
        else:
            meeting.wait_for(rounds)
            found = _takes_over(meeting, base, run)
            meeting.exchange(found)
        for key in said:
            said[key] += found[key]
        if not found["is_good"]:
            faults.append("a log that was taken over lacks what its owner had confirmed")
    return {f"take_over_{key}": value for key, value in said.items()}, faults


def _owns(meeting: Meeting, folder: Path, run: str) -> tuple[int, str]:
    """Write until the store is another's: the last number that was confirmed, and what is wrong."""
    last = late = 0

    def told(number: int) -> None:
        nonlocal last, late
        last = number
        meeting.tell(number)
        late += meeting.has_told()
        if late > 1:  # one may have passed its look just before the rename
            raise InterruptedError

    begun = time.monotonic()
    try:
        write(folder, run, 1 << 30, _until(begun + STEP_S, told), SHARED_DISK)
    except (StoreFenced, StoreFailed, FileNotFoundError):
        return last, ""
    except InterruptedError:
        return last, "an owner went on confirming after the other machine had its store"
    return last, "the other machine did not take the store over"


def _until(end_s: float, told: Callable[[int], None]) -> Callable[[int], None]:
    def checked(number: int) -> None:
        if time.monotonic() > end_s:
            detail = "the other machine does not take the store over"
            raise TimeoutError(errno.ETIMEDOUT, detail)
        told(number)

    return checked


def _takes_over(meeting: Meeting, base: Path, run: str) -> dict[str, Any]:
    generations = Generations(base)
    folder = generations.claim(generations.look())
    meeting.exchange()
    if folder is not None:
        generations.settle(folder)
    confirmed = meeting.exchange()
    if folder is None:
        return {"confirmed": confirmed, "found": 0, "lost": confirmed, "is_good": False}
    found = examined(folder, run, confirmed)
    return {key: found[key] for key in ("confirmed", "found", "lost", "is_good")}
