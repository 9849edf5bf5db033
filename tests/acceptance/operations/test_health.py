"""Health of a node, seen from outside, in each state: over HTTP, by the command, by a supervisor.

HMS_OPERATIONS=full: the boot is one of 1,000,000 messages.
"""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from click.testing import CliRunner
from test_disk import SMALL, _can_send, _send_until_refused, _take, small_disk

import hms
from hms.boot.cli import main
from hms.boot.config import load
from hms.boot.monitoring.state_file import read_state, state_file_of
from hms.boot.supervise import identify
from hms.testing import node as booted
from hms.testing.nodes import TestNode
from tests.acceptance import hanging_node
from tests.support.supervisor import ear_at
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_OPERATIONS") == "full"
MESSAGES = 1_000_000 if IS_FULL else 20_000
WAIT_S = 120
CONFIG = {"node": {"node1": {"watchdog_s": 2, "heartbeat_s": 60}}, "hms": {"queue": {"orders": {}}}}
READY, NOT_READY = 200, 503
NOT_LIVE = NOT_READY
WELL = "OK|WARNING"
"""A machine that is busy, or short of room, may have an alert of its own."""


class Seen:
    """A node, as all who look at it from outside see it."""

    def __init__(self, config_file, address):
        self._config, self._address = str(config_file), address

    def page(self, path):
        """Status and text of a page of hms web."""
        try:
            with urllib.request.urlopen(f"{self._address}{path}", timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def said(self, *words):
        """Exit code of hms health, and what it prints."""
        done = CliRunner().invoke(main, ["health", *words, "--config", self._config])
        return done.exit_code, done.stdout

    @property
    def state(self):
        """What the node says of itself."""
        return read_state(state_file_of(load(self._config).node()))

    def _row(self, live, ready, producers, text, nagios):
        """What is other than that; it may become so."""
        asked = {"/livez": live, "/readyz": ready, "/readyz?for=producers": producers}
        pages = {path: self.page(path) for path in asked}
        details = json.loads(self.page("/healthz")[1])
        code, nagged = self.said("--nagios")
        words = {
            ("live",): live,
            ("ready",): ready,
            ("ready", "--for", "producers"): producers,
            ("details",): ready,
        }
        told = {words: self.said(*words) for words in words}
        wrong = {path: pages[path] for path in asked if pages[path][0] != asked[path]}
        wrong |= {
            one: told[one] for one, status in words.items() if told[one][0] != (status != READY)
        }
        if not re.search(text, pages["/readyz"][1]):
            wrong["text"] = pages["/readyz"][1]
        if (details["live"], details["ready"]) != (live == READY, ready == READY):
            wrong["/healthz"] = details
        codes = {"OK": 0, "WARNING": 1, "CRITICAL": 2}
        word = nagged.removeprefix("HMS ").partition(" ")[0]
        if not re.fullmatch(nagios, word) or codes[word] != code:
            wrong["--nagios"] = code, nagged
        return wrong

    def becomes(self, live, ready, producers, text, nagios="CRITICAL"):
        """Wait until all of them see that."""
        wrong = {}

        def is_so():
            wrong.clear()
            wrong.update(self._row(live, ready, producers, text, nagios))
            return not wrong

        try:
            wait_until(is_so, WAIT_S)
        except AssertionError as late:
            raise AssertionError(wrong) from late

    def is_well(self):
        """Wait until work may be sent to it."""
        self.becomes(READY, READY, READY, "^ready", WELL)


@contextmanager
def seen(running):
    """A node with an hms web beside it."""
    words = [sys.executable, "-m", "hms.boot", "web", "--config", str(running.config_file)]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True
    ) as web:
        try:
            yield Seen(running.config_file, json.loads(web.stdout.readline())["address"])
        finally:
            web.terminate()
            assert web.wait(WAIT_S) == 0


@pytest.fixture
def ear(tmp_path, monkeypatch):
    """A supervisor of the nodes that are booted from now on."""
    path = tmp_path / "notify"
    with ear_at(path) as listening:
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield listening


@pytest.fixture
def switches(tmp_path):
    """A folder: a part hangs while a file of its name is there."""
    folder = tmp_path / "switches"
    folder.mkdir()
    yield folder
    for file in folder.iterdir():
        file.unlink()


@pytest.fixture
def hanging(switches, ear):
    """A node whose parts can hang."""
    prefix = [sys.executable, hanging_node.__file__, str(switches)]
    with booted(config=CONFIG, command_prefix=prefix) as running:
        yield running


def _fill(running):
    with hms.connect(running.address, request_timeout_s=WAIT_S) as connection:
        producer = connection.session().producer("orders")
        for _ in producer.send_many(hms.Message(b"x") for _ in range(MESSAGES)):
            pass


def test_a_boot_and_a_drain_are_live_and_not_ready(hanging, switches, ear):
    """Who restarts a node that recovers has it begin anew; who routes to one that drains is
    refused."""
    _fill(hanging)
    hanging.kill()
    (switches / "recovery").touch()
    before = len(ear.heard())
    booting = threading.Thread(target=hanging.boot)
    booting.start()
    with seen(hanging) as outside:
        is_recovering = r"^recovering \d+ %, \d+ s left$"
        outside.becomes(READY, NOT_READY, NOT_READY, is_recovering)
        wait_until(lambda: any(w.startswith("STATUS=recovering") for w in ear.heard()[before:]))
        words = ear.heard()[before:]
        assert any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in words)
        assert not {"READY=1", "WATCHDOG=1"} & set(words)
        (switches / "recovery").unlink()
        booting.join()
        outside.is_well()
        wait_until(lambda: "WATCHDOG=1" in ear.heard()[before:])
        words = ear.heard()[before:]
        assert "READY=1" in words[: words.index("WATCHDOG=1")]
        assert "STOPPING=1" not in words

        (switches / "log").touch()  # the drain waits for it
        with hms.connect(hanging.address, reconnect=False) as connection:
            connection.session().producer("orders").send_async(b"last")
            ended = threading.Thread(target=hanging.stop)
            ended.start()
            outside.becomes(READY, NOT_READY, NOT_READY, "^draining$")
            wait_until(lambda: "STOPPING=1" in ear.heard()[before:])
            (switches / "log").unlink()
            ended.join()
        assert hanging.wait() == 0
        outside.becomes(NOT_LIVE, NOT_READY, NOT_READY, "^not running$")


def test_a_part_that_hangs_is_neither_live_nor_fed_to_the_watchdog(hanging, switches, ear):
    """A supervisor restarts it; the thread that tells goes on, and so it can be told apart."""
    parts = {"loop": "main loop", "lane": r"worker \d", "log": "log"}
    with seen(hanging) as outside:
        for part, name in parts.items():
            outside.is_well()
            with hms.connect(hanging.address, reconnect=False) as connection:
                producer = connection.session().producer("orders")
                (switches / part).touch()
                producer.send_async(b"x")
                hung = rf"^no progress for 2 s: (.*, )?{name}"
                outside.becomes(NOT_LIVE, NOT_READY, NOT_READY, hung)
                fed, written_s = ear.heard().count("WATCHDOG=1"), outside.state["written_s"]
                wait_until(lambda at=written_s: outside.state["written_s"] > at + 1)
                assert ear.heard().count("WATCHDOG=1") == fed
                assert re.search(f'no progress for 2 s: [^"]*{name}', hanging.log)
                (switches / part).unlink()
                wait_until(lambda before=fed: ear.heard().count("WATCHDOG=1") > before)
        outside.is_well()


def test_a_sync_that_fails_ends_the_node_and_the_reason_stays(hanging, switches, ear):
    """P7: what is on the disk is not known; the next boot reads it."""
    with seen(hanging) as outside:
        with hms.connect(hanging.address, reconnect=False) as connection:
            producer = connection.session().producer("orders")
            kept = producer.send(b"kept").message_id
            (switches / "sync").touch()
            with pytest.raises(hms.HmsError):
                producer.send(b"lost")
        assert hanging.wait() == 1
        outside.becomes(NOT_LIVE, NOT_READY, NOT_READY, "^failed: .*Input/output error")
        wait_until(lambda: any(word.startswith("STATUS=failed: ") for word in ear.heard()))
        (switches / "sync").unlink()
        hanging.boot(warm=True)
        outside.is_well()
        with hms.connect(hanging.address) as connection:
            assert kept in _take(connection, 1)


def test_a_standby_is_live_and_watched_also_while_it_takes_over(tmp_path, switches, ear):
    """A supervisor has heard READY of it, and would kill it in the middle of its recovery."""
    prefix = [sys.executable, hanging_node.__file__, str(switches)]
    own = tmp_path / "standby"
    own.mkdir()
    store = tmp_path / "store"
    waiting = TestNode(own, store, CONFIG, (), (), prefix)
    with booted(store=store, config=CONFIG) as active, seen(waiting) as outside:
        _fill(active)
        before = len(ear.heard())
        try:
            waiting.boot(standby=True)
            process = json.dumps(asdict(identify(waiting.pid)))  # as hms boot leaves it
            (own / "run" / "node1.process").write_text(process)
            outside.becomes(READY, NOT_READY, NOT_READY, "^stands by, waits for process")
            wait_until(lambda: {"READY=1", "WATCHDOG=1"} <= set(ear.heard()[before:]))
            (switches / "recovery").touch()
            active.kill()
            outside.becomes(READY, NOT_READY, NOT_READY, "^recovering")
            fed = ear.heard().count("WATCHDOG=1")
            wait_until(lambda: ear.heard().count("WATCHDOG=1") > fed)
            (switches / "recovery").unlink()
            outside.is_well()
        finally:
            waiting.kill()


def test_a_full_disk_is_live_and_ready_but_not_for_producers(tmp_path, ear):
    """P10: consumers have to get through, or nothing makes room."""
    with small_disk(tmp_path / "disk", "8m") as (there, inside):
        filler = there / "filler"
        filler.write_bytes(bytes(2 << 20))
        store = tmp_path / "disk" / "store"
        with (
            booted(store=store, config=SMALL, command_prefix=inside) as running,
            seen(running) as outside,
            hms.connect(running.address, reconnect=False) as connection,
        ):
            out = connection.session().producer("orders")
            sent, _ = _send_until_refused(out)
            full = "^ready, alerts: .*store_"
            outside.becomes(READY, READY, NOT_READY, full, "WARNING")
            assert re.match("in alarm: .*store_", outside.page("/readyz?for=producers")[1])
            fed = ear.heard().count("WATCHDOG=1")
            wait_until(lambda: ear.heard().count("WATCHDOG=1") > fed)
            assert _take(connection, 5) == sent[:5]
            filler.unlink()
            wait_until(lambda: _can_send(out), WAIT_S)
            assert "STOPPING=1" not in ear.heard()
