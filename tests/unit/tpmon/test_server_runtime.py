"""The server's runtime: what it tells the node, in which order, and what it must not tell."""

import asyncio
import os
import queue
import sys
import threading

import pytest
from server_rig import PlayedConnection

from hms.errors.catalogue import ConnectionClosed, IllegalState, ServiceModuleError
from hms.wire.structures import Advertise, Unadvertise
from tpmon.module_loading import USER_PATH
from tpmon.runtime import Server, tpadvertise, tpunadvertise
from tpmon.service_functions import Registry

WAIT_S = 60


class Running:
    """A server that runs in a thread, and the connection it uses."""

    def __init__(self, modules=(), services=None, **options):
        self.connection, self.services = PlayedConnection(), services or Registry()
        self.faults, self._serving = [], threading.Event()
        self.server = Server(
            modules,
            "tcp://played:1",
            services=self.services,
            connect=self.connection,
            on_serving=self._serving.set,
            **options,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self.server.run()
        except Exception as fault:  # noqa: BLE001 - told by the test
            self.faults.append(fault)
        self._serving.set()

    def start(self):
        self._thread.start()
        assert self._serving.wait(WAIT_S)
        return self

    def end(self):
        self.server.stop()
        self.join()

    def join(self):
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def next_said(self):
        return self.connection.said.get(timeout=WAIT_S)

    def all_said(self):
        said = []
        while not self.connection.said.empty():
            said.append(self.connection.said.get())
        return said


@pytest.fixture(autouse=True)
def _same_path(monkeypatch):
    """Servers change the process's path; no test may see what another one put there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv(USER_PATH, raising=False)


@pytest.fixture
def services():
    registry = Registry()
    registry.add("ECHO", lambda request: request.data)
    return registry


def test_a_server_offers_its_services_answers_and_takes_them_back(services):
    """A call that comes after the services are taken back would be lost with the process."""
    running = Running(services=services).start()

    running.connection.invoke("ECHO", b"hello", number=9)
    assert running.next_said() == Advertise("ECHO", "request")
    head, data = running.next_said()
    running.end()

    assert (head.call, data) == (9, b"hello")
    assert running.all_said() == [Unadvertise("ECHO"), "closed"]
    assert running.faults == []


def test_threads_run_calls_at_once_and_all_of_them_end_before_the_server_does(services):
    """Each waits for the two others, as none of them could in one thread."""
    together, go_on = threading.Barrier(4), threading.Event()
    threads = set()

    def meet(request):
        threads.add(threading.current_thread())
        together.wait(WAIT_S)
        assert go_on.wait(WAIT_S)
        return request.data

    services.add("MEET", meet)
    running = Running(services=services, threads=3).start()
    for number in range(3):
        running.connection.invoke("MEET", b"%d" % number, number=number + 1)
    together.wait(WAIT_S)

    running.server.stop()
    go_on.set()
    running.join()

    said = running.all_said()
    assert Advertise("MEET", "request", 3) in said
    answers = sorted((item[0].call, item[1]) for item in said if isinstance(item, tuple))
    assert answers == [(1, b"0"), (2, b"1"), (3, b"2")]
    assert (len(threads), running.faults) == (3, [])


def test_async_services_share_one_loop_and_their_deadlines_are_their_own(services):
    """A pool of connections that they share belongs to one loop."""
    loops, meeting = set(), []

    async def meet(request):
        loops.add(asyncio.get_running_loop())
        mine = asyncio.get_running_loop().create_future()
        meeting.append(mine)
        if len(meeting) == 2:
            for future in meeting:
                future.set_result(None)
        await mine
        return request.data

    async def leave(_):
        raise SystemExit

    services.add("MEET", meet)
    services.add("LEAVE", leave)
    running = Running(services=services, threads=2).start()
    running.connection.invoke("MEET", b"0", number=1)
    running.connection.invoke("MEET", b"1", number=2)
    assert running.next_said() == Advertise("ECHO", "request", 2)
    assert running.next_said() == Advertise("MEET", "request", 2)
    assert running.next_said() == Advertise("LEAVE", "request", 2)
    answers = sorted((running.next_said() for _ in range(2)), key=lambda said: said[1])
    assert [data for _, data in answers] == [b"0", b"1"]

    running.connection.invoke("LEAVE", number=3)
    running.join()

    assert (len(loops), running.faults) == (1, [])


def test_a_call_that_crossed_the_taking_back_is_still_answered(services):
    """The node had sent it before it knew; without an answer the caller would see a lost server."""
    running = Running(services=services).start()
    connection = running.connection
    late = connection.link.calls
    connection.before_reply = lambda: late.append(lambda: connection.invoke("ECHO", b"late"))

    running.end()

    said = running.all_said()
    assert [item[1] for item in said if isinstance(item, tuple)] == [b"late"]
    assert said[-1] == "closed"


def test_a_result_is_not_sent_over_another_connection_than_its_call(services):
    """A node that was booted again counts calls anew: the number may belong to another call now."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        assert go_on.wait(WAIT_S)

    services.add("SLOW", slow)
    running = Running(services=services).start()
    running.connection.invoke("SLOW")
    assert begun.wait(WAIT_S)

    running.connection.connect_again()
    go_on.set()
    running.end()

    assert [item for item in running.all_said() if isinstance(item, tuple)] == []


def test_a_call_of_a_lost_connection_is_not_begun(services):
    """The node has given it to another server already."""
    called, begun, go_on = queue.SimpleQueue(), threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        assert go_on.wait(WAIT_S)

    services.add("SLOW", slow)
    services.add("COUNT", called.put)
    running = Running(services=services).start()
    running.connection.invoke("SLOW")
    assert begun.wait(WAIT_S)

    running.connection.invoke("COUNT")  # behind the one that runs
    running.connection.connect_again()
    go_on.set()
    running.end()

    assert called.empty()


def test_a_connection_that_is_lost_for_good_ends_the_server_with_its_error(services):
    """A process that can never serve again must not look alive."""
    running = Running(services=services).start()

    running.connection.lose_for_good()
    running.join()

    assert [type(fault) for fault in running.faults] == [ConnectionClosed]
    assert Unadvertise("ECHO") not in running.all_said()


def test_a_handler_that_exits_ends_the_server_after_its_answer(services):
    """The node starts a fresh process; the caller is answered by this one."""

    def leave(_):
        raise SystemExit

    services.add("EXIT", leave)
    running = Running(services=services).start()

    running.connection.invoke("EXIT")
    running.join()

    assert [item[0].rval for item in running.all_said() if isinstance(item, tuple)] == [1]


@pytest.mark.parametrize(
    ("name", "said"),
    [("orders", f"orders:{os.getpid()}"), ("", "shop")],
    ids=["with a name", "without one"],
)
def test_the_node_learns_whose_process_it_is(monkeypatch, services, name, said):
    """By that name it finds the connection of a process that ended."""
    monkeypatch.setattr("tpmon.runtime.load", lambda _: [])
    running = Running("shop", services, name=name).start()
    running.end()

    options = running.connection.options
    assert (options["client_name"], options["is_server"]) == (said, True)


def test_a_server_without_any_service_says_so():
    """A module whose decorator was forgotten would otherwise run for ever, unseen."""
    running = Running().start()
    running.join()

    (fault,) = running.faults
    assert isinstance(fault, ServiceModuleError)
    assert "no function with @service" in str(fault)


# modules and their hooks


MODULE = """
import tpmon
events = []
def tpsvrinit():
    events.append("init")
    {init}
def tpsvrdone():
    events.append("done")
    raise ValueError
"""


def write(tmp_path, name, init="tpmon.tpadvertise('EARLY', print)"):
    (tmp_path / f"{name}.py").write_text(MODULE.format(init=init))
    return name


def test_the_hooks_of_a_module_are_called_around_its_work(tmp_path, services, caplog):
    """Tmax's tpsvrinit and tpsvrdone: sessions and database connections live between them."""
    name = write(tmp_path, "hooked_module")
    running = Running(name, services, python_path=[tmp_path]).start()
    module = sys.modules.pop(name)
    assert module.events == ["init"]

    running.end()

    assert module.events == ["init", "done"]
    said = running.all_said()
    assert said[:3] == [
        Advertise("EARLY", "request"),
        Advertise("ECHO", "request"),
        Advertise("EARLY", "request"),
    ]
    assert "tpsvrdone() of hooked_module failed" in caplog.text


@pytest.mark.parametrize(("init", "said"), [("return -1", "returned -1"), ("1 / 0", "raised Zero")])
def test_a_module_whose_beginning_fails_offers_nothing(tmp_path, services, init, said):
    """Calls of a half-begun server would all fail."""
    name = write(tmp_path, "failing_module", init)
    running = Running(name, services, python_path=[tmp_path]).start()
    running.join()
    del sys.modules[name]

    (fault,) = running.faults
    assert isinstance(fault, ServiceModuleError)
    assert said in str(fault)
    assert running.all_said() == ["closed"]


def test_the_tp_functions_need_a_running_server():
    """In a client's process there is nobody who could serve."""
    for function, arguments in ((tpadvertise, ("X", print)), (tpunadvertise, ("X",))):
        with pytest.raises(IllegalState):
            function(*arguments)
