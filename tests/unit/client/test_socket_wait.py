"""Waiting at the socket: whoever waits can be made to look again, from a signal handler too."""

import os
import select
import signal
import threading

import pytest

from hms.client.core.connection_lock import make_lock
from hms.client.core.socket_wait import SocketWait

WAIT_S = 60
FOREVER = float("inf")


class Scene:
    """A wait over a pipe; nothing ever comes through it unless the test writes."""

    def __init__(self):
        self.lock, self.taken = make_lock(), 0
        self.read_fd, self.write_fd = os.pipe()
        self.wait = SocketWait(self.lock, self._take_in, self)
        self.wait.watch(self.read_fd)
        self.is_done = self.is_deputy_busy = self.is_reader = False

    def _take_in(self):
        self.taken += 1
        return True

    def step_aside(self):
        pass

    def take_over(self, **_):
        return not self.is_deputy_busy

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


class Answers(Scene):
    """Threads that wait for answers of their own; one that comes is a byte in the pipe."""

    def __init__(self):
        self.answered = set()
        super().__init__()

    def _take_in(self):
        if not select.select([self.read_fd], [], [], 0)[0]:
            return True
        key = os.read(self.read_fd, 1)[0]
        self.answered.add(key)
        self.wait.wake([key])
        return False

    def ask(self, key):
        """A thread that waits for an answer, and has begun to."""
        thread = threading.Thread(target=self._wait_for_answer, args=(key,), daemon=True)
        count = len(self.wait._sleepers)
        thread.start()
        while not (len(self.wait._sleepers) > count and (count or self.wait.is_polling)):
            os.sched_yield()
        return thread

    def _wait_for_answer(self, key):
        with self.lock:
            assert self.wait.wait_for(key, lambda: key in self.answered, FOREVER)

    def answer(self, key):
        os.write(self.write_fd, bytes([key]))


@pytest.fixture
def answers():
    answers = Answers()
    yield answers
    answers.close()


def test_an_answer_wakes_the_thread_that_asked_and_no_other(answers):
    """A thread that is woken for nothing holds up those that have something to do."""
    reader, *others = [answers.ask(key) for key in range(5)]

    for key, thread in enumerate(others, 1):
        answers.answer(key)
        thread.join(WAIT_S)
        assert answers.wait.woken_count == key
    answers.answer(0)
    reader.join(WAIT_S)

    assert answers.wait.woken_count == 4


def test_a_reader_that_leaves_wakes_nobody(answers):
    """The background thread reads from then on, which is woken by what comes."""
    reader, other = answers.ask(0), answers.ask(1)

    answers.answer(0)
    reader.join(WAIT_S)
    assert (answers.wait.woken_count, answers.wait.reader) == (0, None)

    with answers.lock:  # as the background thread
        answers.answer(1)
        answers.wait._take_in()
    other.join(WAIT_S)
    assert answers.wait.woken_count == 1


def test_a_reader_that_leaves_wakes_one_when_the_background_thread_is_busy(answers):
    """It runs callbacks of the application, which may take long; others' answers do not wait."""
    answers.is_deputy_busy = True
    threads = [answers.ask(key) for key in range(3)]

    for key, thread in enumerate(threads):
        answers.answer(key)
        thread.join(WAIT_S)

    assert not any(thread.is_alive() for thread in threads)
    assert answers.wait.woken_count == 2


class _CtrlC(Exception):  # noqa: N818
    """What a signal handler raises."""


def test_ctrl_c_while_another_thread_has_the_lock_leaves_it_there(scene):
    """It was raised out of the lock that the waiting thread took back: that went on without it, and
    gave the other thread's away in the middle of its work."""
    came, errors, pause = threading.Event(), [], threading.Event()
    me = threading.get_ident()

    def interrupted(*_):
        came.set()
        raise _CtrlC

    def work():
        try:
            while not scene.wait.is_polling:
                pause.wait(0.001)
            with scene.lock:
                os.write(scene.write_fd, b"x")  # the reader wakes up, and wants the lock
                pause.wait(0.05)
                signal.pthread_kill(me, signal.SIGUSR1)
                assert came.wait(WAIT_S)
                pause.wait(0.05)
        except BaseException as fault:
            errors.append(fault)
            raise

    before = signal.signal(signal.SIGUSR1, interrupted)
    try:
        other = threading.Thread(target=work, daemon=True)
        other.start()
        with pytest.raises(_CtrlC):
            scene.wait_for()
        other.join(WAIT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not other.is_alive()
    assert errors == []
    with scene.lock:
        assert scene.wait.reader is None
