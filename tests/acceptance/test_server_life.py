"""The life of server processes: restarted with new code, more and fewer of them, and mismatched."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from services_rig import WAIT_S, until, write_project

import hms
from hms.errors.catalogue import ServiceNotFound
from hms.testing import node

SERVER = """
[server.shop]
module = "shop"
MIN = {least}
MAX = {most}
restart_delay_s = 0
MAXRSTART = -1
idle_s = 1
environment = ["MOOD=good"]
"""
VERSIONED = """
import os
from pathlib import Path
from tpmon import service

@service("VERSION"{takes})
def version(request):
    return {{"version": {number}, "pid": os.getpid(), "mood": os.environ.get("MOOD")}}

@service("NAP")
def nap(request):
    with Path(request.data).open() as pipe:
        return pipe.read()
"""


def write_shop(folder, number, takes="", text=None):
    """The code of a version; its cached form must not be taken for it."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.py").write_text(text or VERSIONED.format(number=number, takes=takes))
    for cached in folder.glob("__pycache__/*"):
        cached.unlink()


def hms_command(started, *words):
    """The hms command against a running node."""
    command = [sys.executable, "-m", "hms.boot", *words, "--connect", started.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def servers_of(conn):
    return {one["name"]: one for one in conn.administer("server.list")}


@pytest.fixture
def shop(tmp_path):
    """A node with two servers of version 1, its project and a connection."""
    write_shop(tmp_path / "project", 1)
    config = SERVER.format(least=2, most=2)
    with (
        node(config=config, python_path=[tmp_path / "project"]) as started,
        hms.connect(started.address) as conn,
    ):
        until(lambda: conn.call("VERSION"), ServiceNotFound)
        until(lambda: servers_of(conn)["shop"]["connected"] == 2)  # both have loaded version 1
        yield started, tmp_path / "project", conn


class Load:
    """Threads that call a service until they are told to stop; what failed is kept."""

    def __init__(self, started, service, threads=3):
        self.failures, self.answers, self._stop = [], [], threading.Event()
        self._address, self._service = started.address, service
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self):
        with hms.connect(self._address) as conn:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    answer = conn.call(self._service, timeout_s=WAIT_S).data
                    self.answers.append(answer | {"began": began})
                except hms.HmsError as error:
                    self.failures.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)


def test_a_restart_under_load_takes_up_new_code_and_fails_no_call(shop):
    """An operator brings a new version at noon, not at night."""
    started, project, conn = shop
    with Load(started, "VERSION") as load:
        until(lambda: len(load.answers) > 50)
        write_shop(project, 2)
        done = hms_command(started, "server", "restart", "shop")
        until(lambda: len(servers_of(conn)["shop"]["pids"]) == 2)  # the last old one is leaving
        at, is_new = len(load.answers), time.monotonic()
        until(lambda: len(load.answers) > at + 50)

    assert done.returncode == 0, done.stderr
    assert load.failures == []
    assert {answer["version"] for answer in load.answers} == {1, 2}
    later = [answer for answer in load.answers if answer["began"] >= is_new]
    assert {(answer["version"], answer["mood"]) for answer in later} == {(2, "good")}


def test_a_restart_with_broken_code_leaves_the_old_processes_in_place(shop):
    """A typing error must cost nobody a call."""
    started, project, conn = shop
    before = set(servers_of(conn)["shop"]["pids"])
    write_shop(project, 2, text="this is no Python")

    done = hms_command(started, "server", "restart", "shop")

    assert done.returncode == 1
    assert "HMS-6020" in done.stderr
    assert set(servers_of(conn)["shop"]["pids"]) >= before
    assert conn.call("VERSION").data["version"] == 1


def test_a_restart_waits_for_a_running_call(shop, tmp_path):
    """Drained, not cut off."""
    started, project, conn = shop
    os.mkfifo(tmp_path / "pipe")
    napping = conn.call_async("NAP", str(tmp_path / "pipe"), timeout_s=WAIT_S)
    with (tmp_path / "pipe").open("w") as pipe:
        write_shop(project, 2)
        assert hms_command(started, "server", "restart", "shop").returncode == 0
        pipe.write("slept well")

    assert napping.result(WAIT_S).data == "slept well"


def test_a_server_can_be_scaled_by_hand(shop):
    """Also above MAX, for a day on which everything is different."""
    started, _, conn = shop
    assert hms_command(started, "server", "scale", "shop", "4").returncode == 0
    until(lambda: servers_of(conn)["shop"]["connected"] == 4)
    assert hms_command(started, "server", "scale", "shop", "1").returncode == 0

    until(lambda: servers_of(conn)["shop"]["connected"] == 1)
    assert conn.call("VERSION").data["version"] == 1
    assert hms_command(started, "server", "scale", "nobody", "1").returncode == 1


def test_processes_grow_and_shrink_with_the_load(tmp_path):
    """Between MIN and MAX, by the calls that wait."""
    write_shop(tmp_path / "project", 1)
    config = SERVER.format(least=1, most=3)
    pipes = [str(tmp_path / f"pipe{n}") for n in range(4)]
    for pipe in pipes:
        os.mkfifo(pipe)
    with (
        node(config=config, python_path=[tmp_path / "project"]) as started,
        hms.connect(started.address) as conn,
    ):
        naps = [conn.call_async("NAP", pipe, timeout_s=600) for pipe in pipes]
        until(lambda: servers_of(conn)["shop"]["busy"] == 3)
        for pipe in pipes:
            with Path(pipe).open("w") as there:
                there.write("up")
        assert [nap.result(WAIT_S).data for nap in naps] == ["up"] * 4

        until(lambda: servers_of(conn)["shop"]["connected"] == 1)


def test_two_servers_that_take_different_things_are_told_so(shop, tmp_path):
    """One name, one signature: a caller must not get one or the other by chance."""
    started, _, conn = shop
    write_shop(tmp_path / "other", 9, takes=', takes="STRING"')
    command = [sys.executable, "-m", "hms.boot", "serve", "shop", "--path", str(tmp_path / "other")]
    command += ["--connect", started.address]

    refused = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)

    assert refused.returncode == 1
    assert "HMS-6012" in refused.stderr
    assert conn.call("VERSION").data["version"] == 1


def test_the_lists_tell_counts_latencies_and_the_last_error(tmp_path):
    """What an operator looks at first."""
    with (
        node(config=SERVER.format(least=1, most=1), python_path=[write_project(tmp_path)]) as at,
        hms.connect(at.address) as conn,
    ):
        for _ in range(20):
            conn.call("WHO")
        with pytest.raises(hms.ServiceCallFailed):
            conn.call("FAIL")
        services = {one["name"]: one for one in conn.administer("service.list")}
        text = hms_command(at, "service", "list", "--wide").stdout

    assert (services["WHO"]["calls"], services["WHO"]["failed"]) == (20, 0)
    assert services["WHO"]["p99_ms"] >= services["WHO"]["p50_ms"] > 0
    assert services["FAIL"]["failed"] == 1
    assert "no tea today" in services["FAIL"]["last_error"]
    assert "p99_ms" in text


def test_a_server_that_was_given_up_comes_back_by_a_restart(tmp_path):
    """Its module is corrected; the node, with all its messages, need not be booted again."""
    write_shop(tmp_path / "project", 1, text="this is no Python")
    config = SERVER.format(least=1, most=1).replace("MAXRSTART = -1", "MAXRSTART = 1")
    config += "[alerts]\nserver_down_s = 0\n"
    with (
        node(config=config, python_path=[tmp_path / "project"]) as started,
        hms.connect(started.address) as conn,
    ):
        fault = until(lambda: servers_of(conn)["shop"]["fault"])
        until(lambda: "alert server_down begins: shop: " in started.log)
        write_shop(tmp_path / "project", 2)

        assert hms_command(started, "server", "restart", "shop").returncode == 0

        until(lambda: "alert server_down ends" in started.log)
        assert "hms server restart shop" in fault
        assert conn.call("VERSION").data["version"] == 2
        assert servers_of(conn)["shop"]["fault"] == ""
