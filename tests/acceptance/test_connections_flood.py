"""Strangers who connect by the hundred and say nothing, beside an honest client. The long form:

HMS_FLOODS=200 pytest tests/acceptance/test_connections_flood.py
"""

import contextlib
import os
import socket

import pytest

import hms
from hms.testing import node
from tests.support import zmtp

FLOODS = int(os.environ.get("HMS_FLOODS", "6"))
STRANGERS = 200
BODY = bytes(200_000)
ROUNDS = 10
"""Of each flood; together more than a segment, so that the log needs a descriptor on the way."""


@pytest.fixture
def running():
    """A node that may have so few descriptors that those in the listening queue take the last."""
    config = {"hms": {"queue": {"crowd": {}}}, "node": {"node1": {"max_connections": 100}}}
    with node(config=config, command_prefix=["prlimit", "--nofile=160:160"]) as started:
        yield started


def _flood(running, said, stack):
    """They come while the node stands still, are all accepted at once when it goes on, and stay."""
    host, _, port = running.address.removeprefix("tcp://").rpartition(":")
    running.pause()
    for _ in range(STRANGERS):
        one = stack.enter_context(socket.socket())
        one.settimeout(0)
        with contextlib.suppress(OSError):
            one.connect_ex((host, int(port)))
            one.send(said)
    running.resume()


@pytest.mark.parametrize("said", [b"", zmtp.HANDSHAKE], ids=["silent", "greeting"])
def test_a_flood_of_connections_neither_stops_a_node_nor_shuts_out_its_clients(running, said):
    """The node stopped when it found no descriptor, and its log would have."""
    with (
        hms.connect(running.address, request_timeout_s=30) as conn,
        conn.session() as session,
        contextlib.ExitStack() as stack,
    ):
        out, inn = session.producer("crowd"), session.consumer("crowd")
        for _ in range(FLOODS):
            _flood(running, said, stack)
            for _ in range(ROUNDS):
                out.send(BODY)
                assert inn.receive(timeout_s=60).body == BODY
    with hms.connect(running.address) as conn:
        conn.session().producer("crowd").send(b"there is room again")
    assert running.is_running
