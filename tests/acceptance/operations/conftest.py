"""Commands for a node of the test, and a console in its process."""

import json
import threading

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.config import load
from hms.boot.monitoring.health import Health
from hms.boot.web.console import Console
from hms.boot.web.console_node import NodePages
from hms.boot.web.console_sessions import Sessions
from hms.boot.web.http_server import WebServer
from hms.boot.web.node_link import NodeLink
from hms.boot.web.node_place import NodePlace
from hms.boot.web.site import Site


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

    def start(address, *, is_secured=False, config_file=None):
        def connect(user="", password=""):
            return hms.connect(address, user=user, password=password, reconnect=False)

        def health():
            return Health("node1", "ready", is_live=True, is_ready=True, text="ready")

        sessions = Sessions(connect, is_secured=is_secured)
        link = NodeLink(connect)
        further = {}
        if config_file is not None:
            about = NodePages(NodePlace(config_file, load(config_file).node().name))
            closing.append(about.close)
            further = {"pages": about.pages, "orders": about.orders}
        console = Console("node1", health, sessions, **further)
        server = WebServer(
            "127.0.0.1", 0, Site("node1", health, link, "", 1000, console.handle).handle
        )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        closing.extend(
            [sessions.close, link.close, server.server_close, thread.join, server.shutdown]
        )
        return server

    yield start
    while closing:
        closing.pop()()


@pytest.fixture
def serve(node, serving):
    """The console of an open node."""
    return lambda: serving(node.address)
