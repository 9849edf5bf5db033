"""The gateway's daily work: frames in, frames out, logins, draining and stopping."""

import errno
import queue
import threading
from pathlib import Path

import pytest
import zmq
from gateway_rig import WAIT_S, Clock, client, client_of, receive, receive_error, rig, running

from hms.errors.catalogue import AddressUnusable, NotSupported
from hms.server import listening_sockets
from hms.server.address_faults import unusable
from hms.server.gateway import SENDS_AT_ONCE, Gateway, GatewayLimits
from hms.wire.frames import Kind, frame
from tests.support.waiting import wait_until

__all__ = ["client", "rig"]  # the fixtures

LIMITS = GatewayLimits(
    frame_bytes_max=1024, peers_max=1, heartbeat_s=10, pending_bytes_per_peer=1024
)


def test_frames_of_a_peer_are_passed_on_in_order_with_their_payload(rig, client):
    """A connection's commands are applied in the order in which they were sent (P4)."""
    key = rig.login(client)
    for number in range(2_000):
        client.send_multipart(frame(Kind.SEND, b"%d" % number))

    came = [rig.next_frame() for _ in range(2_000)]

    assert came == [(key, Kind.SEND, b"%d" % number) for number in range(2_000)]


def test_a_payload_of_the_largest_size_survives_both_ways(rig, client):
    """Large payloads are lent to the socket library, small ones copied; both must be whole."""
    key = rig.login(client)
    for size in (0, 1, 16 * 1024, 1 << 20):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        client.send_multipart(frame(Kind.SEND, body))
        assert rig.next_frame() == (key, Kind.SEND, body)
        rig.send(key, frame(Kind.DELIVER, body))
        assert receive(client) == (Kind.DELIVER, 0, body)


def test_frames_put_by_many_workers_all_arrive_in_each_workers_order(rig, client):
    """Workers share one outbox without a lock."""
    key = rig.login(client)

    def work(worker):
        for number in range(300):
            rig.send(key, frame(Kind.EVENT, b"%d %d" % (worker, number)))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    came = [receive(client)[2].split() for _ in range(900)]
    for worker in workers:
        worker.join(WAIT_S)

    for worker in (b"0", b"1", b"2"):
        assert [int(n) for who, n in came if who == worker] == list(range(300))


def test_peers_on_every_address_are_told_apart(tmp_path):
    """Routing ids of two sockets may be equal; the answer must reach the right one."""
    path = tmp_path / "node.ipc"
    with (
        running(["tcp://127.0.0.1:*", f"ipc://{path}"]) as rig,
        client_of(rig.endpoints[0]) as one,
        client_of(rig.endpoints[1]) as two,
    ):
        first, second = rig.login(one), rig.login(two)
        rig.send(second, frame(Kind.EVENT, b"two"))
        rig.send(first, frame(Kind.EVENT, b"one"))
        assert receive(one)[2] == b"one"
        assert receive(two)[2] == b"two"
        assert path.exists()
    assert not path.exists()


def test_the_file_of_another_node_is_left_alone(tmp_path):
    """A node that was slow to stop must not cut off the one that took its place."""
    path = tmp_path / "node.ipc"
    with running([f"ipc://{path}"]):
        path.unlink()
        path.touch()
    assert path.exists()


def test_an_address_in_use_is_refused_with_its_name_and_nothing_stays_open(tmp_path):
    """The operator must see which of the addresses is taken."""
    path = tmp_path / "node.ipc"
    with running() as rig:
        gateway = Gateway(
            [f"ipc://{path}", rig.endpoints[0]],
            on_frames=pytest.fail,
            on_lost=pytest.fail,
            limits=LIMITS,
        )
        with pytest.raises(AddressUnusable, match=rig.endpoints[0]) as caught:
            gateway.bind()
    assert not path.exists()
    assert "address already in use. Another process listens there: `ss -ltnp`" in str(caught.value)
    assert "change listen in hms.conf" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EADDRNOTAVAIL, "ip address"),
        (errno.ENODEV, "ip address"),
        (errno.EACCES, "below port 1024"),
        (errno.EINVAL, "Correct listen in hms.conf."),
    ],
)
def test_why_an_address_cannot_be_used_decides_what_is_to_be_done(number, said):
    """To correct the argument helped nobody who had given none."""
    error = unusable("tcp://192.0.2.1:80", zmq.ZMQError(number), "listen")

    assert said in str(error)
    assert "tcp://192.0.2.1:80" in str(error)


def test_an_ipv6_address_is_served():
    """Loopback has both families."""
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        return  # a machine without IPv6 has nothing to serve
    with running(["tcp://[::1]:*"]) as rig, client_of(rig.endpoints[0], ipv6=1) as client:
        rig.login(client)


def test_a_library_with_known_holes_is_refused(monkeypatch):
    """An older libzmq can be overrun before anybody logs in."""
    monkeypatch.setattr(listening_sockets.zmq, "zmq_version_info", lambda: (4, 3, 3))
    gateway = Gateway([], on_frames=pytest.fail, on_lost=pytest.fail, limits=LIMITS)
    with pytest.raises(NotSupported, match=r"4\.3\.4"):
        gateway.bind()


def test_forgetting_sends_first_what_was_put_before(rig, client):
    """The broker says why, and then knows the peer no more."""
    key = rig.login(client)
    rig.send(key, frame(Kind.ERROR, b"", 7), frame(Kind.EVENT, b"last"))
    rig.gateway.forget(key)
    rig.send(key, frame(Kind.EVENT, b"too late"))

    assert receive(client)[1] == 7
    assert receive(client)[2] == b"last"
    rig.turn()
    client.send_multipart(frame(Kind.SEND, b""))
    assert "HELLO" in str(receive_error(client))
    assert rig.lost.empty()


def test_a_peer_that_says_hello_again_after_being_forgotten_has_a_new_key(rig, client):
    """What a worker still sends to the old session must not reach the new one."""
    old = rig.login(client)
    rig.gateway.forget(old)
    rig.turn()
    new = rig.login(client)
    assert new != old
    rig.send(old, frame(Kind.EVENT, b"old"))
    rig.send(new, frame(Kind.EVENT, b"new"))

    assert receive(client)[2] == b"new"


def test_goodbye_is_the_brokers_business(rig, client):
    """It settles what is out before the peer is forgotten."""
    key = rig.login(client)
    client.send_multipart(frame(Kind.GOODBYE))
    assert rig.next_frame() == (key, Kind.GOODBYE, b"")


def test_a_draining_gateway_takes_nothing_and_still_sends(rig, client):
    """A stopping node lets nothing new in, and tells everybody how the rest ended."""
    key = rig.login(client)
    rig.gateway.stop_reading()
    rig.send(key, frame(Kind.EVENT, b"one"))
    assert receive(client)[2] == b"one"

    client.send_multipart(frame(Kind.SEND, b"more"))
    rig.send(key, frame(Kind.EVENT, b"two"))

    assert receive(client)[2] == b"two"
    assert rig.frames.empty()


def test_what_was_read_when_the_node_stopped_is_no_fault_of_its_sender(rig, client):
    """The lanes are closed by then: it is not taken, and its sender is told how the rest ended."""
    key = rig.login(client)
    rig.takes = False
    rig.on_refusal = rig.gateway.stop_reading
    client.send_multipart(frame(Kind.SEND, b"", 4))
    wait_until(lambda: not rig.gateway._is_reading)
    rig.send(key, frame(Kind.EVENT, b"the end"))

    assert receive(client)[2] == b"the end"


def test_what_was_put_before_stop_is_sent():
    """The last confirmations save the clients from sending again."""
    with running() as rig, client_of(rig.endpoints[0]) as client:
        key = rig.login(client)
        rig.send(key, *[frame(Kind.CONFIRM, b"%d" % n) for n in range(100)])
        rig.stop()
        assert [receive(client)[2] for _ in range(100)] == [b"%d" % n for n in range(100)]


def test_wake_and_stop_may_be_called_late_and_twice(rig):
    """A signal handler and a worker may both find the node's end."""
    rig.gateway.wake()
    rig.stop()
    rig.gateway.stop()
    rig.gateway.wake()
    rig.gateway.forget(1)


def test_the_slowest_turn_is_told_once_without_its_waiting():
    """All sockets wait for it; how long nothing came is no turn."""
    with running(clock=Clock()) as rig:
        read = rig.gateway._read

        def slow(*arguments):
            rig.clock.now_s += 0.25
            read(*arguments)

        rig.gateway._read = slow
        rig.turn()
        rig.gateway._read = read
        rig.turn()
        slowest_s = rig.gateway.slowest_turn_s()
        rig.turn()

        assert slowest_s >= 0.25
        assert rig.gateway.slowest_turn_s() < 0.25


def test_the_only_frame_of_a_turn_is_offered_before_it_goes_to_its_lane():
    """Whoever takes it needs no other thread; what comes together goes to the lanes together."""
    alone, taken = queue.Queue(), threading.Event()

    def on_alone(key, one):
        alone.put((key, one[0].kind, one[1]))
        return taken.is_set()

    with running(on_alone=on_alone) as rig, client_of(rig.endpoints[0]) as client:
        key = rig.login(client)
        assert alone.get(timeout=WAIT_S) == (key, Kind.HELLO, b"who")
        client.send_multipart(frame(Kind.SEND, b"1"))
        assert rig.next_frame() == (key, Kind.SEND, b"1")
        assert alone.get(timeout=WAIT_S) == (key, Kind.SEND, b"1")
        taken.set()
        client.send_multipart(frame(Kind.SEND, b"2"))
        assert alone.get(timeout=WAIT_S) == (key, Kind.SEND, b"2")
        assert rig.frames.empty()


def test_what_comes_of_a_frame_applied_here_leaves_at_once():
    """By way of the outbox it would be counted, taken out and counted again. Behind what waits
    there, from another thread, or as a crowd, it keeps to that way: nothing overtakes."""
    left = queue.Queue()

    def put(key, *answers):
        rig.gateway.put([(key, frame(Kind.REPLY, answer, 1)) for answer in answers])

    def on_alone(key, one):
        kind, text = one[0].kind, one[1]
        if kind is not Kind.SEND:
            return False
        if text == b"behind":
            rig.send(key, frame(Kind.REPLY, b"before", 1))
        if text == b"thread":
            other = threading.Thread(target=put, args=(key, text))
            other.start()
            other.join()
        else:
            put(key, *[text] * (SENDS_AT_ONCE + 1 if text == b"crowd" else 1))
        left.put(len(rig.gateway.outbox.batches))
        return True

    with running(on_alone=on_alone) as rig, client_of(rig.endpoints[0]) as client:
        key, told = rig.login(client), []
        held = rig.gateway.ledger.total
        for text, count in ((b"alone", 1), (b"behind", 2), (b"thread", 1), (b"crowd", 17)):
            client.send_multipart(frame(Kind.SEND, text))
            told += [receive(client)[2] for _ in range(count)]
        put(key, b"later")  # nobody is asked about a frame now

        assert told == [b"alone", b"before", b"behind", b"thread", *[b"crowd"] * 17]
        assert receive(client)[2] == b"later"
    assert [left.get() for _ in range(4)] == [0, 2, 1, 1]
    assert rig.gateway.ledger.total == held
