"""Waiting at the socket: whoever waits can be made to look again, from a signal handler too."""

import os
import signal
import threading

import pytest

from hms.client.core.socket_wait import SocketWait

WAIT_S = 30
FOREVER = float("inf")


class Scene:
    """A wait over a pipe; nothing ever comes through it unless the test writes."""

    def __init__(self):
        self.lock, self.taken = threading.Lock(), 0
        self.read_fd, self.write_fd = os.pipe()
        self.wait = SocketWait(self.lock, self._take_in, lambda: None)
        self.wait.watch(self.read_fd)
        self.is_done = False

    def _take_in(self):
        self.taken += 1
        return True

    def wait_for(self, deadline=FOREVER):
        with self.lock:
            return self.wait.wait_for(self, lambda: self.is_done, deadline)

    def close(self):
        os.close(self.read_fd)
        os.close(self.write_fd)


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.close()


def test_a_reader_and_a_sleeper_look_again_when_they_are_interrupted(scene):
    """A server that is to stop waits for calls; it need not hear of it by a call."""
    waiting = [threading.Thread(target=scene.wait_for, daemon=True) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while len(scene.wait._sleepers) < 2:
        os.sched_yield()

    scene.is_done = True
    scene.wait.interrupt()
    for thread in waiting:
        thread.join(WAIT_S)

    assert not any(thread.is_alive() for thread in waiting)


def test_a_signal_handler_may_interrupt_the_thread_that_it_runs_in(scene):
    """Signals are heard in the main thread, which is the one that waits, with its lock or not."""

    def stop(*_):
        scene.is_done = True
        scene.wait.interrupt()

    before = signal.signal(signal.SIGUSR1, stop)
    timer = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        assert scene.wait_for()
    finally:
        timer.join(WAIT_S)
        signal.signal(signal.SIGUSR1, before)


def test_an_interruption_that_nobody_waited_for_makes_the_next_wait_look_once(scene):
    """It would look again and again, if the ring stayed in its descriptor."""
    scene.wait.interrupt()
    waiting = threading.Thread(target=scene.wait_for, daemon=True)
    waiting.start()
    while scene.taken < 3 or not scene.wait.is_polling:
        os.sched_yield()

    scene.is_done = True
    os.write(scene.write_fd, b"x")
    waiting.join(WAIT_S)

    assert not waiting.is_alive()
    assert scene.taken == 4  # before and after the ring, before and after what came
