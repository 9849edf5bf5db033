"""The bank of the examples, while node, recovery, servers, client and databases are killed.

HMS_BANK_S=300 pytest tests/acceptance/test_bank_under_kills.py --timeout 1800     the full length
"""

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from kills_rig import sized

import hms
from hms.testing import node
from tests.acceptance.bank_rig import ACCOUNTS, BALANCE, bank
from tests.support.waiting import drained, wait_until

CHAOS_S = sized("HMS_BANK_S", 5)
KILLS_EACH_MIN = 1
ORDERS_AT_ONCE = sized("HMS_BANK_ORDERS", 200)
SEED = sized("HMS_BANK_SEED", 1)
INTERVAL_S = 1
HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"


class Chaos:
    """Kills one of all of them, chosen at random, and lets it come back."""

    def __init__(self, started, both, folder):
        self.killed = collections.Counter()
        self._started, self._both, self._folder = started, both, folder
        self._random = random.Random(SEED)
        self._clients = 0
        self.client = None
        self.start_client()

    def start_client(self):
        self._clients += 1
        self.client = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "bank_client.py"),
                self._started.address,
                f"c{self._clients}",
                str(self._folder / "book"),
            ]
        )

    def end_client(self):
        self.client.kill()
        self.client.wait()

    def run(self, seconds):
        until_s, pause = time.monotonic() + seconds, threading.Event()
        kinds = [self.node, self.recovery, self.server, self.killed_client]
        kinds += [self.postgres, self.mariadb]
        while self.killed.total() < KILLS_EACH_MIN * len(kinds) or time.monotonic() < until_s:
            for kind in self._random.sample(kinds, len(kinds)):
                pause.wait(self._random.uniform(0.2, 1.0))
                kind()
                self.killed[kind.__name__] += 1

    def node(self):
        self._started.kill()
        self._started.boot()

    def recovery(self):
        self._kill(lambda name: name == "_recovery")

    def server(self):
        self._kill(lambda name: name != "_recovery")

    def _kill(self, is_wanted):
        with hms.connect(self._started.address) as conn:
            servers = conn.administer("server.list")
        pids = [pid for one in servers if is_wanted(one["name"]) for pid in one["pids"]]
        if pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._random.choice(pids), signal.SIGKILL)

    def killed_client(self):
        self.end_client()
        self.start_client()

    def postgres(self):
        self._both.postgres.stop(signal.SIGQUIT)
        self._both.postgres.start()

    def mariadb(self):
        self._both.mariadb.stop(signal.SIGKILL)
        self._both.mariadb.start()


def _config(both):
    config = tomllib.loads((EXAMPLES / "bank.conf").read_text())
    config["rm"]["west"]["open"] = both.postgres.url
    config["rm"]["east"]["open"] = both.mariadb.url
    return config


def _received(conn):
    """Every word that was sent, in the order in which it came."""
    with conn.session() as session:
        consumer = session.consumer(hms.Queue("bank.done"))
        return [message.body.decode() for message in drained(conn, consumer)]


def _is_empty(conn):
    orders = {one["name"]: one for one in conn.administer("queue.list")}["bank.transfers"]
    return not any(orders[which] for which in ("waiting", "delayed", "in_flight"))


@pytest.mark.timeout(1800)
def test_no_transfer_is_lost_or_half_done_whoever_is_killed(tmp_path, capsys):
    """All or nothing, in two databases and a queue, whatever dies when."""
    with bank() as both, node(config=_config(both), python_path=[EXAMPLES]) as started:
        with hms.connect(started.address) as conn, conn.session() as session:
            producer = session.producer(hms.Queue("bank.transfers"))
            for number in range(ORDERS_AT_ONCE):
                order = {
                    "number": f"first-{number}",
                    "source": number % 20,
                    "target": 3,
                    "amount": 1,
                }
                producer.send(hms.Message.map(order))
        chaos = Chaos(started, both, tmp_path)
        chaos.run(CHAOS_S)
        chaos.end_client()
        with hms.connect(started.address) as conn:
            try:
                wait_until(lambda: _is_empty(conn), 240)
            except AssertionError as late:
                told = conn.administer("queue.list"), conn.administer("status")
                raise AssertionError(f"{told} {both.in_doubt()} {started.log[-5000:]}") from late
            last_fault = time.monotonic()
            wait_until(both.is_settled, 240)
            settled_s = time.monotonic() - last_fault
            words = _received(conn)
        west, east = both.entries()
        total = both.total()
    book = [line.split() for line in (tmp_path / "book").read_text().splitlines()]
    tried = {words[1] for words in book if words[0] == "try"}
    done = {words[1] for words in book if words[0] == "done"}
    errors = collections.Counter(words[2] for words in book if words[0] == "error")
    with capsys.disabled():
        print(f"\n  {len(west)} transfers, {dict(chaos.killed)}, errors {dict(errors)}")
        print(f"  settled {settled_s:.1f} s after the last order")
    assert total == 2 * ACCOUNTS * BALANCE
    assert west == east
    assert collections.Counter(words) == collections.Counter(dict.fromkeys(west, 1))
    assert done <= west
    assert {name for name in west if not name.startswith("first-")} <= tried
    assert len([name for name in west if name.startswith("first-")]) == ORDERS_AT_ONCE
