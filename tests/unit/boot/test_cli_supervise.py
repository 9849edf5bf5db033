"""Starting and ending a process in the node's place: who runs is never mistaken."""

import os
import signal
import sys
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hms.boot import supervise
from hms.boot.cli.node import _ask
from hms.boot.config import load
from hms.boot.ready import is_told_ready, read_word, tell_failed, tell_progress, tell_ready
from hms.errors.catalogue import BootFailed, NodeNotRunning, NodeRunning, NodeStillStopping

WAITS = """
import os, signal, sys, time
fd = int(sys.argv[1])
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
os.write(fd, b"ready\\n"); os.close(fd)
while len(signals) < int(sys.argv[2]):
    time.sleep(0.05)  # pause() would miss one that comes just before
"""
FAILS = """
import os, sys
os.write(int(sys.argv[1]), b"failed HMS-5001 the store is in use\\nby another")
sys.exit(1)
"""
CRASHES = "raise SystemExit('nothing works')"
HANGS = "import signal; signal.pause()"
TIME_S = 60


@pytest.fixture
def boot(tmp_path, monkeypatch):
    """Boot a script in the node's place; whatever still runs at the end is killed."""
    path = tmp_path / "hms.conf"
    path.write_text("[node.N1]\n")
    config = load(path)
    node = config.node()

    def run(script, *, timeout_s=TIME_S, signals=1):
        def command(_config, _node, _start, ready_fd):
            return [sys.executable, "-c", script, str(ready_fd), str(signals)]

        monkeypatch.setattr(supervise, "_command", command)
        return supervise.boot_node(config, node, None, timeout_s)

    run.node = node
    yield run
    process = supervise.find(node)
    if process is not None:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)


def _reap(process):
    return os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])


def test_a_node_is_booted_found_and_ended(boot):
    """The everyday way."""
    process = boot(WAITS)

    assert supervise.find(boot.node) == process
    assert os.getsid(process.pid) == process.pid
    ended = supervise.end_node(boot.node, is_prompt=False, timeout_s=TIME_S)
    assert ended == process
    assert supervise.find(boot.node) is None
    assert _reap(process) == 0


def test_a_second_boot_is_refused_while_the_first_runs(boot):
    """Two processes of one node would fight for its store."""
    process = boot(WAITS)

    with pytest.raises(NodeRunning, match=str(process.pid)):
        boot(WAITS)

    supervise.end_node(boot.node, is_prompt=False, timeout_s=TIME_S)
    _reap(process)


def test_a_node_that_refuses_to_boot_tells_its_reason(boot):
    """The reason belongs to who typed the command, not only into a log."""
    with pytest.raises(BootFailed, match="the store is in use\nby another"):
        boot(FAILS)

    assert supervise.find(boot.node) is None


def test_a_node_that_ends_without_a_word_shows_the_end_of_its_log(boot):
    """A traceback at boot must not be looked for."""
    with pytest.raises(BootFailed, match=r"code 1(.|\n)*nothing works"):
        boot(CRASHES)


def _is_in_the_way(path):
    path.mkdir(parents=True)


@pytest.mark.parametrize(
    ("place", "make"),
    [
        (lambda node: node.runtime.parent.parent, lambda path: path.write_text("a file")),
        (lambda node: node.log_file, _is_in_the_way),
        (lambda node: node.runtime / "N1.lock", _is_in_the_way),
        (lambda node: node.runtime / "N1.pid", _is_in_the_way),
    ],
    ids=["folder", "log", "lock", "pid"],
)
def test_what_is_in_the_way_is_named_and_nothing_is_left_running(boot, monkeypatch, place, make):
    """It was a traceback, and the node ran on where no command could find it."""
    spawn, pids = supervise._spawn, []

    def remembered(*arguments):
        pids.append(spawn(*arguments))
        return pids[-1]

    monkeypatch.setattr(supervise, "_spawn", remembered)
    path = place(boot.node)
    make(path)

    with pytest.raises(BootFailed, match=str(path)):
        boot(WAITS)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_node_that_is_slow_is_left_to_boot(boot):
    """A long recovery must not be killed by the one who waits for it."""
    with pytest.raises(BootFailed, match="it goes on as process"):
        boot(HANGS, timeout_s=0.2)

    assert supervise.find(boot.node) is not None


def test_a_node_that_drains_long_is_left_to_drain(boot):
    """Giving up waiting is not giving up messages."""
    boot(WAITS, signals=2)

    with pytest.raises(NodeStillStopping):
        supervise.end_node(boot.node, is_prompt=False, timeout_s=0.2)

    assert supervise.find(boot.node) is not None


def test_a_prompt_end_sends_the_second_signal(boot):
    """The second SIGTERM is what stops at once."""
    process = boot(WAITS, signals=2)

    supervise.end_node(boot.node, is_prompt=True, timeout_s=TIME_S)

    assert _reap(process) == 0


def test_a_prompt_end_reaches_a_process_that_had_no_turn_between_two_signals(boot, monkeypatch):
    """They arrived as one, and it drained as if nobody had hurried it."""
    monkeypatch.setattr(supervise, "_PROMPT_AFTER_S", 0.05)
    monkeypatch.setattr(supervise, "_PROMPT_AGAIN_S", 0.5)
    process = boot(WAITS, signals=2)
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = threading.Timer(0.2, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()

    supervise.end_node(boot.node, is_prompt=True, timeout_s=TIME_S)

    goes_on.join()
    assert _reap(process) == 0


def test_the_pid_file_holds_the_plain_number(boot):
    """Monitors and init scripts read it with cat."""
    process = boot(WAITS)
    file = boot.node.runtime / "N1.pid"
    assert file.read_text() == f"{process.pid}\n"

    supervise.end_node(boot.node, is_prompt=True, timeout_s=TIME_S)

    assert not list(boot.node.runtime.glob("N1.p*"))
    _reap(process)


def test_a_process_that_got_the_number_later_is_never_touched(boot):
    """A process file outlives a crash; its number may be anybody's by then."""
    process = boot(WAITS)
    file = boot.node.runtime / "N1.process"
    told = file.read_text()
    file.write_text(told.replace(str(process.started), str(process.started + 1)))

    assert supervise.find(boot.node) is None
    with pytest.raises(NodeNotRunning):
        supervise.end_node(boot.node, is_prompt=True, timeout_s=TIME_S)

    assert process.is_alive
    file.write_text(told)


def test_a_file_that_cannot_be_written_is_named(boot, monkeypatch):
    """It said "None: No space left on device"."""
    monkeypatch.setattr(supervise, "_opened", _full_after_the_lock(supervise._opened))

    with pytest.raises(BootFailed, match=r"N1\.pid\S*: No space left"):
        boot(WAITS)


def _full_after_the_lock(opened):
    def on_full_disk(path, flags):
        return opened(path, flags) if path.suffix == ".lock" else Path("/dev/full").open("w")

    return on_full_disk


@pytest.mark.parametrize("text", ["", "{}", "[]", "17", '{"pid": "x"}', '{"pid": 1, "a": 2}'])
def test_a_damaged_process_file_means_that_nothing_is_known_to_run(boot, text):
    """The file is written by others too."""
    boot.node.runtime.mkdir(parents=True)
    (boot.node.runtime / "N1.process").write_text(text)

    assert supervise.find(boot.node) is None


def test_the_folders_of_the_user_are_kept_out_of_the_node(monkeypatch):
    """A project of the user's own may hold a package named boot."""
    monkeypatch.setenv("PYTHONPATH", "/home/user/project")

    env = supervise.environment()

    assert env.get("PYTHONPATH") != "/home/user/project"
    assert env["HMS_USER_PYTHONPATH"] == "/home/user/project"


@pytest.fixture
def pipe():
    """A pipe whose reading end is closed at the end."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def test_ready_and_failed_are_told_apart(pipe):
    """All of `hms boot` hangs on this word."""
    reader, writer = pipe
    tell_ready(writer)
    assert is_told_ready(read_word(reader, TIME_S))


def test_a_reason_arrives_whole(pipe):
    """The report of a configuration has many lines."""
    reader, writer = pipe
    tell_failed(writer, "one\ntwo")
    assert read_word(reader, TIME_S) == "one\ntwo"


def test_progress_is_told_and_gives_more_time(pipe):
    """A node with a long log is not one that hangs."""
    reader, writer = pipe
    steps = []
    tell_progress(writer, 5, 100)
    tell_progress(writer, 70, 100)
    assert read_word(reader, 0, lambda *step: steps.append(step)) is None
    assert steps == [(5, 100), (70, 100)]
    tell_progress(writer, 100, 100)
    tell_ready(writer)
    assert is_told_ready(read_word(reader, TIME_S))


def test_no_word_is_not_a_failure(pipe):
    """Slow and dead are different."""
    reader, writer = pipe
    assert read_word(reader, 0) is None
    os.close(writer)
    assert read_word(reader, TIME_S) == ""


def test_a_node_whose_starter_has_gone_boots_on():
    """Ctrl-C in the terminal must not take the node down."""
    reader, writer = os.pipe()
    os.close(reader)
    tell_ready(writer)


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_a_cold_boot_on_a_terminal_asks_before_it_deletes(boot, answer, code):
    """It deleted all that waited, without a word."""
    store = boot.node.store
    store.mkdir(parents=True)
    (store / "00000001.log").write_bytes(bytes(3 << 20))

    asked = CliRunner().invoke(click.Command("ask", callback=lambda: _ask([boot.node])), [], answer)

    assert asked.exit_code == code
    assert f"deletes all that N1 holds in {store} (3 MiB)" in asked.output


def test_a_cold_boot_of_an_empty_store_asks_nothing(boot):
    """There is nothing to lose."""
    asked = CliRunner().invoke(click.Command("ask", callback=lambda: _ask([boot.node])), [], "")

    assert (asked.exit_code, asked.output) == (0, "")
