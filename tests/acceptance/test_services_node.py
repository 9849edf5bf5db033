"""What the node itself does for services: readiness, more processes, limits, large heads."""

import os
import threading

import pytest
from services_rig import WAIT_S, calling, until, write_project

import hms
from hms.errors.catalogue import ServerLost, ServiceHung
from hms.testing import node

CONFIG = """
[server.shop]
module = "shop"
MIN = 1
MAX = 2
[service.MEET]
timeout_s = {timeout_s}
[hms.queue.big]
"""


def test_a_service_is_there_as_soon_as_its_node_is_ready(tmp_path):
    """Whoever waited for hms boot must not have to wait once more."""
    project = write_project(tmp_path / "project")
    config = CONFIG.format(timeout_s=0)
    with node(config=config, python_path=[project]) as started, calling(started) as call:
        assert call("WHO")


def test_one_more_process_is_started_while_calls_wait(tmp_path):
    """MIN is for the quiet hours; two calls that need each other can only meet in two processes."""
    project = write_project(tmp_path / "project")
    os.mkfifo(tmp_path / "pipe")
    pipe, config = str(tmp_path / "pipe"), CONFIG.format(timeout_s=0)
    with node(config=config, python_path=[project]) as started, calling(started) as call:
        assert len(call.servers()["shop"]["pids"]) == 1
        writer = threading.Thread(target=call, args=("MEET", {"pipe": pipe, "mode": "w"}))

        writer.start()

        assert call("MEET", {"pipe": pipe, "mode": "r"}) == "hello"
        writer.join(WAIT_S)
        assert len(call.servers()["shop"]["pids"]) == 2


def test_the_service_section_limits_a_call(tmp_path):
    """[service.NAME] timeout_s holds whatever the caller allows: a hung server is ended, its caller
    told, and another server takes its place."""
    project = write_project(tmp_path / "project")
    os.mkfifo(tmp_path / "pipe")
    asked, config = {"pipe": str(tmp_path / "pipe"), "mode": "r"}, CONFIG.format(timeout_s=0.5)
    with (
        node(config=config, python_path=[project]) as started,
        calling(started) as call,
    ):
        hung = call("WHO")["pid"]
        with pytest.raises(ServiceHung):
            call("MEET", asked, timeout_s=600)

        assert until(lambda: call("WHO")["pid"], ServerLost) != hung


def test_calls_wait_for_a_server_that_is_started_again(tmp_path):
    """One crash costs the call that caused it; those that come a moment later find the service."""
    project = write_project(tmp_path / "project")
    config = CONFIG.format(timeout_s=0)
    with node(config=config, python_path=[project]) as started, calling(started) as call:
        before = call("WHO")["pid"]
        with pytest.raises(ServerLost):
            call("DIE")

        assert call("WHO")["pid"] != before


def test_a_listener_takes_a_message_with_the_largest_head(tmp_path):
    """Its properties travel in the header of the INVOKE, beside all that the node adds."""
    project = write_project(tmp_path / "project")
    with (
        node(config=CONFIG.format(timeout_s=0), python_path=[project]) as started,
        hms.connect(started.address) as connection,
        connection.session() as session,
        connection.session(asynchronous=True) as listening,
    ):
        big = hms.Message(b"good", {"p": "x" * 65_000, "q": "y" * 515})
        session.producer(hms.Queue("big")).send(big)
        listening.consumer(hms.Queue("big"), name="shop", listener="TAKE")

        until(lambda: not queue_of(connection, "big")["waiting"])
        until(lambda: not queue_of(connection, "big")["in_flight"])

        assert queue_of(connection, "big")["acknowledged"] == 1


def queue_of(connection, name):
    """What operators see of a queue."""
    (found,) = [q for q in connection.administer("queue.list") if q["name"] == name]
    return found


THREADED = """
import asyncio
import threading

from tpmon import service

together = threading.Barrier(3)
waiting = []


@service("MEET_THREADS")
def meet(request):
    together.wait(60)
    return threading.current_thread().name


@service("MEET_TASKS")
async def meet_tasks(request):
    waiting.append(asyncio.get_running_loop().create_future())
    if len(waiting) == 3:
        for one in waiting:
            one.set_result(None)
    await waiting[-1]
    return "met"
"""


@pytest.mark.parametrize("service", ["MEET_THREADS", "MEET_TASKS"])
def test_one_process_runs_as_many_calls_at_once_as_it_has_threads(tmp_path, service):
    """Each call waits for the two others."""
    (tmp_path / "threaded.py").write_text(THREADED)
    config = "[server.meeting]\nmodule = 'threaded'\nMIN = 1\nMAX = 1\nTHREADS = 3\n"
    with (
        node(config=config, python_path=[tmp_path]) as started,
        hms.connect(started.address) as conn,
    ):
        calls = [conn.call_async(service, timeout_s=60) for _ in range(3)]
        answers = [call.result(WAIT_S).data for call in calls]

    assert len(set(answers)) == (3 if service == "MEET_THREADS" else 1)
