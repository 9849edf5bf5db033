"""hms top by its keys: the view of a terminal of 80 by 24, on a real node."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import termios
import time
from contextlib import ExitStack, asynccontextmanager

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.cli.target import Target
from hms.boot.live_view.app import LiveView
from hms.boot.live_view.dialogs import KEYS, Help, Question
from hms.boot.live_view.sources import NodeSource, Recording
from tests.support.project import ROOT
from tests.support.secured import PASSWORD, document, secured_node

CONFIG = {"hms": {"queue": {"orders": {}, "bills": {}, "a[red]b": {}}, "topic": {"news": {}}}}
SIZE = (80, 24)
WAIT_S = 120
EVERY_S = 0.05


def _source(node):
    return NodeSource(Target(None, node.address, None, is_json=False).connection)


@asynccontextmanager
async def _shown(source, **options):
    view = LiveView(source, **{"every_s": EVERY_S, **options})
    async with view.run_test(size=SIZE) as pilot:
        yield view, pilot


def _lines(view):
    """What stands on the screen."""
    strips = view.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def _until(view, pilot, *texts, unwanted=""):
    """Wait until all of these stand on the screen."""
    until = time.monotonic() + WAIT_S
    while True:
        said = "\n".join(_lines(view))
        words = " ".join(said.split())
        if all(text in words for text in texts) and not (unwanted and unwanted in words):
            return said
        assert time.monotonic() < until, said
        await pilot.pause(0.02)


async def _counted(view, pilot, is_so):
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until, _lines(view)
        await pilot.pause(0.02)


def test_every_page_fits_and_is_there_at_a_key(running, conn):
    """A serial console has 80 by 24, and no name colours or moves it."""
    with conn.session() as sending, conn.session(transacted=True) as session:
        sending.producer(hms.Queue("orders")).send("x")
        kept = session.consumer(hms.Queue("orders"))
        kept.receive(WAIT_S)

        async def drive():
            async with _shown(_source(running)) as (view, pilot):
                said = await _until(view, pilot, "waiting", "held 50 %", "a[red]b", "no alerts")
                assert "by messages, largest first" in said
                for key, texts in (
                    ("v", ("no service is offered",)),
                    ("c", ("this node is in no cluster",)),
                    ("a", ("no alerts, and none that ended",)),
                    ("d", ("by messages",)),
                    ("question_mark", ("Space freeze",)),
                ):
                    await pilot.press(key)
                    said = await _until(view, pilot, *texts)
                    assert max(map(len, said.split("\n"))) <= SIZE[0]
                    assert len(said.split("\n")) <= SIZE[1]
                assert isinstance(view.screen, Help)
                await pilot.press("escape")
                await _until(view, pilot, "by messages")

                await pilot.press("slash", *["backspace"] * 3, *"ord*", "enter")
                await _until(view, pilot, "names ord*", "orders queue", unwanted="bills")
                await pilot.press("enter")
                said = await _until(view, pilot, "in flight 1", "not paused", "client id", "999")
                assert "session" in said
                await pilot.press("escape")
                await _until(view, pilot, "by messages")

        asyncio.run(drive())
        session.rollback()


def test_any_column_sorts_both_ways(running, conn):
    """What is busiest, oldest or dead is another column each time."""
    with conn.session() as session, session.producer(hms.Queue("bills")) as producer:
        for _ in range(3):
            producer.send("x")

    def order(view):
        names = [line.split()[0] for line in _lines(view) if " queue " in line]
        return [name for name in names if name in ("orders", "bills", "news")]

    async def drive():
        async with _shown(_source(running), sort="destination") as (view, pilot):
            await _until(view, pilot, "from a to z", "orders queue")
            assert order(view) == ["bills", "orders"]
            await pilot.press("i")
            await _until(view, pilot, "from z to a")
            assert order(view) == ["orders", "bills"]
            await pilot.press("i", "s", "s")
            await _until(view, pilot, "by messages, largest first")
            assert order(view)[0] == "bills"
            await pilot.press("S")
            await _until(view, pilot, "by kind")

    asyncio.run(drive())


def test_a_pause_is_asked_first_and_done_by_y_alone(running, conn):
    """A key beside another one stops no queue."""

    def paused():
        return conn.administer("queue.show", {"name": "orders"})["paused"]

    async def drive():
        async with _shown(_source(running), names="orders") as (view, pilot):
            await _until(view, pilot, "orders queue")
            for key in ("n", "escape", "q"):
                await pilot.press("p")
                await _until(view, pilot, "Pause queue orders?")
                assert isinstance(view.screen, Question)
                await pilot.press(key)
                await _until(view, pilot, "orders queue", unwanted="Pause queue")
            assert not paused()
            await pilot.press("p")
            await _until(view, pilot, "Pause queue orders?")
            await pilot.press("y")
            await _until(view, pilot, "orders is paused", "queue paused")
            assert paused() == "BOTH"
            await pilot.press("p")
            await _until(view, pilot, "It is paused: BOTH")
            await pilot.press("y")
            await _until(view, pilot, "orders is resumed", unwanted="queue paused")
            assert not paused()

    asyncio.run(drive())


def test_a_frozen_view_asks_nothing_and_goes_on_where_it_was(running, conn):
    """What is read aloud to somebody must not move meanwhile."""
    source = _source(running)

    async def drive():
        async with _shown(source, names="news") as (view, pilot):
            await _until(view, pilot, "news")
            await pilot.press("space")
            await _until(view, pilot, "FROZEN")
            await _counted(view, pilot, lambda: not view._is_asking.locked())
            asked = source.asked
            for _ in range(10):
                view._tick()
                await pilot.pause()
            assert source.asked == asked
            await pilot.press("space")
            await _counted(view, pilot, lambda: source.asked > asked + 1)
            await _until(view, pilot, "news", unwanted="FROZEN")

    asyncio.run(drive())


def test_one_command_a_tick_on_every_page(running):
    """The cost on the node is that of one command a second, whatever is shown."""
    source = _source(running)

    async def drive():
        async with _shown(source, every_s=3600, names="orders") as (view, pilot):
            for key in (None, "a", "v", "c", "d", "enter"):
                if key:
                    await pilot.press(key)
                for _ in range(3):
                    await _counted(view, pilot, lambda: not view._is_asking.locked())
                    asked = source.asked
                    view._tick()
                    await _counted(view, pilot, lambda asked=asked: source.asked > asked)
                    await _counted(view, pilot, lambda: not view._is_asking.locked())
                    assert source.asked == asked + 1
            assert view.page == "destination"

    asyncio.run(drive())


def test_what_is_recorded_is_played_by_the_same_keys(running, tmp_path):
    """An incident is gone through when it is over, as often as it takes."""

    async def record():
        async with _shown(_source(running), folder=tmp_path) as (view, pilot):
            await _until(view, pilot, "orders")
            await pilot.press("w")
            await _until(view, pilot, "recording to")
            (path,) = tmp_path.glob("hms-top-*.jsonl")
            await _counted(view, pilot, lambda: path.read_text().count("\n") >= 3)
            await pilot.press("w")
            await _until(view, pilot, "recorded: hms top --play")
            return path

    async def play(path):
        async with _shown(Recording(path), names="o* b*") as (view, pilot):
            await _until(view, pilot, "the recording ends here", "orders", unwanted="news")
            await pilot.press("p")
            await _until(view, pilot, "a recording takes no orders")
            await pilot.press("a")
            await _until(view, pilot, "a recording has the figures alone")

    async def play_what_is_none(path):
        async with _shown(Recording(path)) as (view, pilot):
            await _until(view, pilot, "none:1:", "no look of hms top")

    path = asyncio.run(record())
    asyncio.run(play(path))
    (tmp_path / "none").write_text("{}\n")
    asyncio.run(play_what_is_none(tmp_path / "none"))
    done = CliRunner().invoke(main, ["top", "--play", str(path), "--json"])
    assert (done.exit_code, json.loads(done.stdout.split("\n")[0])["node"]) == (0, "node1")


def test_a_folder_that_takes_no_file_is_told(running, tmp_path):
    """The view goes on without it."""

    async def drive():
        async with _shown(_source(running), folder=tmp_path / "none") as (view, pilot):
            await _until(view, pilot, "orders")
            await pilot.press("w")
            await _until(view, pilot, "No such file", "orders", unwanted="recording to")

    asyncio.run(drive())


def test_a_node_that_is_gone_is_told_and_met_again(node):
    """An incident is when a view is open."""

    async def drive():
        async with _shown(_source(node)) as (view, pilot):
            await _until(view, pilot, "orders queue")
            await asyncio.to_thread(node.stop)
            await _until(view, pilot, "HMS-")
            await asyncio.to_thread(node.boot)
            await _until(view, pilot, "orders queue", unwanted="HMS-")

    asyncio.run(drive())


def test_who_may_not_is_told_in_words_and_nothing_is_paused(tmp_path, monkeypatch):
    """By a profile, as a monitor: figures yes, orders and clients no; refused once, not each
    second, as each refusal is a record of the audit."""
    held = document(viewer=["view node:*", "view queue:*", "view topic:*"])
    with secured_node(tmp_path, held) as node:
        profile = {"addresses": [node.address], "user": "viewer", "password": "env:WATCH"}
        file = tmp_path / "hms-client.toml"
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in profile.items())
        file.write_text(f"[profile.watch]\n{text}")
        file.chmod(0o600)
        monkeypatch.setenv("WATCH", PASSWORD)
        monkeypatch.setenv("HMS_CLIENT_CONFIG", str(file))
        source = NodeSource(Target(None, "profile:watch", None, is_json=False).connection)

        async def drive():
            async with _shown(source, names="orders") as (view, pilot):
                await _until(view, pilot, "orders queue")
                await pilot.press("p")
                await _until(view, pilot, "Pause queue orders?")
                await pilot.press("y")
                await _until(view, pilot, "viewer", "configure")
                await pilot.press("enter")
                await _until(view, pilot, "paused", "view client")
                asked = source.asked
                await _counted(view, pilot, lambda: source.asked > asked + 4)
                assert view._refusal
                return view

        asyncio.run(drive())
        with hms.connect(node.address) as connection:
            assert not connection.administer("queue.show", {"name": "orders"})["paused"]


def test_the_command_shows_it_on_a_terminal_and_ends_at_q(running):
    """As a person starts it: no option, a terminal."""
    with ExitStack() as opened:
        ours, theirs = pty.openpty()
        opened.callback(os.close, ours)
        termios.tcsetwinsize(theirs, (24, 80))
        words = [sys.executable, "-m", "hms.boot", "top", "--connect", running.address]
        environment = {**os.environ, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        opened.callback(process.wait, WAIT_S)
        opened.callback(process.kill)
        os.close(theirs)
        said, is_asked = b"", False
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break  # it has let go of the terminal
            if not part:
                break
            said += part
            if not is_asked and b"by messages, largest first" in said:
                os.write(ours, b"q")
                is_asked = True
        assert process.wait(WAIT_S) == 0
        assert is_asked


def test_the_table_of_keys_is_that_of_the_view():
    """A key that the page does not have is found by nobody."""
    text = (ROOT / "docs/how-to/watch-a-node.md").read_text()
    told = dict(re.findall(r"^\| `(\S+)` \| ([^|]+) \|$", text, re.MULTILINE))
    assert {key: told.get(key) for key, _ in KEYS} == dict(KEYS)


@pytest.mark.parametrize("words", [["--plain", "--count", "1"], ["--count", "1"]])
def test_without_a_terminal_it_is_a_table(running, words):
    """For a pipe, and where the extra tui is not installed."""
    done = CliRunner().invoke(main, ["top", *words, "--connect", running.address])
    assert (done.exit_code, "destination" in done.stdout) == (0, True)
