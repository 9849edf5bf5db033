"""The gateway against peers that are broken, hostile, slow or silent: each costs only itself."""

import os
import select
import socket
import struct
from contextlib import ExitStack, contextmanager, suppress

import pytest
import zmq
from gateway_rig import WAIT_S, Clock, client, client_of, receive, receive_error, rig, running

from hms.errors.catalogue import (
    AddressLimit,
    ProtocolError,
    TooManyConnections,
    TooManyRequests,
    VersionMismatch,
)
from hms.server import accepted_sockets
from hms.server.accepted_sockets import Arrivals, Caller, Callers, descriptor_of
from hms.server.logins.callers import Caller as Who
from hms.server.peers import SUSPICIONS_MIN
from hms.wire.frames import ENVELOPE, Kind, frame
from tests.support import zmtp
from tests.support.waiting import wait_until

__all__ = ["client", "rig"]  # the fixtures

GARBAGE = [
    [b"", b""],
    [b"H" * 16, b""],
    [b"x" * 15, b""],
    [ENVELOPE.pack(b"HM", 1, 2, 0, 1, 5), b"four"],
    [ENVELOPE.pack(b"HM", 1, 99, 0, 1, 0), b""],
    frame(Kind.DELIVER, b"only the node sends this"),
    [b"one part"],
    [*frame(Kind.SEND), b"three"],
    [*frame(Kind.SEND), *[b"many"] * 500],
]


@pytest.mark.parametrize("bad", GARBAGE)
def test_garbage_from_a_known_peer_ends_its_connection_after_what_came_before(rig, client, bad):
    """The stream cannot be trusted any more, but what was whole before it was applied."""
    key = rig.login(client)
    client.send_multipart(frame(Kind.SEND, b"good"))
    client.send_multipart(bad)

    assert rig.next_frame() == (key, Kind.SEND, b"good")
    assert receive(client)[:2] == (Kind.ERROR, 0)
    lost, reason = rig.next_lost()
    assert lost == key
    assert "HMS-1001" in reason
    assert rig.order == ["frames", "frames", "lost"]
    rig.login(client)


@pytest.mark.parametrize("bad", [*GARBAGE, frame(Kind.SEND, b""), frame(Kind.HEARTBEAT)])
def test_whoever_does_not_begin_with_hello_is_told_and_not_remembered(rig, client, bad):
    """Nothing is kept for somebody who has not said who he is."""
    client.send_multipart(bad)
    assert isinstance(receive_error(client), ProtocolError)
    assert rig.frames.empty()
    rig.login(client)


def test_another_version_is_told_both_numbers(rig, client):
    """The user must learn which side to upgrade."""
    client.send_multipart([ENVELOPE.pack(b"HM", 2, 1, 5, 1, 0), b""])
    error = receive_error(client)
    assert isinstance(error, VersionMismatch)
    assert (error.theirs, error.ours) == (2, 1)


def test_a_client_with_a_routing_id_of_its_own_is_refused(rig):
    """Who somebody is follows from the login alone; a chosen id could take another's place."""
    with client_of(rig.endpoints[0], routing_id=b"admin") as impostor:
        impostor.send_multipart(frame(Kind.HELLO, b"", 3))
        assert isinstance(receive_error(impostor), ProtocolError)
    assert rig.frames.empty()


def test_one_peer_more_than_the_limit_is_refused_and_may_come_later():
    """The table has a bound (P8), and a place that was given up is free again."""
    with running(peers_max=1) as rig, client_of(rig.endpoints[0]) as one:
        first = rig.login(one)
        with client_of(rig.endpoints[0]) as two:
            two.send_multipart(frame(Kind.HELLO, b"", 9))
            assert isinstance(receive_error(two), TooManyConnections)
            rig.gateway.forget(first)
            rig.turn()
            rig.login(two)


def test_one_address_has_no_more_connections_than_it_may(monkeypatch):
    """Others go on, whether by address or local, and a place that was given up is free again."""
    every = Who.remote.fget
    ours = {"127.0.1.5", "127.0.1.6"}  # as if they were other machines
    monkeypatch.setattr(
        Who, "remote", property(lambda who: who.address if who.address in ours else every(who))
    )
    with running(peers_per_address_max=2) as rig, ExitStack() as stack:

        def comes(source=""):
            endpoint = rig.endpoints[0]
            if source:
                endpoint = endpoint.replace("tcp://", f"tcp://{source}:0;")
            return stack.enter_context(client_of(endpoint))

        first = rig.login(comes("127.0.1.5"))
        rig.login(comes("127.0.1.5"))
        third = comes("127.0.1.5")
        third.send_multipart(frame(Kind.HELLO, b"", 9))
        told = receive_error(third)
        assert isinstance(told, AddressLimit)
        assert told.fields == {"address": "127.0.1.5", "count": 2, "limit": 2}
        rig.login(comes("127.0.1.6"))
        for _ in range(3):
            rig.login(comes())
        rig.gateway.forget(first)
        rig.turn()
        rig.login(comes("127.0.1.5"))


def test_a_peer_that_breaks_its_window_is_lost(rig, client):
    """A full lane means that the peer sent more than the WELCOME allowed."""
    key = rig.login(client)
    rig.takes = False
    client.send_multipart(frame(Kind.SEND, b"", 4))

    assert isinstance(receive_error(client), TooManyRequests)
    assert rig.next_lost()[0] == key


def test_a_part_above_the_frame_limit_ends_the_connection_before_it_is_read():
    """The library must not even assemble it."""
    with running(frame_bytes_max=4096) as rig, client_of(rig.endpoints[0]) as client:
        rig.login(client)
        client.send_multipart(frame(Kind.SEND, b"x" * 4097))
        for _ in range(100):  # what was under way with it is lost, until the client has reconnected
            client.send_multipart(frame(Kind.SEND, b"on the new connection"))
            if client.poll(100):
                break
        assert "HELLO" in str(receive_error(client))
        assert rig.frames.empty()


def test_a_raw_connection_with_random_bytes_disturbs_nobody(rig, client):
    """Scanners connect to every open port."""
    rig.login(client)
    port = int(rig.endpoints[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as raw:
        raw.sendall(struct.pack("<I", 7) + os.urandom(2000))
        client.send_multipart(frame(Kind.SEND, b"still here"))
        assert rig.next_frame()[2] == b"still here"


def test_a_peer_that_does_not_read_is_dropped_and_the_others_are_served(rig, client):
    """A slow peer costs itself, never the others (P8)."""
    other = rig.login(client)
    with client_of(rig.endpoints[0], rcvhwm=1) as slow:
        key = rig.login(slow)
        rig.send(key, *[frame(Kind.DELIVER, bytes(1 << 20))] * 200)
        lost, reason = rig.next_lost()
        assert lost == key
        assert "does not read" in reason
        rig.send(other, frame(Kind.EVENT, b"served"))
        assert receive(client)[2] == b"served"


def test_a_peer_that_reads_late_gets_everything_in_order():
    """What libzmq has no room for waits with us, within its bound."""
    count = 1500
    with (
        running(pending_bytes_per_peer=count * 40_000) as rig,
        client_of(rig.endpoints[0], rcvhwm=1) as late,
    ):
        key = rig.login(late)
        held, later = range(count - 500), iter(range(count - 500, count))
        rig.send(key, *[frame(Kind.DELIVER, b"%06d" % n * 5000) for n in held])
        rig.turn()
        for expected in range(count):
            assert int(receive(late)[2][:6]) == expected
            if (n := next(later, None)) is not None:  # there may be room, but others wait
                rig.send(key, frame(Kind.DELIVER, b"%06d" % n * 5000))
        assert rig.lost.empty()


def test_a_peer_that_is_gone_is_lost_at_the_next_send():
    """ROUTER alone would drop the frames in silence."""
    with running() as rig:
        with client_of(rig.endpoints[0]) as client:
            key = rig.login(client)
        for _ in range(1000):
            rig.send(key, frame(Kind.EVENT, b""))
            rig.turn()
            if not rig.lost.empty():
                break
        assert rig.next_lost() == (key, "the connection is gone")


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
@pytest.mark.parametrize("frames_left", [0, 700])
def test_a_peer_whose_connection_is_closed_is_lost_at_once_behind_what_it_sent(
    scheme, frames_left, tmp_path
):
    """What a killed client holds was its own for a third of the heartbeat's time; here no heartbeat
    is ever due. (Over ipc libzmq itself loses the end of what is sent by one who closes, of these
    700 frames up to 340: what comes is a first part.)"""
    address = "tcp://127.0.0.1:*" if scheme == "tcp" else f"ipc://{tmp_path}/gate"
    with (
        running(addresses=[address], clock=Clock(), heartbeat_s=12) as rig,
        client_of(rig.endpoints[0]) as good,
    ):
        kept = rig.login(good)
        with client_of(rig.endpoints[0], sndhwm=0, linger=WAIT_S * 1000) as killed:
            key = rig.login(killed)
            for number in range(frames_left):
                killed.send_multipart(frame(Kind.SEND, b"%d" % number, number))

        assert rig.next_lost() == (key, "the connection is gone")
        came = [rig.next_frame() for _ in range(rig.frames.qsize())]
        assert came == [(key, Kind.SEND, b"%d" % number) for number in range(len(came))]
        assert len(came) == frames_left or scheme == "ipc"
        assert rig.order[-1] == "lost"
        good.send_multipart(frame(Kind.SEND, b"still here", 4))
        assert rig.next_frame()[0] == kept
        assert rig.lost.empty()


def test_a_peer_whose_libzmq_is_silent_is_lost_and_a_busy_one_is_kept():
    """What was delivered to a dead client goes to another one, not what a busy one works on."""
    with (
        running(heartbeat_s=3) as rig,  # the busy one's libzmq may get no processor for a second
        client_of(rig.endpoints[0]) as busy,
        socket.create_connection(("127.0.0.1", _port_of(rig)), timeout=WAIT_S) as silent,
    ):
        rig.login(busy)
        key = _log_in_raw(rig, silent)
        assert rig.next_lost() == (key, "the connection is gone")
        busy.send_multipart(frame(Kind.SEND, b"after a long time"))
        assert rig.next_frame()[2] == b"after a long time"
        assert rig.lost.empty()


def _port_of(rig):
    return int(rig.endpoints[0].rpartition(":")[2])


def _log_in_raw(rig, raw):
    """HELLO from a peer that speaks ZMTP 3.1 by hand and so answers no ping."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    name, value = b"Socket-Type", b"DEALER"
    ready = b"\x05READY" + bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    envelope, payload = frame(Kind.HELLO, b"who", 1)
    raw.sendall(greeting + bytes([4, len(ready)]) + ready)
    said = b""
    while b"READY" not in said:  # until then a frame breaks the protocol
        said += raw.recv(4096)
    raw.sendall(bytes([1, len(envelope)]) + envelope + bytes([0, len(payload)]) + payload)
    key, kind, _ = rig.next_frame()
    assert kind is Kind.HELLO
    rig.gateway.accept(key)
    return key


def test_an_idle_peer_hears_a_heartbeat_within_a_third_of_the_period():
    """Otherwise the client takes the node for dead."""
    with running(clock=Clock(), heartbeat_s=12) as rig, client_of(rig.endpoints[0]) as client:
        rig.login(client)
        rig.advance(6)
        assert receive(client)[0] is Kind.HEARTBEAT
        assert not client.poll(0)


def test_after_a_pause_of_the_node_nobody_is_lost_unheard():
    """A stopped process, or a suspended machine, would else lose every client at once."""
    with running(clock=Clock(), heartbeat_s=12) as rig, client_of(rig.endpoints[0]) as client:
        rig.login(client)
        rig.clock.now_s += 100
        rig.turn()
        client.send_multipart(frame(Kind.SEND, b"back"))
        assert rig.next_frame()[2] == b"back"
        rig.advance(4)
        assert rig.lost.empty()


def test_one_who_says_hello_and_never_logs_in_is_lost():
    """Else the table fills with peers that only keep their heart beating."""
    with running(clock=Clock(), heartbeat_s=12) as rig, client_of(rig.endpoints[0]) as client:
        client.send_multipart(frame(Kind.HELLO, b"", 1))
        key, _, _ = rig.next_frame()
        for _ in range(4):
            client.send_multipart(frame(Kind.SEND, b"hello?"))
            rig.next_frame()
            rig.advance(4)
        assert rig.next_lost() == (key, "no login within 12 s")


def test_a_draining_gateway_loses_nobody_for_silence():
    """It does not listen, so silence says nothing."""
    with running(clock=Clock(), heartbeat_s=12) as rig, client_of(rig.endpoints[0]) as client:
        key = rig.login(client)
        rig.gateway.stop_reading()
        for _ in range(20):
            rig.clock.now_s += 1
            rig.send(key, frame(Kind.EVENT, b""))
            while receive(client)[0] is Kind.HEARTBEAT:
                pass
        assert rig.lost.empty()


def test_a_connection_that_goes_on_after_it_was_given_up_is_cut(monkeypatch):
    """Each of its frames was answered, as many as it sent: 14,000 a second of one client."""
    monkeypatch.setattr(accepted_sockets, "STRAYS_MAX", 5)
    with running() as rig, zmtp.connect(rig.endpoints[0], timeout_s=WAIT_S) as wild:
        key = _say_hello(rig, wild)
        wild.sendall(zmtp.part(b"x" * 15, is_last=False) + zmtp.part(b"", is_last=True))
        assert rig.next_lost()[0] == key
        stray = frame(Kind.SEND, b"goes on")
        for _ in range(3):
            wild.sendall(_whole(stray))
        assert _say_hello(rig, wild) != key  # in time: it is counted anew
        wild.sendall(zmtp.part(b"x" * 15, is_last=False) + zmtp.part(b"", is_last=True))
        rig.next_lost()
        with suppress(OSError):
            for _ in range(5):
                wild.sendall(_whole(stray))
        said = b"more"
        with suppress(ConnectionResetError):
            while said:
                said = wild.recv(65536)


def _whole(parts):
    envelope, payload = parts
    return zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True)


def _say_hello(rig, raw):
    raw.sendall(_whole(frame(Kind.HELLO, b"who", 1)))
    key, kind, _ = rig.next_frame()
    assert kind is Kind.HELLO
    return key


def test_ten_thousand_frames_of_a_stranger_are_refused_without_harm(rig, client):
    """Refusing must be cheap and bounded, also when the stranger never reads the answers."""
    key = rig.login(client)
    with client_of(rig.endpoints[0], rcvhwm=1, sndhwm=0) as stranger:
        for _ in range(10_000):
            stranger.send_multipart(frame(Kind.SEND, b"x"), zmq.NOBLOCK)
        client.send_multipart(frame(Kind.SEND, b"served"))
        assert rig.next_frame() == (key, Kind.SEND, b"served")


@contextmanager
def _strangers(endpoint, count):
    """Connections of libzmq that never say HELLO."""
    with zmq.Context() as context, ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(context.socket(zmq.DEALER))
            one.linger, one.reconnect_ivl = 0, -1
            one.connect(endpoint)
        yield


def _pass_time(rig, good, steps=12):
    """Time goes by for all, and one client goes on to be heard."""
    for _ in range(steps):
        rig.clock.now_s += 2
        good.send_multipart(frame(Kind.SEND, b"still here", 4))
        rig.next_frame()


def _callers_of(rig):
    (listener,) = rig.gateway._listeners.values()
    return listener.callers


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_connections_that_never_say_hello_are_cut(scheme, tmp_path):
    """They kept a descriptor each, for good."""
    address = "tcp://127.0.0.1:*" if scheme == "tcp" else f"ipc://{tmp_path}/gate"
    with (
        running(addresses=[address], clock=Clock(), heartbeat_s=12) as rig,
        client_of(rig.endpoints[0]) as good,
        _strangers(rig.endpoints[0], 5),
    ):
        rig.login(good)
        callers = _callers_of(rig)
        wait_until(lambda: len(callers) == 6)
        wait_until(lambda: _pass_time(rig, good) or len(callers) == 1)


def test_connections_beyond_the_limit_are_cut_and_those_that_said_hello_stay():
    """A flood of connections must not take the descriptors of the log."""
    with (
        running(peers_max=2) as rig,
        client_of(rig.endpoints[0]) as good,
    ):
        key = rig.login(good)
        with _strangers(rig.endpoints[0], 100):
            callers = _callers_of(rig)
            wait_until(lambda: len(callers) == 34)
            good.send_multipart(frame(Kind.SEND, b"still here", 4))
            assert rig.next_frame()[0] == key


def test_the_limit_of_connections_holds_for_all_addresses_together(tmp_path):
    """Each address had it for itself: two of them took more descriptors than there were."""
    with running(addresses=["tcp://127.0.0.1:*", f"ipc://{tmp_path}/gate"], peers_max=2) as rig:
        first, second = [listener.callers for listener in rig.gateway._listeners.values()]
        with _strangers(rig.endpoints[0], 30), _strangers(rig.endpoints[1], 30):
            wait_until(lambda: len(first) + len(second) == 34)


def test_what_is_cut_to_make_room_counts_as_gone_for_the_other_addresses():
    """Each address cut as many, while libzmq had not closed the first ones yet."""
    with ExitStack() as stack:
        context, everywhere, arrivals = stack.enter_context(zmq.Context()), [], Arrivals()
        stack.callback(arrivals.close)
        for _ in range(2):
            listening = stack.enter_context(context.socket(zmq.ROUTER))
            port = listening.bind_to_random_port("tcp://127.0.0.1")
            callers = Callers(context, listening, 34, 12, everywhere, arrivals)
            stack.callback(callers.close)
            for _ in range(30):
                stack.enter_context(zmtp.connect(f"tcp://127.0.0.1:{port}"))
            wait_until(lambda: callers._take_some() or len(callers) == 30)  # noqa: B023 - called at once

        for _ in range(3):
            for callers in everywhere:
                callers.take_events()

        wait_until(
            lambda: [one.take_events() for one in everywhere] and sum(map(len, everywhere)) == 34
        )
        assert [len(callers) for callers in everywhere] == [4, 30]
        assert sum(callers.ending for callers in everywhere) == 0


def test_whoever_says_hello_behind_a_flood_of_connections_is_known_and_not_cut(monkeypatch):
    """Its connection was taken for one without a peer, as the monitor had not yet told of it."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        listening = stack.enter_context(context.socket(zmq.ROUTER))
        arrivals = Arrivals()
        stack.callback(arrivals.close)
        callers = Callers(
            context, listening, callers_max=100, login_s=12, everywhere=[], arrivals=arrivals
        )
        stack.callback(callers.close)
        port = listening.bind_to_random_port("tcp://127.0.0.1")
        monkeypatch.setattr(accepted_sockets, "_EVENTS_PER_TURN", 2)
        for _ in range(10):
            raw = stack.enter_context(zmtp.connect(f"tcp://127.0.0.1:{port}"))
        raw.sendall(zmtp.part(b"HELLO", is_last=True))
        assert listening.poll(WAIT_S * 1000)
        listening.recv()
        descriptor = descriptor_of(listening.recv(copy=False))

        assert callers.greeted(descriptor).descriptor == descriptor
        assert len(callers) == 10


def test_a_connection_whose_peer_was_given_up_is_cut():
    """Its client may be gone without a word, or hang."""
    with (
        running(clock=Clock(), heartbeat_s=12) as rig,
        client_of(rig.endpoints[0]) as good,
        client_of(rig.endpoints[0], reconnect_ivl=-1) as other,
    ):
        rig.login(good)
        rig.gateway.forget(rig.login(other))
        callers = _callers_of(rig)
        assert len(callers) == 2
        wait_until(lambda: _pass_time(rig, good) or len(callers) == 1)


def _is_cut(raw):
    """Send more until the other side does not take it any more."""
    try:
        raw.sendall(zmtp.part(bytes(1000), is_last=False))
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def _greeted(rig, raw):
    """The peer of a raw connection, let in."""
    envelope, payload = frame(Kind.HELLO, b"who", 1)
    raw.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True))
    key = rig.next_frame()[0]
    rig.gateway.accept(key)
    peer = rig.gateway._peers.find(key)
    wait_until(lambda: peer.is_accepted)
    return peer


@pytest.fixture(params=["tcp", "ipc"])
def address(request, tmp_path):
    """Of either kind: the kernel counts what comes in two ways."""
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/gate"


@pytest.fixture(params=[False, True])
def has_said_hello(request):
    """Whether a stranger is one no more."""
    return request.param


def test_a_frame_without_end_is_cut_and_not_kept(address, has_said_hello):
    """The parts of a message are gathered before anybody sees them: 1.5 GB stayed in memory."""
    with (
        running(addresses=[address], frame_bytes_max=1 << 18) as rig,
        client_of(rig.endpoints[0]) as good,
    ):
        key = rig.login(good)
        with zmtp.connect(rig.endpoints[0]) as raw:
            if has_said_hello:
                _greeted(rig, raw)
            wait_until(lambda: _is_cut(raw), pause_s=0.001)
        good.send_multipart(frame(Kind.SEND, b"still here", 4))
        assert rig.next_frame()[0] == key


def test_a_frame_without_end_is_found_when_the_kernel_never_tells_of_it(
    address, monkeypatch, has_said_hello
):
    """What libzmq has read before it is asked for is nothing that waits: on one core never cut."""
    monkeypatch.setattr(accepted_sockets, "_ARRIVAL", select.EPOLLONESHOT)
    with (
        running(addresses=[address], clock=Clock(), frame_bytes_max=1 << 18) as rig,
        client_of(rig.endpoints[0]) as good,
        zmtp.connect(rig.endpoints[0]) as raw,
    ):
        key = rig.login(good)
        if has_said_hello:
            _greeted(rig, raw)
        wait_until(lambda: _is_cut(raw) or _pass_time(rig, good, 1), pause_s=0.001)
        good.send_multipart(frame(Kind.SEND, b"still here", 4))
        assert rig.next_frame()[0] == key


def test_a_large_frame_whose_connection_is_looked_at_in_turn_comes_whole(monkeypatch):
    """An honest one, at the second address: 64 looks see it grow, and none cuts it."""
    monkeypatch.setattr(accepted_sockets, "_ARRIVAL", select.EPOLLONESHOT)
    with (
        running(addresses=["tcp://127.0.0.1:*"] * 2, clock=Clock(), frame_bytes_max=1 << 20) as rig,
        client_of(rig.endpoints[0]) as good,
        zmtp.connect(rig.endpoints[1]) as raw,
    ):
        rig.login(good)
        peer = _greeted(rig, raw)
        envelope, payload = frame(Kind.SEND, bytes(1 << 20), 2)
        whole = zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True)
        for at in range(0, 1 << 20, 1 << 14):
            raw.sendall(whole[at : at + (1 << 14)])
            _pass_time(rig, good, 1)
        raw.sendall(whole[1 << 20 :])  # what completes it
        assert len(rig.next_frame()[2]) == 1 << 20
        assert rig.gateway._peers.find(peer.key) is peer


def test_a_large_frame_that_comes_slowly_is_not_taken_for_one_without_end(address):
    """A client behind a slow line is honest."""
    with (
        running(addresses=[address], frame_bytes_max=1 << 20) as rig,
        zmtp.connect(rig.endpoints[0]) as raw,
    ):
        peer = _greeted(rig, raw)
        before, active = peer.caller.read_bytes(), rig.gateway._arrivals.active
        envelope, payload = frame(Kind.SEND, bytes(1 << 20), 2)
        whole = zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True)
        for at in range(0, len(whole), 1 << 18):
            raw.sendall(whole[at : at + (1 << 18)])
            come = before + min(len(whole), at + (1 << 18))
            wait_until(lambda come=come: peer.caller.read_bytes() == come and not active)
        assert len(rig.next_frame()[2]) == 1 << 20
        assert rig.gateway._peers.find(peer.key) is peer


def test_frames_that_wait_behind_others_are_not_taken_for_one_without_end(monkeypatch):
    """A client that is faster than the node is honest, too."""
    with running(frame_bytes_max=1 << 16) as rig, zmtp.connect(rig.endpoints[0]) as raw:
        peer, peers = _greeted(rig, raw), rig.gateway._peers
        monkeypatch.setattr(peer.listener, "has_input", lambda: [1])
        caller = Caller(-1, -1, unheard_bytes=1 << 20)
        for _ in range(SUSPICIONS_MIN):
            peers._judge(caller, peer)
        assert peers.find(peer.key) is peer
        caller.unheard_bytes = 0
        peers._judge(caller, peer)
        assert not caller.suspicions


def test_what_is_read_of_a_local_socket_is_counted_for_ever(monkeypatch):
    """The kernel counts down from 2 GiB, and stays at 0."""
    monkeypatch.setattr(accepted_sockets, "_PEEK_OFF_LOW", accepted_sockets._PEEK_OFF_MAX)
    far, near = socket.socketpair()
    with far, near:
        caller = Caller(near.fileno(), os.fstat(near.fileno()).st_ino)
        caller.count_reads()
        far.sendall(bytes(1000))
        for come in range(100, 1001, 100):
            near.recv(100)
            assert caller.read_bytes() == come


def test_a_connection_whose_peer_left_is_counted_anew():
    """It may say HELLO again, and what its first peer sent is no frame without end."""
    far, near = socket.socketpair()
    with far, near:
        caller = Caller(near.fileno(), os.fstat(near.fileno()).st_ino)
        caller.count_reads()
        for size, unheard in ((1000, 1000), (10, 1010)):
            far.sendall(bytes(size))
            near.recv(size)
            assert caller.look()
            assert caller.unheard_bytes == unheard
        caller.left()
        caller.heard_at, caller.unheard_bytes = accepted_sockets.NEVER, 0  # as a look finds it
        assert caller.look()
        far.sendall(bytes(7))
        near.recv(7)
        assert caller.look()
        assert caller.unheard_bytes == 7


def test_a_connection_that_says_nothing_is_not_looked_at():
    """The kernel tells when something comes."""
    with running() as rig, client_of(rig.endpoints[0]) as good:
        rig.login(good)
        wait_until(lambda: not rig.gateway._arrivals.active)
        good.send_multipart(frame(Kind.SEND, b"once", 4))
        rig.next_frame()
        wait_until(lambda: not rig.gateway._arrivals.active)


def test_what_libzmq_holds_for_a_peer_that_does_not_read_is_bounded_in_bytes():
    """It counts frames, 1,000 of whatever size: 2.8 GiB for one peer."""
    with (
        running(pending_bytes_per_peer=4 << 20, frame_bytes_max=1 << 20) as rig,
        zmtp.connect(rig.endpoints[0]) as raw,
        client_of(rig.endpoints[0]) as good,
    ):
        envelope, payload = frame(Kind.HELLO, b"who", 1)
        raw.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True))
        deaf = rig.next_frame()[0]
        key = rig.login(good)
        rig.gateway.outbox.put_many([(deaf, frame(Kind.REPLY, bytes(1 << 20), 2))] * 40)
        lost, reason = rig.next_lost()
        assert lost == deaf
        assert "does not read" in reason
        rig.gateway.outbox.put_many([(key, frame(Kind.REPLY, bytes(1 << 20), 2))] * 3)
        assert [len(receive(good)[2]) for _ in range(3)] == [1 << 20] * 3


def test_a_peer_that_reads_gets_far_more_than_may_be_held_for_it():
    """What it has read gives room again."""
    with (
        running(pending_bytes_per_peer=64 << 20, frame_bytes_max=1 << 20) as rig,
        client_of(rig.endpoints[0]) as good,
    ):
        key = rig.login(good)
        for _ in range(8):
            rig.gateway.outbox.put_many([(key, frame(Kind.REPLY, bytes(1 << 20), 2))] * 16)
            assert [len(receive(good)[2]) for _ in range(16)] == [1 << 20] * 16
