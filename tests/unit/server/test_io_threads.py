"""Which thread of libzmq moves the bytes of a listener."""

from contextlib import ExitStack

import pytest
import zmq

from hms.server.accepted_sockets import Arrivals
from hms.server.listening_sockets import GatewayLimits, ListenAt, Listener, io_threads_for

LIMITS = GatewayLimits(
    frame_bytes_max=1 << 20, peers_max=4, heartbeat_s=10, pending_bytes_per_peer=1 << 20
)


def plain(folder):
    return ListenAt(f"ipc://{folder}/s")


def encrypted():
    return ListenAt("tcp://127.0.0.1:*", "c", zmq.curve_keypair())


@pytest.fixture
def threads_of():
    """The threads that listeners at these places use, as bits: 0 for any."""
    with ExitStack() as stack:

        def found(*places):
            context = stack.enter_context(zmq.Context(io_threads_for(places)))
            arrivals = Arrivals()
            stack.callback(arrivals.close)
            made = [Listener(context, at, LIMITS, [], arrivals) for at in places]
            for one in made:
                stack.callback(one.close)
            return [one.socket.getsockopt(zmq.AFFINITY) for one in made]

        yield found


def test_listeners_that_encrypt_have_a_thread_of_their_own(threads_of, tmp_path):
    """A flood of handshakes holds up no frame of a local socket."""
    assert threads_of(encrypted(), plain(tmp_path), encrypted()) == [2, 1, 2]


def test_listeners_that_are_all_alike_share_one(threads_of, tmp_path):
    """A node without encryption, or with nothing else, pays for no second thread."""
    assert threads_of(plain(tmp_path)) == [0]
    assert threads_of(encrypted(), encrypted()) == [0, 0]
    assert io_threads_for([]) == 1
