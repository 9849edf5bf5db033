"""Calls while their servers are killed: each is answered once, with its own reply or a typed error.

HMS_CALLS=200000 pytest tests/acceptance/test_calls_under_kills.py --timeout 1800     the full size
"""

import collections
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kills_rig import Killer, sized
from services_rig import WAIT_S, until

import hms
from hms.testing import node

CALLS = sized("HMS_CALLS", 4_000)
CLIENTS = 4
IN_FLIGHT = 16
CONFIG = """
[server.load]
module = "load_services"
MIN = 2
MAX = 2
restart_delay_s = 0
restart_delay_max_s = 0
MAXRSTART = -1
"""


WAITING = """
import threading
from pathlib import Path

from tpmon import service

RUNS = Path(__file__).with_name("runs")


@service("AGAIN")
def again(request):
    with RUNS.open("a") as runs:
        runs.write("x")
    threading.Event().wait(60)
"""
BRIEF_S = 8
"""Longer than all three calls need to reach the service."""


class Client:
    """Makes its share of the calls, several at once, and counts what came of each."""

    def __init__(self, address, first, count):
        self.outcomes = collections.Counter()
        self.answered = collections.Counter()
        self._address, self._numbers = address, range(first, first + count)
        self._room = threading.Semaphore(IN_FLIGHT)
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        with hms.connect(self._address) as conn:
            for number in self._numbers:
                self._room.acquire()
                future = conn.call_async("DOUBLE", {"number": number}, timeout_s=WAIT_S)
                future.add_done_callback(lambda done, n=number: self._done(n, done))
            for _ in range(IN_FLIGHT):
                assert self._room.acquire(timeout=200)

    def _done(self, number, future):
        with self._lock:
            self.answered[number] += 1
            self.outcomes[self._outcome(number, future)] += 1
        self._room.release()

    def _outcome(self, number, future):
        error = future.exception()
        if error is not None:
            return type(error).__name__ if isinstance(error, hms.HmsError) else f"!{error!r}"
        is_own = future.result().data == {"number": number, "double": 2 * number}
        return "reply" if is_own else "!reply of another call"


@pytest.mark.timeout(1800)
def test_every_call_is_answered_once_while_servers_are_killed(tmp_path, monkeypatch, capsys):
    """A crash costs its caller an error, and never a wrong answer or a wait without end."""
    monkeypatch.setenv("HMS_BOOK", str(tmp_path))
    share = CALLS // CLIENTS
    with node(config=CONFIG, python_path=[Path(__file__).parent]) as started:
        with hms.connect(started.address) as conn:
            until(lambda: conn.call("DOUBLE", {"number": 0}), hms.HmsError)
        clients = [Client(started.address, n * share, share) for n in range(CLIENTS)]
        with Killer(started.address, 0.1) as killer:
            for client in clients:
                client.thread.start()
            for client in clients:
                client.thread.join()

    outcomes = sum((client.outcomes for client in clients), collections.Counter())
    with capsys.disabled():
        print(f"\n{share * CLIENTS} calls, {killer.kills} kills: {dict(outcomes)}")
    assert sum(len(client.answered) for client in clients) == share * CLIENTS
    assert all(count == 1 for client in clients for count in client.answered.values())
    assert set(outcomes) <= {"reply", "ServerLost", "ServiceNotFound"}
    assert outcomes["reply"] >= share * CLIENTS * 0.9


def test_a_call_that_may_run_twice_is_not_waited_for_for_ever(tmp_path):
    """The node is killed while it runs and does not come back: as without idempotent = true it is
    not known whether it ran, and every caller learns that."""
    (tmp_path / "waiting_services.py").write_text(WAITING)
    (tmp_path / "runs").touch()
    config = {
        "server": {"waiting": {"module": "waiting_services", "THREADS": 4}},
        "service": {"AGAIN": {"idempotent": True}},
    }
    with (
        node(store=tmp_path / "store", config=config, python_path=[tmp_path]) as running,
        hms.connect(running.address) as patient,
        hms.connect(running.address, request_timeout_s=2, reconnect_interval_s=0.5) as conn,
        ThreadPoolExecutor(2) as pool,
    ):
        until(lambda: patient.administer("service.list"))
        ends = [
            pool.submit(conn.call, "AGAIN"),
            pool.submit(conn.call, "AGAIN", timeout_s=BRIEF_S),
            conn.call_async("AGAIN", timeout_s=BRIEF_S),
        ]
        until(lambda: len((tmp_path / "runs").read_text()) == len(ends))
        running.kill()
        for end in ends:
            with pytest.raises(hms.ServerLost):
                end.result(WAIT_S)
