"""A console in the process of the test, for a node of its own."""

import threading

import pytest

import hms
from hms.boot.monitoring.health import Health
from hms.boot.web.console import Console
from hms.boot.web.console_sessions import Sessions
from hms.boot.web.http_server import WebServer
from hms.boot.web.node_link import NodeLink
from hms.boot.web.site import Site


@pytest.fixture
def serving():
    """A console in this process, for a node."""
    closing = []

    def start(address, *, is_secured=False):
        def connect(user="", password=""):
            return hms.connect(address, user=user, password=password, reconnect=False)

        def health():
            return Health("node1", "ready", is_live=True, is_ready=True, text="ready")

        sessions = Sessions(connect, is_secured=is_secured)
        link = NodeLink(connect)
        console = Console("node1", health, sessions)
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
