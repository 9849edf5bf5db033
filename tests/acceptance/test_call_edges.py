"""Calls at their edges: too much data, a timeout while nobody answers, a server that leaves."""

import contextlib
import os
import signal

import pytest
from services_rig import until

import hms
import tpmon
from hms.errors.catalogue import ServiceCallFailed, ServiceNotFound
from hms.testing import node

LIMIT = 64 * 1024
SERVICES = """
import os
from pathlib import Path
from tpmon import TPEXIT, service, tpreturn

@service("WHO")
def who(request):
    return {"pid": os.getpid()}

@service("ECHO")
def echo(request):
    return request.data

@service("PIPE")
def pipe(request):
    return Path(request.data).read_text()

@service("TALK")
def talk(request):
    yield "go on"
    yield request.data

@service("TPEXIT")
def leave(request):
    return tpreturn(TPEXIT)

@service("SystemExit")
def exits(request):
    raise SystemExit

@service("KeyboardInterrupt")
def interrupted(request):
    raise KeyboardInterrupt
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A node with one server process."""
    project = tmp_path_factory.mktemp("project")
    (project / "edges.py").write_text(SERVICES)
    edges = {"module": "edges", "MIN": 1, "MAX": 1, "restart_delay_s": 0.2, "MAXRSTART": -1}
    config = {
        "node": {"n1": {"heartbeat_s": 60, "max_message_bytes": LIMIT}},
        "server": {"edges": edges | {"restart_delay_max_s": 0.2}},
    }
    with node(config=config, python_path=[project]) as started:
        yield started


@pytest.fixture
def served(running, monkeypatch):
    """The node, with this thread connected to it."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    try:
        until(lambda: tpmon.tpcall("WHO"), ServiceNotFound)
        yield running
    finally:
        tpmon.tpend()


def test_data_above_the_limit_is_refused_and_the_connection_goes_on(served, tmp_path):
    """The node would end the connection, and with it calls that have nothing to do with it."""
    os.mkfifo(tmp_path / "pipe")
    cd = tpmon.tpacall("PIPE", str(tmp_path / "pipe"))
    too_much = bytes(LIMIT + 1)
    for act in (
        lambda: tpmon.tpcall("ECHO", too_much),
        lambda: tpmon.tpacall("ECHO", too_much),
        lambda: tpmon.tpacall("ECHO", too_much, tpmon.TPNOREPLY),
        lambda: tpmon.tpconnect("TALK", too_much, tpmon.TPSENDONLY),
        lambda: tpmon.tpbroadcast(None, None, None, too_much),
    ):
        with pytest.raises(hms.MessageTooLarge) as refused:
            act()
        assert (refused.value.size, refused.value.limit) == (LIMIT + 1, LIMIT)
    (tmp_path / "pipe").write_text("alive")
    assert tpmon.tpgetrply(cd).data == "alive"
    assert tpmon.tpcall("ECHO", bytes(LIMIT)).data == bytes(LIMIT)
    talking = tpmon.tpconnect("TALK", b"", tpmon.TPSENDONLY)
    with pytest.raises(hms.MessageTooLarge):
        tpmon.tpsend(talking, too_much)
    tpmon.tpdiscon(talking)
    with hms.connect(served.address) as conn:
        with pytest.raises(hms.MessageTooLarge):
            conn.call_async("ECHO", too_much)
        with pytest.raises(hms.InvalidArgument):
            conn.call("ECHO", b"", timeout_s=-1)
        with pytest.raises(hms.InvalidArgument):
            conn.call_async("ECHO", b"", timeout_s=-1)
        assert conn.call("ECHO", b"small").data == b"small"


def test_a_timeout_comes_from_the_client_when_the_node_says_nothing(served, tmp_path):
    """Who waits for a second is told then, and that it is the node that is late."""
    os.mkfifo(tmp_path / "pipe")
    tpmon.tpset_timeout(1)
    cd = tpmon.tpacall("PIPE", str(tmp_path / "pipe"), tpmon.TPNOTIME)
    served.pause()
    try:
        with pytest.raises(hms.NodeSilent):
            tpmon.tpgetrply(cd)
        with pytest.raises(hms.NodeSilent):
            tpmon.tpcall("ECHO", b"")
        tpmon.tpset_timeout(100)
        with pytest.raises(hms.NodeSilent):
            tpmon.tpcall("ECHO", b"", timeout_s=0.2)
    finally:
        served.resume()
    tpmon.tpset_timeout(0)
    (tmp_path / "pipe").write_text("late")
    assert tpmon.tpgetrply(cd).data == "late"


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("how", ["TPEXIT", "SystemExit", "KeyboardInterrupt", "SIGTERM"])
def test_calls_wait_for_the_process_that_follows_one_that_left(how):
    """As after a crash: the service is away for a moment, not unknown."""
    pid = tpmon.tpcall("WHO").data["pid"]
    if how == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
    else:
        with contextlib.suppress(ServiceCallFailed):
            tpmon.tpcall(how)
    until(lambda: tpmon.tpcall("WHO").data["pid"] != pid)


@pytest.mark.usefixtures("served")
def test_a_server_that_is_scaled_away_is_not_waited_for(served):
    """Nobody starts another: TPENOENT at once, also for calls that wait."""
    with hms.connect(served.address) as conn:
        conn.administer("server.scale", {"name": "edges", "count": 0})
        try:
            with pytest.raises(ServiceNotFound):
                until(lambda: not tpmon.tpcall("WHO"))
        finally:
            conn.administer("server.scale", {"name": "edges", "count": 1})
