"""The descriptor of a connection that ended is used again: whoever has it now is somebody else."""

import socket
import threading
from types import SimpleNamespace

import pytest
from gateway_rig import WAIT_S, Clock, running

from hms.server.accepted_sockets import Arrivals, Caller
from hms.server.peers import PeerTable
from hms.wire.frames import Kind, frame
from tests.support import zmtp

FRAMES = 40
"""Of 1,000 bytes: together more than a connection without a peer may send."""


def _say(raw, kind, body):
    envelope, payload = frame(kind, body, 1)
    raw.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True))


def _wait_in_turn(rig):
    """Have the main thread wait in its next turn, until what is returned is set."""
    take_turn, is_there, goes_on = rig._take_turn, threading.Event(), threading.Event()

    def late():
        is_there.set()
        goes_on.wait(WAIT_S)
        take_turn()

    rig._take_turn = late
    while not is_there.wait(0.01):
        rig.gateway.wake()
    return goes_on


def test_whoever_has_the_descriptor_of_one_who_left_stays_when_that_one_is_lost():
    """Both said HELLO before the main thread looked, as under load: the connection of the second
    counted as one without a peer when the first was lost, and was cut after 16 KiB."""
    with running(clock=Clock()) as rig, socket.socket() as second:
        second.settimeout(WAIT_S)
        goes_on = _wait_in_turn(rig)
        with zmtp.connect(rig.endpoints[0], timeout_s=WAIT_S) as first:
            _say(first, Kind.HELLO, b"first")
            first.shutdown(socket.SHUT_WR)
            while first.recv(4096):
                pass
            zmtp.connect(rig.endpoints[0], WAIT_S, second)
            _say(second, Kind.HELLO, b"second")
            goes_on.set()
        keys = {}
        while len(keys) < 2:
            key, _, payload = rig.next_frame()
            keys[payload] = key
            rig.gateway.accept(key)
        first_key, second_key = keys[b"first"], keys[b"second"]

        rig.send(first_key, frame(Kind.WELCOME, b"", 1))
        assert rig.next_lost()[0] == first_key
        for _ in range(FRAMES):
            _say(second, Kind.SEND, bytes(1000))
            assert rig.next_frame()[0] == second_key
            rig.advance(0.5, 0.5)
        assert rig.lost.empty()
        assert rig.gateway._peers.find(second_key).caller.has_peer


@pytest.mark.parametrize("number", [7, (1 << 32) - 2])
@pytest.mark.parametrize("is_first_read_first", [True, False])
def test_of_two_peers_of_one_descriptor_the_newer_one_has_the_connection(
    number, is_first_read_first
):
    """ZeroMQ reads them in any order, and counts routing ids in 32 bits."""
    rig_limits = SimpleNamespace(peers_max=10, peers_per_address_max=0, unread_bytes_per_peer=1)
    arrivals, caller = Arrivals(), Caller(5, 500)
    arrivals.close()
    peers = PeerTable(rig_limits, lambda _key, _reason: None, arrivals)
    callers = SimpleNamespace(greeted=lambda _descriptor: caller)
    listener = _Listener(callers)
    older, newer = (b"\0" + (n % (1 << 32)).to_bytes(4) for n in (number, number + 3))
    order = [older, newer] if is_first_read_first else [newer, older]
    known = {routing_id: peers.add(listener, routing_id, 1.0) for routing_id in order}
    caller.has_peer = True

    peers.remove(known[older])

    assert known[newer].caller is caller
    assert caller.has_peer
    assert caller.peer == known[newer].key
    assert known[older].caller.descriptor == -1


class _Listener:
    """All that a PeerTable asks of one."""

    def __init__(self, callers):
        self.callers = callers

    def descriptor(self):
        return 5

    def who(self):
        return None
