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
from tests.support.waiting import wait_until

FLOODS = int(os.environ.get("HMS_FLOODS", "6"))
STRANGERS = 200
BODY = bytes(200_000)
ROUNDS = 10
"""Of each flood; together more than a segment, so that the log needs a descriptor on the way."""


@pytest.fixture
def running():
    """A node that may have so few descriptors that those in the listening queue take the last."""
    with few_descriptors() as started:
        yield started


def few_descriptors(**own):
    config = {"hms": {"queue": {"crowd": {}}}, "node": {"node1": {"max_connections": 100, **own}}}
    return node(config=config, command_prefix=["prlimit", "--nofile=160:160"])


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
        hms.connect(running.address, request_timeout_s=120) as conn,
        conn.session() as session,
        contextlib.ExitStack() as stack,
    ):
        out, inn = session.producer("crowd"), session.consumer("crowd")
        for _ in range(FLOODS):
            _flood(running, said, stack)
            for _ in range(ROUNDS):
                out.send(BODY)
                assert inn.receive(timeout_s=60).body == BODY
    with hms.connect(running.address, connect_timeout_s=60) as conn:
        conn.session().producer("crowd").send(b"there is room again")
    assert running.is_running


@pytest.mark.parametrize("said", [b"", zmtp.HANDSHAKE], ids=["silent", "greeting"])
def test_a_crowd_at_a_local_socket_ends_no_node_and_the_others_are_served(tmp_path, said):
    """Libzmq ended the process at the first one for which there was no descriptor. Some come while
    the node stands still; the others wait until the oldest are cut."""
    with few_descriptors(listen=[f"ipc://{tmp_path}/s"]) as started:
        with hms.connect(started.address, request_timeout_s=120) as conn, conn.session() as session:
            out, inn = session.producer("crowd"), session.consumer("crowd")
            for _ in range(FLOODS):
                with contextlib.ExitStack() as stack:
                    started.pause()
                    _connect_many(stack, f"{tmp_path}/s", said, timeout_s=0)
                    started.resume()
                    _connect_many(stack, f"{tmp_path}/s", said, timeout_s=30)
                    for _ in range(ROUNDS):
                        out.send(BODY)
                        assert inn.receive(timeout_s=60).body == BODY
                    with hms.connect(started.address, connect_timeout_s=60) as late:
                        late.session().producer("crowd").send(b"between them")
                    assert inn.receive(timeout_s=60).body == b"between them"
        assert started.is_running
        wait_until(lambda: "connections wait, as what is left is kept" in started.log)


def _connect_many(stack, path, said, timeout_s):
    for _ in range(STRANGERS):
        one = stack.enter_context(socket.socket(socket.AF_UNIX))
        one.settimeout(timeout_s)
        with contextlib.suppress(OSError):
            one.connect(path)
            one.send(said)
