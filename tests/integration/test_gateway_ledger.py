"""The gateway and its ledger: each way to have bytes held ends with the one who uses it."""

from contextlib import ExitStack, contextmanager

from gateway_rig import WAIT_S, client_of, receive_error, running

from hms.errors.catalogue import TooManyRequests
from hms.server import byte_ledger
from hms.server.byte_ledger import Ledger
from hms.wire.frames import Kind, frame
from tests.support import zmtp
from tests.support.waiting import wait_until

MIB = 1 << 20


@contextmanager
def _full(monkeypatch, unread_bytes_max=64 * MIB):
    """A gateway with room for 8 MiB, of which a peer may have 4, and with a well-behaved client;
    nothing is ever applied."""
    monkeypatch.setattr(byte_ledger, "OWN_BYTES", 8 * MIB)
    monkeypatch.setattr(byte_ledger, "SHARE_BYTES_MIN", 4 * MIB)
    book = Ledger(MIB, 0, unread_bytes_max)
    dropped = []
    parts = {
        "ledger": book,
        "on_dropped": dropped.append,
        "frame_bytes_max": MIB + 100,
        "peers_max": 20,
    }
    with running(**parts, pending_bytes_per_peer=64 * MIB) as rig, client_of(rig.endpoints[0]) as c:
        rig.dropped, rig.book, rig.good = dropped, book, c
        rig.good_key = rig.login(c)
        yield rig
        c.send_multipart(frame(Kind.SEND, b"still here"))
        wait_until(lambda: rig.next_frame()[::2] == (rig.good_key, b"still here"))


@contextmanager
def _raw_peer(rig):
    with zmtp.connect(rig.endpoints[0], timeout_s=WAIT_S) as raw:
        envelope, payload = frame(Kind.HELLO, b"who", 1)
        raw.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True))
        while (got := rig.next_frame())[1] is not Kind.HELLO:
            pass
        yield raw, got[0]


def test_a_lane_with_more_than_a_share_ends_its_connection(monkeypatch):
    """4,096 frames were the only bound: 2.9 GiB."""
    with _full(monkeypatch) as rig, client_of(rig.endpoints[0]) as greedy:
        key = rig.login(greedy)
        for _ in range(5):
            greedy.send_multipart(frame(Kind.SEND, bytes(MIB)))
        assert isinstance(receive_error(greedy), TooManyRequests)
        assert rig.next_lost()[0] == key
        assert rig.dropped == [key]


def test_when_all_have_too_much_the_one_with_most_is_closed(monkeypatch):
    """Each has less than a peer may have; together they have more than there is."""
    with _full(monkeypatch) as rig, ExitStack() as stack:
        peers = [stack.enter_context(client_of(rig.endpoints[0])) for _ in range(3)]
        keys = [rig.login(peer) for peer in peers]
        for peer, count in zip(peers, (2, 3, 3), strict=True):
            for _ in range(count):
                peer.send_multipart(frame(Kind.SEND, bytes(MIB)))
        lost, reason = rig.next_lost()
        assert lost in keys[1:]
        assert "bytes of one connection" in reason


def test_what_was_left_behind_is_dropped_before_others_are_closed(monkeypatch):
    """Who sends, leaves and comes again would have any number of lanes."""
    with _full(monkeypatch) as rig:
        gone = []
        for _ in range(3):
            with client_of(rig.endpoints[0]) as greedy:
                gone.append(rig.login(greedy))
                for _ in range(3):
                    greedy.send_multipart(frame(Kind.SEND, bytes(MIB)))
                assert [rig.next_frame()[0] for _ in range(3)] == [gone[-1]] * 3
            rig.gateway.forget(gone[-1])
            rig.turn()
        wait_until(lambda: set(rig.dropped) >= set(gone[:2]))
        while not rig.lost.empty():  # as its connection was closed before it was forgotten
            assert rig.next_lost()[0] in gone


def test_whoever_has_more_made_for_it_than_it_reads_is_cut(monkeypatch):
    """What workers make is counted before the main thread has seen any of it."""
    with _full(monkeypatch, unread_bytes_max=2 * MIB) as rig, _raw_peer(rig) as (raw, key):
        rig.gateway.put([(key, frame(Kind.REPLY, bytes(MIB), 2))] * 3)
        assert rig.next_lost()[0] == key
        wait_until(lambda: _is_at_end(raw))


def test_unfinished_frames_of_many_are_counted_and_the_largest_cut(monkeypatch):
    """Each is below the size of a frame; libzmq alone has them."""
    with _full(monkeypatch) as rig, ExitStack() as stack:
        rig.gateway._pressure._measure = lambda: 1 << 62
        peers = [stack.enter_context(_raw_peer(rig)) for _ in range(12)]
        envelope, payload = frame(Kind.SEND, bytes(MIB), 2)
        whole = zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True)
        look = rig.gateway._pressure
        looked = look._look_at
        wait_until(lambda: look._look_at > looked)
        for raw, _ in peers:
            raw.sendall(whole[:-1])
        keys = {key for _, key in peers}
        assert rig.next_lost()[0] in keys


def _is_at_end(raw):
    try:
        return raw.recv(1 << 20) == b""
    except ConnectionResetError:
        return True


def test_a_peer_that_waits_for_its_answers_is_never_closed(monkeypatch):
    """Many bytes, but few at a time."""
    with _full(monkeypatch) as rig:
        for _ in range(24):
            rig.good.send_multipart(frame(Kind.SEND, bytes(MIB)))
            rig.next_frame()
            rig.book.handled(rig.good_key, rig.book.held_for(rig.good_key))
        assert rig.lost.empty()
