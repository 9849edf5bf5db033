"""Programs that hold the interpreter's lock for longer than heartbeat_s, and programs that stop.

What runs in C without releasing the lock, as a regular expression or a sum may, keeps every thread
of its process from running, that of the connection included. Such a program is alive.
"""

import os
import signal
import subprocess
import sys
import threading

import pytest
from services_rig import WAIT_S, until

import hms
from hms.errors.catalogue import ServerLost, ServiceNotFound
from hms.testing import node

HEARTBEAT_S = 4.0
"""A loaded machine may not run a process for 3 s: with less, that is a lost link."""
HOLD_MS = 9000
SERVICES = """
import ctypes
import os
from pathlib import Path
from tpmon import service

def hold(milliseconds):
    ctypes.PyDLL(None).poll(None, 0, milliseconds)  # PyDLL keeps the interpreter's lock

@service("HOLD")
def held(request):
    hold(request.data["ms"])
    return {"pid": os.getpid()}

@service("KEEP")
def keep(request):
    hold(int(os.environ["HOLD_MS"]))
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write(f"{os.getpid()}\\n")

@service("STUCK")
def stuck(request):
    Path(os.environ["RUNS"]).write_text(str(os.getpid()))
    Path(request.data).read_text()
"""
CLIENT = """
import ctypes, sys, hms
address, milliseconds = sys.argv[1], int(sys.argv[2])
done = []
with hms.connect(address) as conn, conn.session(ack=hms.AckMode.CLIENT) as session:
    consumer = session.consumer(hms.Queue("slow"))
    message = consumer.receive(timeout_s=60)
    ctypes.PyDLL(None).poll(None, 0, milliseconds)
    message.ack()
    print(message.redelivered, consumer.receive(timeout_s=0.1), conn.is_connected)
"""


@pytest.fixture
def served(tmp_path):
    """A node with two servers whose handlers hold the lock."""
    project, runs = tmp_path / "project", tmp_path / "runs"
    project.mkdir()
    (project / "holding.py").write_text(SERVICES)
    config = {
        "node": {"n1": {"heartbeat_s": HEARTBEAT_S}},
        "server": {
            "holding": {
                "module": "holding",
                "MIN": 2,
                "MAX": 2,
                "restart_delay_s": 0,
                "MAXRSTART": -1,
                "environment": [f"RUNS={runs}", f"HOLD_MS={HOLD_MS}"],
            }
        },
        "hms": {
            "queue": {"kept": {"listener": "KEEP", "listener_sessions": 1}, "slow": {}},
        },
    }
    with (
        node(config=config, python_path=[project]) as started,
        hms.connect(started.address, request_timeout_s=WAIT_S) as conn,
    ):
        until(lambda: conn.call("HOLD", {"ms": 0}, timeout_s=WAIT_S), ServiceNotFound)
        yield started, conn, runs


def test_who_holds_the_interpreter_for_long_is_not_taken_for_dead(served):
    """ServerLost, or the message again, would run a second time what ran well."""
    started, conn, runs = served
    with conn.session() as session, session.producer(hms.Queue("kept")) as out:
        out.send(b"once")
    with conn.session() as session, session.producer(hms.Queue("slow")) as out:
        out.send(b"once")
    command = [sys.executable, "-c", CLIENT, started.address, str(HOLD_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        answer = conn.call("HOLD", {"ms": HOLD_MS}, timeout_s=WAIT_S).data["pid"]
        said = client.communicate(timeout=WAIT_S)[0]
    assert answer in conn.administer("server.list")[0]["pids"]
    assert said == "False None True\n"
    until(lambda: _queue(conn, "kept")["acknowledged"] == 1)
    assert len(runs.read_text().splitlines()) == 1
    assert [_queue(conn, name)["delivered"] for name in ("kept", "slow")] == [1, 1]


def test_a_server_that_is_stopped_or_killed_is_lost(served, tmp_path):
    """Its libzmq does not answer any more, or its socket is gone."""
    _, conn, runs = served
    os.mkfifo(tmp_path / "never")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        runs.unlink(missing_ok=True)
        ended = []
        caller = threading.Thread(target=_call, args=(conn, str(tmp_path / "never"), ended))
        caller.start()
        pid = until(lambda: runs.exists() and int(runs.read_text() or 0))
        os.kill(pid, number)
        caller.join(WAIT_S)
        os.kill(pid, signal.SIGKILL) if number is signal.SIGSTOP else None
        assert [type(one) for one in ended] == [ServerLost]
        until(lambda pid=pid: pid not in conn.administer("server.list")[0]["pids"])


def _call(conn, data, ended):
    try:
        ended.append(conn.call("STUCK", data, timeout_s=WAIT_S))
    except hms.HmsError as error:
        ended.append(error)


def _queue(conn, name):
    (found,) = [one for one in conn.administer("queue.list") if one["name"] == name]
    return found
