"""Which threads of a client an answer wakes, on a real node: the one that asked, and no other."""

import os
import threading
from time import monotonic

import hms
from hms.client.core.background_thread import BackgroundThread
from hms.client.core.heartbeat import Heartbeat
from hms.client.core.socket_wait import AWAY_S, SocketWait
from hms.client.core.transport_loop import TransportLoop
from hms.wire.branch_requests import AskDecision, ForgetDecision
from tpmon.tx.connection_place import Blocking

CONFIG = "[hms.queue.q]\n[node.n1]\nheartbeat_s = 600\n"
"""No heartbeat falls due, however slowly a test goes."""
THREADS, SENDS = 8, 40
WAIT_S = 60


def _send(producer: hms.Producer) -> None:
    for _ in range(SENDS):
        producer.send(b"x")


def _sending(session: hms.Session, count: int) -> list[threading.Thread]:
    """Threads that send, each with a producer of its own."""
    producers = [session.producer("queue:q", persistent=True) for _ in range(count)]
    threads = [threading.Thread(target=_send, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    return threads


def _are_done(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(WAIT_S)
    return not any(thread.is_alive() for thread in threads)


def test_no_thread_is_woken_more_often_than_it_is_answered(conn, monkeypatch):
    """Eight threads send beside one another. Whoever had read for all used to wake the next one
    when it left, which had no answer yet."""
    slept, woken = [], []
    wake, sleep = SocketWait._wake, SocketWait._sleep
    monkeypatch.setattr(SocketWait, "_wake", lambda *of: (woken.append(1), wake(*of)))
    monkeypatch.setattr(SocketWait, "_sleep", lambda *of: (slept.append(1), sleep(*of)))

    with conn.session() as session:
        before = len(woken)
        assert _are_done(_sending(session, THREADS))

        assert 0 < len(woken) - before == len(slept) <= THREADS * SENDS


def test_threads_get_their_answers_while_a_callback_runs(conn):
    """The background thread runs callbacks, and reads nothing meanwhile."""
    has_begun, may_end = threading.Event(), threading.Event()

    def callback(_future) -> None:
        has_begun.set()
        may_end.wait(WAIT_S)

    with conn.session() as session:
        session.producer("queue:q").send_async(b"x").add_done_callback(callback)
        assert has_begun.wait(WAIT_S)
        assert _are_done(_sending(session, 2))
        assert not may_end.is_set()
        may_end.set()


def test_a_lone_answer_does_not_wake_the_background_thread(conn, monkeypatch):
    """It polled the socket too, woke for each answer and found that another thread reads."""
    turns, turn = [], Heartbeat.turn

    def counted(self, **how):
        turns.append(1)
        return turn(self, **how)

    monkeypatch.setattr(Heartbeat, "turn", counted)
    with conn.session() as session:
        producer = session.producer("queue:q", persistent=True)
        producer.send(b"x")
        background = conn.driver._background
        taken = 0
        for _ in range(5):
            _until_alone(background)
            before = len(turns)
            producer.send(b"x")
            taken += len(turns) - before
            assert background.is_reader

    assert taken == 0


def _until_alone(background: BackgroundThread) -> None:
    """Until the background thread reads, and nobody has waited for a while."""
    deadline = monotonic() + WAIT_S
    while not background.is_reader or monotonic() - background.waiting.last_at <= 2 * AWAY_S:
        assert monotonic() < deadline
        os.sched_yield()


def test_what_is_told_later_goes_with_the_next_frame(conn, monkeypatch):
    """That a global transaction is done with nobody waits for: alone it would wake the node."""
    sent, send = [], TransportLoop._send_outbox
    monkeypatch.setattr(
        TransportLoop,
        "_send_outbox",
        lambda self: (sent.append(len(self.link.outbox)), send(self))[1],
    )
    node = Blocking(conn)
    monkeypatch.setattr("tpmon.tx.connection_place.LATER_S", WAIT_S)
    node.tell_later(ForgetDecision(b"gone"))
    assert sent == []
    node.request(AskDecision(b"gone"))
    assert sent == [2]

    monkeypatch.setattr("tpmon.tx.connection_place.LATER_S", 0.001)
    node.tell_later(ForgetDecision(b"gone"))
    deadline = monotonic() + WAIT_S
    while len(sent) < 2:
        assert monotonic() < deadline
        os.sched_yield()
    assert sent == [2, 1]
