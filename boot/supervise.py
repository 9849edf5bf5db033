"""Node processes: start one detached, know whether it runs, end it.

The pid file holds the plain number, as other tools expect it. A pid alone may have been given to
another process since, so a process file beside it also holds when the process started and in which
boot of the machine; it is the one that is believed. Signals go through a pidfd that was opened
before the comparison, so that they can reach no other process. Both files are written by the
process that starts the node (the pid stays the same over exec), and removed by the one that sees it
end.
"""

import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import hms
from hms.boot.entries import Config, Node
from hms.boot.ready import Progress, is_told_ready, read_word
from hms.errors.catalogue import BootFailed, NodeNotRunning, NodeRunning, NodeStillStopping

__all__ = ["Process", "boot_node", "end_node", "find", "identify", "run_in_foreground"]

LOG_TAIL_LINES = 12
_STANDBY: dict[bool, list[str]] = {False: [], True: ["--standby"]}
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_PROMPT_AFTER_S, _PROMPT_AGAIN_S = 0.3, 3.0
"""Two signals of one kind sent at once arrive as one; the second follows after this. They are one
as well for a process that had no turn meanwhile, so another follows from time to time."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as its file describes it; started is in clock ticks since machine_boot."""

    pid: int
    started: int
    machine_boot: str

    @property
    def is_alive(self) -> bool:
        """Whether this very process runs, not one that got its number later."""
        return identify(self.pid) == self


def identify(pid: int) -> Process | None:
    """The process that has this number now, or None; a zombie has ended."""
    try:
        # The name, in parentheses, may itself hold blanks and parentheses.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        machine_boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, started = after_name[0], int(after_name[19])
    return None if state in "ZX" else Process(pid, started, machine_boot)


def find(node: Node) -> Process | None:
    """The running process of a node, or None."""
    try:
        process = Process(**json.loads(_process_file(node).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return process if process.is_alive else None


def boot_node(
    config: Config,
    node: Node,
    start: str | None,
    timeout_s: float,
    on_progress: Progress = lambda _done, _total: None,
    *,
    standby: bool = False,
) -> Process:
    """Start a node in a session of its own; returns when it is ready, or stands by.

    start: "WARM", "COLD" or None for what the file says. standby: it waits for its store.
    timeout_s: without a word of progress.
    BootFailed tells why it is not ready.
    """
    with _told(node), _starting(node):
        reader, writer = os.pipe()
        try:
            pid = _spawn([*_command(config, node, start, writer), *_STANDBY[standby]], node, writer)
        finally:
            os.close(writer)
        process = identify(pid) or Process(pid, 0, "")
        try:
            _record(node, process)
        except OSError:  # nobody could find it to stop it
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reader)
            raise
        try:
            _await_ready(node, process, reader, timeout_s, on_progress)
        finally:
            os.close(reader)
    return process


def run_in_foreground(
    config: Config, node: Node, start: str | None, *, standby: bool = False
) -> None:
    """Become the node's process; returns only by raising."""
    with _told(node), _starting(node):
        process = identify(os.getpid())
        assert process is not None
        _record(node, process)
        command = [*_command(config, node, start, None), *_STANDBY[standby]]
        os.execve(command[0], command, environment())  # noqa: S606 - no shell is wanted


def end_node(node: Node, *, is_prompt: bool, timeout_s: float) -> Process:
    """Ask a node to drain and stop, or to stop at once, and wait until its process has ended."""
    process = find(node)
    if process is None:
        raise NodeNotRunning(node=node.name)
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return _forget(node, process)
    try:
        if process.is_alive and not _has_ended_after(handle, is_prompt, timeout_s):
            raise NodeStillStopping(node=node.name, timeout_s=timeout_s, pid=process.pid)
    finally:
        os.close(handle)
    return _forget(node, process)


def environment() -> dict[str, str]:
    """The environment of a process of ours: our packages are found, the user's folders are not.

    Only -P and this keep a user's own `services` or `boot` out of the node; the user's PYTHONPATH
    is kept in HMS_USER_PYTHONPATH for the server processes.
    """
    env = dict(os.environ)
    users = env.pop("PYTHONPATH", None)
    if users is not None:
        env.setdefault("HMS_USER_PYTHONPATH", users)
    ours = str(Path(hms.__file__).resolve().parent.parent)
    if not ours.endswith(("site-packages", "dist-packages")):
        env["PYTHONPATH"] = ours
    return env


def _has_ended_after(handle: int, is_prompt: bool, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        pause_s = _PROMPT_AFTER_S
        while is_prompt and pause_s > 0 and not _has_ended(handle, pause_s):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            pause_s = min(_PROMPT_AGAIN_S, until - time.monotonic())
    return _has_ended(handle, until - time.monotonic())


def _has_ended(handle: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0) * 1000))


@contextmanager
def _starting(node: Node) -> Iterator[None]:
    """Only one `hms boot` of a node at a time, and none while it runs."""
    _make_folder(node.runtime)
    _make_folder(node.log_file.parent)
    with _opened(node.runtime / f"{node.name}.lock", os.O_APPEND) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            raise BootFailed(
                reason="another hms boot of it is under way", log=str(node.log_file)
            ) from fault
        if (process := find(node)) is not None:
            raise NodeRunning(node=node.name, pid=process.pid)
        os.close(os.open(node.log_file, _LOG_FLAGS, 0o640))  # a spawn would not say what is wrong
        yield


@contextmanager
def _told(node: Node) -> Iterator[None]:
    """What the folders of a node refuse, as our error."""
    try:
        yield
    except OSError as fault:
        reason = f"{fault.filename2 or fault.filename}: {fault.strerror}"
        raise BootFailed(reason=reason, log=str(node.log_file)) from fault


def _make_folder(path: Path) -> None:
    """Whatever the umask is, others have no rights in it: who writes there could have a process of
    his choice ended."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(mode=0o750, exist_ok=True)


def _opened(path: Path, flags: int) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o640), "w")


def _spawn(command: list[str], node: Node, ready_fd: int) -> int:
    """The pid of a node in a session of its own; all it says goes to its log."""
    os.set_inheritable(ready_fd, True)  # noqa: FBT003 - it takes no names
    return os.posix_spawn(
        sys.executable,
        command,
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(node.log_file), _LOG_FLAGS, 0o640),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _command(config: Config, node: Node, start: str | None, ready_fd: int | None) -> list[str]:
    """-P keeps the folder of the caller off the path: a user's own `boot` must not be run."""
    words = [sys.executable, "-P", "-m", "hms.boot.node"]
    words += ["--config", str(config.path), "--node", node.name]
    words += [f"--{start.lower()}"] if start else []
    return words if ready_fd is None else [*words, "--ready-fd", str(ready_fd)]


def _await_ready(
    node: Node, process: Process, ready_fd: int, timeout_s: float, on_progress: Progress
) -> None:
    word = read_word(ready_fd, timeout_s, on_progress)
    log = str(node.log_file)
    if word is None:
        slow = f"not ready after {timeout_s:g} s; it goes on as process {process.pid}"
        raise BootFailed(reason=slow, log=log)
    if not is_told_ready(word):
        code = _exit_code(process.pid, timeout_s)
        _forget(node, process)
        raise BootFailed(reason=word or _end_of_log(node, code), log=log)


def _exit_code(pid: int, timeout_s: float) -> int | None:
    """The code a child of ours ended with; None when it has not ended in time."""
    handle = os.pidfd_open(pid)
    try:
        if not _has_ended(handle, timeout_s):
            return None
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _end_of_log(node: Node, code: int | None) -> str:
    """What a node that ended without a word wrote last."""
    with suppress(OSError):
        from hms.boot.log_search import lines_for_people  # noqa: PLC0415 - when something is wrong

        lines = node.log_file.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        said = lines_for_people(lines)
        return "\n".join([f"it ended with code {code}; its log ends with:", *said])
    return f"it ended with code {code}"


def _pid_file(node: Node) -> Path:
    return node.runtime / f"{node.name}.pid"


def _process_file(node: Node) -> Path:
    return node.runtime / f"{node.name}.process"


def _record(node: Node, process: Process) -> None:
    _write(_pid_file(node), f"{process.pid}\n")
    _write(_process_file(node), json.dumps(asdict(process)))


def _write(file: Path, text: str) -> None:
    """Written beside and renamed, so that no reader finds half of it.

    Into the blocks of the file that an earlier process left: a full disk has no others, and a node
    that was killed boots on one.
    """
    half = _beside(file)
    if not half.exists() and file.is_file() and not file.is_symlink():
        file.replace(half)
    try:
        with _opened(half, os.O_NOFOLLOW) as opened:
            opened.write(text)
            opened.truncate()
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(half)) from fault
    half.replace(file)


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.new")


def _forget(node: Node, process: Process) -> Process:
    for file in (_process_file(node), _pid_file(node)):
        with suppress(FileNotFoundError):
            file.replace(_beside(file))  # the next boot writes there
    return process
