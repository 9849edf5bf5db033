"""Addresses that are locked after wrong logins, at a real node: told, dropped, and released."""

import json
import socket
from contextlib import ExitStack, suppress
from itertools import count

import msgspec
import pytest
import zmq
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from tests.acceptance.security.test_encrypted import Place
from tests.support.hello import hello_of
from tests.support.secured import PASSWORD, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
HOSTILE = "127.0.1.5"
FAILURES = 3
NUMBERS = count(100)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("l"))
    settings = REPLACE(made.held.security, failures_per_address=FAILURES)
    made.held = REPLACE(made.held, security=settings)
    with secured_node(made.folder, made.held, made.config) as made.node:
        yield made


def run(node, *words):
    return CliRunner().invoke(main, [*words, "--config", str(node.config_file)])


def examined(node):
    """What the doctor warns of."""
    said = json.loads(run(node, "doctor", "--json").stdout)
    found = next(one for one in said if one["check"] == "hms.security")
    return found["value"] if found["verdict"] == "warn" else ""


def attempt(place, number, password):
    """A login from the hostile address; what the node answers."""
    target = place.addresses["any"].removeprefix("tcp://")
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        wild = context.socket(zmq.DEALER)
        stack.callback(wild.close, 0)
        wild.curve_serverkey = place.server_key.encode()
        wild.curve_publickey, wild.curve_secretkey = zmq.curve_keypair()
        wild.connect(f"tcp://{HOSTILE}:0;{target}")
        hello = hello_of(number, protocol=2, mechanisms=("PASSWORD",))
        wild.send_multipart(frame(Kind.HELLO, wire.encode(hello), 1))
        assert wild.poll(60_000)
        wild.recv_multipart()
        auth = wire.Auth("PASSWORD", "billing", password.encode())
        wild.send_multipart(frame(Kind.AUTH, wire.encode(auth), 2))
        assert wild.poll(60_000)
        return frames.decode_envelope(wild.recv_multipart(), 1 << 20).kind


def comes_in(place):
    """Whether the kernel opens a connection from the hostile address."""
    host, _, port = place.addresses["any"].removeprefix("tcp://").rpartition(":")
    with socket.socket() as caller:
        caller.settimeout(0.5)
        caller.bind((HOSTILE, 0))
        with suppress(TimeoutError):
            caller.connect((host, int(port)))
            return True
    return False


def locked(node):
    return json.loads(run(node, "security", "locked", "--json").stdout)


def lock(place):
    """Wrong logins until the address is locked: for half a minute, which may be over by now."""
    while not locked(place.node):
        assert attempt(place, next(NUMBERS), "wrong") is Kind.ERROR


def test_a_locked_address_is_listed_and_released(place):
    """By whoever operates the node; and the audit has who did."""
    node = place.node
    assert locked(node) == []
    for number in range(FAILURES - 1):
        assert attempt(place, number, "wrong") is Kind.ERROR
    assert locked(node) == []
    lock(place)
    (row,) = locked(node)
    assert row["address"] == HOSTILE
    assert (row["attempts"], row["until_ms"] - row["since_ms"]) == (1, 30_000)
    assert HOSTILE in run(node, "security", "locked").stdout
    wait_until(lambda: lock(place) or not comes_in(place))
    with place.connect("any", user="billing", password=PASSWORD):
        pass  # another address
    wait_until(lambda: lock(place) or "addresses_locked" in run(node, "alert", "list").stdout)
    wait_until(lambda: lock(place) or HOSTILE in examined(node))

    lock(place)
    answer = run(node, "security", "unlock", HOSTILE)
    assert answer.exit_code == 0, answer.output
    wait_until(lambda: comes_in(place))
    assert attempt(place, 99, PASSWORD) is Kind.WELCOME

    again = run(node, "security", "unlock", HOSTILE)
    assert again.exit_code != 0
    assert "HMS-3018" in again.output
    audit = json.loads(run(node, "audit", "list", "--json").stdout)
    orders = [one["result"] for one in audit if one["command"] == "security.unlock"]
    assert orders == ["ok", hms.AddressNotLocked.number]
