"""Services in real server processes: called, failing, killed, and fed by a queue."""

import os
import threading

import pytest
from services_rig import WAIT_S, calling, has_ended, until, write_project

import hms
from hms.errors.catalogue import ServerLost, ServiceCallFailed, ServiceNotFound
from hms.testing import node

CONFIG = """
[server.shop]
module = "shop"
MIN = 2
MAX = 2
restart_delay_s = 0
MAXRSTART = -1
[hms.queue.orders]
redelivery_limit = 2
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    project = write_project(tmp_path_factory.mktemp("project"))
    with node(config=CONFIG, python_path=[project]) as started:
        yield started


@pytest.fixture
def call(running):
    with calling(running) as caller:
        caller.when_offered("WHO")
        until(lambda: caller.servers()["shop"]["connected"] == 2)  # a test before has killed some
        yield caller


def test_a_projects_own_packages_win_over_ours_of_the_same_name(call):
    """Everybody calls a folder services; theirs must be the one that their module gets."""
    assert call("WHO")["owners"] == ["application"] * 3


def test_what_a_handler_raises_reaches_the_caller_without_its_traceback(call, running):
    """The caller learns what was wrong; the inside of the server stays in the server's log."""
    with pytest.raises(ServiceCallFailed) as caught:
        call("FAIL")

    assert caught.value.fields == {"service": "FAIL", "detail": "ValueError: no tea today"}
    assert "shop.py" in running.log


def test_a_service_can_fail_and_answer_data(call):
    """TPFAIL with data and rcode is an answer, not an error of the system."""
    assert call("REFUSE") == "sold out"
    assert (call.rval, call.rcode) == (1, 42)


def test_two_processes_run_two_calls_at_the_same_time(call, tmp_path):
    """Each needs the other one to be inside; one after the other they would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    until(lambda: len(call.servers()["shop"]["pids"]) == 2)
    writer = threading.Thread(target=call, args=("MEET", {"pipe": pipe, "mode": "w"}))

    writer.start()
    said = call("MEET", {"pipe": pipe, "mode": "r"})
    writer.join(WAIT_S)

    assert said == "hello"


def test_a_call_whose_server_is_killed_ends_and_the_next_one_works(call):
    """A crash costs one call, and nobody has to start anything by hand."""
    before = call.servers()["shop"]

    with pytest.raises(ServerLost):
        call("DIE")

    assert call.when_offered("WHO")["owners"]
    until(lambda: call.servers()["shop"]["restarts"] == before["restarts"] + 1)
    until(lambda: len(call.servers()["shop"]["pids"]) == 2)


@pytest.mark.parametrize("poison", [b"poison", b"deadly"])
def test_a_message_that_its_listener_cannot_take_becomes_a_dead_letter(call, running, poison):
    """One bad message must not stop those behind it, whether it raises or kills the process."""
    with (
        hms.connect(running.address) as connection,
        connection.session() as session,
        connection.session(asynchronous=True) as listening,
    ):
        for body in (poison, b"good", b"good"):
            session.producer(hms.Queue("orders")).send(body)
        listening.consumer(hms.Queue("orders"), name="shop", listener="TAKE")

        dead = session.consumer(hms.Queue("HMS.DLQ")).receive(timeout_s=60)
        until(lambda: not _waiting(connection, "orders"))

        assert dead.body == poison
        assert dead.property("$DeadReason")
        assert dead.property("$DeadCount") >= 2


def _queue(connection, name):
    (found,) = [q for q in connection.administer("queue.list") if q["name"] == name]
    return found


def _waiting(connection, queue):
    found = _queue(connection, queue)
    return found["waiting"] + found["in_flight"]


def test_killing_the_node_ends_its_servers(tmp_path):
    """A server that outlived its node would run on beside the servers of the next one."""
    project = write_project(tmp_path / "project")
    with node(config=CONFIG, python_path=[project]) as started, calling(started) as call:
        handle = os.pidfd_open(call.when_offered("WHO")["pid"])

        started.kill()

        assert has_ended(handle)
        os.close(handle)


def test_stopping_the_node_lets_a_running_call_finish(tmp_path):
    """An operator's hms down must not cost a caller the answer that was nearly there."""
    project = write_project(tmp_path / "project")
    os.mkfifo(tmp_path / "pipe")
    pipe, said = str(tmp_path / "pipe"), []
    with node(config=CONFIG, python_path=[project]) as started, calling(started) as call:
        call.when_offered("WHO")
        caller = threading.Thread(
            target=lambda: said.append(call("MEET", {"pipe": pipe, "mode": "r"}))
        )
        caller.start()
        with open(pipe, "w") as there:  # noqa: PTH123 - opened as soon as the handler reads it
            stopper = threading.Thread(target=started.stop)
            stopper.start()
            there.write("just in time")
        caller.join(WAIT_S)
        stopper.join(WAIT_S)

    assert said == ["just in time"]


def test_a_node_boots_without_a_module_that_cannot_be_loaded(tmp_path):
    """A broken service must not keep the messages away; operators are told what to do."""
    config = '[server.broken]\nmodule = "no_such_module"\nrestart_delay_s = 0\nMAXRSTART = 1\n'
    with node(config=config) as started, calling(started) as call:
        fault = until(lambda: call.servers()["broken"]["fault"])

        assert "exit code 1" in fault
        assert "hms serve no_such_module" in fault
        assert "no_such_module cannot be loaded" in started.log
        with pytest.raises(ServiceNotFound):
            call("WHO")
