"""Server processes under supervision; these end by themselves, as they never reach a node."""

import queue
import subprocess
import sys

import pytest

from hms.boot import instances
from hms.boot.config import load
from hms.boot.servers import Servers
from hms.server.service_monitor import Load

WAIT_S = 60
CONFIG = """
[node.NODE1]
[server.s]
module = "no_module"
MIN = {least}
MAX = {most}
MAXRSTART = {restarts}
restart_delay_s = 0
"""


class Played:
    """Stands for python -m tpmon.server: a small program in its place."""

    def __init__(self, monkeypatch):
        self.program = ""
        self.started = []
        monkeypatch.setattr(instances.subprocess, "Popen", self._popen)

    def _popen(self, command, **options):
        self.started.append(command)
        ready_fd = command[command.index("--ready-fd") + 1]
        return _POPEN([sys.executable, "-c", self.program, ready_fd], **options)


_POPEN = subprocess.Popen
SERVES = "import os, sys; os.write(int(sys.argv[1]), b'ready\\n'); sys.stdin.read()"
IS_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVES


@pytest.fixture
def played(monkeypatch):
    return Played(monkeypatch)


@pytest.fixture
def make(tmp_path):
    """Make supervisors that are stopped at the end of the test."""
    made = []

    def start(*, least=1, most=1, restarts=0, **options):
        path = tmp_path / "hms.conf"
        path.write_text(CONFIG.format(least=least, most=most, restarts=restarts))
        config = load(path)
        made.append(Servers(config, config.node(), **options))
        made[-1].start("tcp://127.0.0.1:1")
        return made[-1]

    yield start
    for servers in made:
        servers.stop(timeout_s=0)
        assert not servers._thread.is_alive()


def _described(servers):
    (one,) = servers.describe()
    return one


def _looked_at_until(servers, is_so):
    """Who watches the processes looks again and again, and tells."""
    with servers._settled:
        for _ in range(1000):
            if is_so():
                return
            servers._wake()
            assert servers._settled.wait(WAIT_S)
    raise AssertionError("nothing came of it")


def test_a_server_is_told_its_node_its_name_and_its_module(make, played):
    """The node finds the connection of a process by the name that it was given."""
    played.program = SERVES

    assert make().wait_until_settled(WAIT_S)

    (command,) = played.started
    text = " ".join(command)
    assert "--connect tcp://127.0.0.1:1 --name s --until-eof" in text
    assert command[-1] == "no_module"
    assert command[1] == "-P"


def test_a_process_that_ends_too_often_is_given_up_with_its_reason(make, played, caplog):
    """Operators are told which server, how it ended and what to do."""
    played.program = "import sys; sys.exit(3)"
    ended = queue.SimpleQueue()

    servers = make(restarts=2, on_ended=ended.put)
    names = [ended.get(timeout=WAIT_S) for _ in range(3)]

    assert all(name.startswith("s:") for name in names)
    assert len(played.started) == 3
    found = _described(servers)
    assert (found["restarts"], found["pids"]) == (2, [])
    assert "ended with exit code 3; after 2 restarts" in found["fault"]
    assert "hms serve no_module shows the fault" in caplog.text


def test_a_process_that_ends_without_a_word_is_settled(make, played):
    """A node whose service is broken must boot all the same, and not wait for it."""
    played.program = "raise SystemExit(1)"

    assert make().wait_until_settled(WAIT_S)


def test_stopping_ends_the_processes_and_starts_none(make, played):
    """A process that ends because it was told to is not missed."""
    played.program = SERVES
    servers = make(least=2, most=2, restarts=-1)
    assert servers.wait_until_settled(WAIT_S)

    servers.stop(WAIT_S)

    assert len(played.started) == 2
    assert _described(servers)["pids"] == []


def test_a_process_that_does_not_end_is_killed(make, played, caplog):
    """A handler that hangs must not keep a node from stopping."""
    played.program = IS_DEAF
    servers = make()
    assert servers.wait_until_settled(WAIT_S)

    servers.stop(timeout_s=0)

    assert _described(servers)["pids"] == []
    assert "it is killed" in caplog.text


def test_a_process_that_cannot_be_started_is_a_fault_like_any_other(make, played, monkeypatch):
    """A machine without room for one more process still has a node that passes messages."""

    def refuse(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr(instances.subprocess, "Popen", refuse)

    servers = make()

    assert servers.wait_until_settled(WAIT_S)
    assert "no room" in _described(servers)["fault"]


def test_a_server_is_started_when_there_are_descriptors_again(make, played, monkeypatch):
    """Who watches all servers ended with the first one that found none."""
    played.program, refused = SERVES, [OSError(24, "Too many open files")]
    real = instances.with_descriptor

    def short_of_them(open_):
        if refused:
            raise refused.pop()
        return real(open_)

    monkeypatch.setattr(instances, "with_descriptor", short_of_them)
    servers = make(restarts=1)
    assert servers.wait_until_settled(WAIT_S)

    _looked_at_until(servers, lambda: _described(servers)["pids"])

    assert _described(servers)["restarts"] == 1


def test_a_restart_whose_new_process_is_not_wanted_any_more_is_over(make, played, monkeypatch):
    """The server took no more orders, and the load started no process, until the next boot."""
    played.program = SERVES
    servers = make(least=1, most=3)
    assert servers.wait_until_settled(WAIT_S)
    with servers._lock:  # both come before anybody looks
        servers.restart("s")
        servers.scale("s", 1)

    _looked_at_until(servers, lambda: _described(servers)["restart_faults"])

    assert not _described(servers)["restarting"]
    assert len(_described(servers)["pids"]) == 1


def test_the_load_starts_and_ends_processes_between_min_and_max(make, played):
    """MIN are always there, MAX when calls wait."""
    now, ended = [0.0], queue.SimpleQueue()
    played.program = SERVES  # a signal ends it without a good-bye
    servers = make(most=2, clock=lambda: now[0], on_ended=ended.put)
    assert servers.wait_until_settled(WAIT_S)

    servers.adjust([Load("s", 1, 1, 3), Load("unknown", 1, 1, 3)])
    assert servers.wait_until_settled(WAIT_S)
    assert len(_described(servers)["pids"]) == 2

    for now[0] in (0.0, 1000.0):
        servers.adjust([Load("s", 2, 0, 0)])

    assert ended.get(timeout=WAIT_S).startswith("s:")
    assert len(_described(servers)["pids"]) == 1
