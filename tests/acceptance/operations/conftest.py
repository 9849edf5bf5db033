"""Commands for a node of the test, and a console in its process."""

import json
import threading

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.config import load
from hms.boot.monitoring.health import Health
from hms.boot.web.console import Console
from hms.boot.web.console_files import Files
from hms.boot.web.console_history import History, HistoryPlace
from hms.boot.web.console_node import NodePages
from hms.boot.web.console_rules import Rules
from hms.boot.web.console_sessions import Sessions
from hms.boot.web.http_server import WebServer
from hms.boot.web.node_link import NodeLink
from hms.boot.web.node_place import NodePlace
from hms.boot.web.site import Site
from hms.client.connection import Connection
from hms.testing import nodes

NOW_MS = 1_800_000_000_000

HEARTBEAT_S = 30.0
"""Of the nodes here: one that waits for a processor is not lost, and no test needs that it is."""


@pytest.fixture(scope="module", autouse=True)
def _patient():
    """A command has one connection, and ends with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "HEARTBEAT_S", HEARTBEAT_S)
        yield


@pytest.fixture
def command(node):
    def run(*words, code=0, stdin=None):
        """The data that a command prints; of one that is refused what it says."""
        line = [*words, "--connect", node.address, "--json"]
        done = CliRunner().invoke(main, line, input=stdin)
        assert done.exit_code == code, done.output
        if code:
            return f"{done.output} {done.exception}"
        return json.loads(done.stdout or "null")

    return run


@pytest.fixture
def serving():
    """A console in this process, for a node."""
    closing = []

    def start(address, *, is_secured=False, store=None, rules=(), history=None, config_file=None):
        def connect(user="", password="", **options):
            given = {"user": user, "password": password, "reconnect": False, **options}
            return Connection(address, **given).open()

        def health():
            return Health("node1", "ready", is_live=True, is_ready=True, text="ready")

        sessions = Sessions(connect, is_secured=is_secured)
        link = NodeLink(connect)
        further, more = {}, ()
        if config_file is not None:
            about = NodePages(NodePlace(config_file, load(config_file).node().name))
            closing.append(about.close)
            further, more = {"pages": about.pages, "orders": about.orders}, about.groups
        files = Files()
        place = HistoryPlace(lambda: store, address)
        past = history or History(place)
        groups = (files.group, past.group, Rules(rules, lambda: NOW_MS).group, *more)
        console = Console("node1", health, sessions, groups, **further)
        site = Site("node1", health, link, "", 1000, console.handle)
        server = WebServer("127.0.0.1", 0, site.handle, uploads=console.uploads)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        closing.extend(
            [
                files.close,
                sessions.close,
                link.close,
                server.server_close,
                thread.join,
                server.shutdown,
            ]
        )
        return server

    yield start
    while closing:
        closing.pop()()


@pytest.fixture
def serve(node, serving):
    """The console of an open node."""
    return lambda **more: serving(node.address, store=node.store, **more)
