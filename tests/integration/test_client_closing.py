"""close() over a real socket: what other threads and tasks are told of what they have begun."""

import asyncio
import threading

import pytest
from client_rig import WAIT_S, FakeNode, in_thread, patient

import hms
from hms.client.core import requests
from hms.wire.frames import Kind
from hms.wire.structures import CloseSession, Commit


def heard(node: FakeNode, what: object) -> list:
    """The requests or frames of that kind that came."""
    return node.kinds(what) if isinstance(what, Kind) else node.requests(what)


def keep_silent(node: FakeNode, what: object) -> None:
    """Never answer that."""
    node.on[what] = lambda *_: None


def interrupt_close(connection: hms.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """close(), during whose wait Ctrl-C comes."""
    me, wait_for = threading.current_thread(), connection.driver.wait_for

    def interrupted(*step: object) -> bool:
        if threading.current_thread() is me:
            raise KeyboardInterrupt
        return wait_for(*step)

    monkeypatch.setattr(connection.driver, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.close()


CASES = pytest.mark.parametrize(
    ("what", "kind", "error"),
    [("send", Kind.SEND, hms.SendInDoubt), ("commit", Commit, hms.CommitInDoubt)],
)


@CASES
def test_an_interrupted_close_leaves_what_others_began_in_doubt(
    node, monkeypatch, what, kind, error
):
    """At once: previously a commit waited on for request_timeout_s, and both were told that the
    connection was closed, though they had taken effect."""
    connection = hms.connect(node.address, request_timeout_s=10 * WAIT_S)
    session = connection.session(transacted=what == "commit")
    producer = session.producer("q")
    if what == "commit":
        producer.send(b"x")
    keep_silent(node, kind)
    ended = in_thread(session.commit if what == "commit" else lambda: producer.send(b"x"))
    node.wait(lambda: heard(node, kind))

    interrupt_close(connection, monkeypatch)

    assert isinstance(ended.get(timeout=WAIT_S), error)


def test_a_future_is_in_doubt_when_close_is_interrupted(node, monkeypatch):
    """The node has the message, and will store it."""
    keep_silent(node, Kind.SEND)
    connection = hms.connect(node.address, request_timeout_s=10 * WAIT_S)
    future = connection.session().producer("q").send_async(b"x")
    node.wait(lambda: node.kinds(Kind.SEND))

    interrupt_close(connection, monkeypatch)

    with pytest.raises(hms.SendInDoubt):
        future.result(WAIT_S)


@CASES
def test_a_cancelled_close_leaves_what_other_tasks_began_in_doubt(node, what, kind, error):
    """The same in an event loop."""

    async def run() -> object:
        connection = await hms.aio.connect(node.address, request_timeout_s=10 * WAIT_S)
        session = connection.session(transacted=what == "commit")
        producer = await session.producer("q")
        if what == "commit":
            await producer.send(b"x")
        keep_silent(node, kind)
        keep_silent(node, CloseSession)
        future = None if what == "commit" else producer.send_async(b"x")
        task = asyncio.create_task(session.commit() if what == "commit" else producer.send(b"x"))
        await asyncio.to_thread(node.wait, lambda: heard(node, kind))
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        if future is not None:
            with pytest.raises(error):
                await future
        return (await asyncio.gather(task, return_exceptions=True))[0]

    assert isinstance(asyncio.run(asyncio.wait_for(run(), WAIT_S)), error)


class Gate:
    """The node answers a kind of frame only when it is opened."""

    def __init__(self, node: FakeNode, kind: Kind) -> None:
        self.reached, self._opened = threading.Event(), threading.Event()
        self._node, self._kind = node, kind
        node.on[kind] = self._answer

    def _answer(self, payload: bytes):
        self.reached.set()
        assert self._opened.wait(WAIT_S)
        return self._node._usual(self._kind, None, payload)

    def open(self) -> None:
        """Answer from now on."""
        self._opened.set()


def closing_of(session: hms.Session, whole: str):
    """What is closed: the session, or its connection."""
    return session if whole == "session" else session.connection


@pytest.mark.parametrize("whole", ["session", "connection"])
def test_nothing_new_is_taken_while_close_waits(node, whole):
    """Previously close() waited for what others went on to send, for as long as they did."""
    connection = hms.connect(node.address, request_timeout_s=WAIT_S)
    session = connection.session()
    producer, consumer = session.producer("q"), session.consumer("q")
    gate = Gate(node, Kind.SEND)
    before = in_thread(lambda: producer.send(b"x"))
    assert gate.reached.wait(WAIT_S)
    waiting = in_thread(consumer.receive)
    closed = in_thread(closing_of(session, whole).close)

    assert isinstance(waiting.get(timeout=WAIT_S), hms.ConnectionClosed)
    others = [
        lambda: producer.send(b"late"),
        lambda: producer.send_async(b"late"),
        lambda: producer.send_many([b"late"]),
        lambda: consumer.receive(0),
        lambda: session.producer("q"),
        lambda: session.send("q", b"late"),
    ]
    for other in [*others, connection.session] if whole == "connection" else others:
        with pytest.raises(hms.ConnectionClosed, match=whole):
            other()

    gate.open()
    assert isinstance(before.get(timeout=WAIT_S), hms.Receipt)
    assert closed.get(timeout=WAIT_S) is None
    assert len(node.kinds(Kind.SEND)) == 1
    connection.close()


@pytest.mark.parametrize("whole", ["session", "connection"])
def test_a_running_listener_may_finish_while_close_waits_for_it(node, whole):
    """Its message is half done: what it sends is part of what close() waits for."""
    connection = hms.connect(node.address, request_timeout_s=WAIT_S)
    session = connection.session(transacted=True)
    producer, consumer = session.producer("out"), session.consumer("q")
    running, may_end = threading.Event(), threading.Event()

    def listener(_message: hms.Message) -> None:
        running.set()
        assert may_end.wait(WAIT_S)
        producer.send(b"out")
        session.commit()

    consumer.listen(listener)
    node.deliver((1, b"in"))
    assert running.wait(WAIT_S)
    waiting = in_thread(session.consumer("other").receive)
    closed = in_thread(closing_of(session, whole).close)
    assert isinstance(waiting.get(timeout=WAIT_S), hms.ConnectionClosed)
    with pytest.raises(hms.ConnectionClosed):
        producer.send(b"of another thread")

    may_end.set()

    assert closed.get(timeout=WAIT_S) is None
    assert len(node.kinds(Kind.SEND)) == len(node.requests(Commit)) == 1
    connection.close()


@pytest.mark.parametrize("whole", ["session", "connection"])
def test_nothing_new_is_taken_while_close_waits_in_asyncio(node, whole):
    """The same for tasks, and a listener that runs."""

    async def run() -> None:
        connection = await hms.aio.connect(node.address, request_timeout_s=WAIT_S)
        session = await connection.session(transacted=True)
        producer, consumer = await session.producer("out"), await session.consumer("q")
        other = await session.consumer("other")
        running, may_end = asyncio.Event(), asyncio.Event()

        async def listener(_message: hms.Message) -> None:
            running.set()
            await may_end.wait()
            await producer.send(b"out")
            await session.commit()

        consumer.listen(listener)
        number = min(node.consumers)
        await asyncio.to_thread(node.deliver, (1, b"in"), consumer=number)
        await running.wait()
        waiting = asyncio.create_task(other.receive())
        await asyncio.sleep(0)
        closed = asyncio.create_task(closing_of(session, whole).close())
        with pytest.raises(hms.ConnectionClosed):
            await waiting
        for late in [producer.send, lambda _: session.commit(), lambda _: other.receive(0)]:
            with pytest.raises(hms.ConnectionClosed):
                await late(b"late")
        may_end.set()
        await closed
        assert len(node.kinds(Kind.SEND)) == len(node.requests(Commit)) == 1
        await connection.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


def test_what_a_silent_node_does_not_answer_in_time_is_in_doubt(node):
    """The future of send_async() has a time too; previously it stayed open until close(), which
    told it that the connection was closed, though the message is stored."""
    connection = hms.connect(node.address, request_timeout_s=0.1)
    with patient(connection):
        producer = connection.session().producer("q")
        transacted = connection.session(transacted=True)
        transacted.producer("q").send(hms.Message(b"x"))
    keep_silent(node, Kind.SEND)
    keep_silent(node, Commit)

    future = producer.send_async(b"x")

    with pytest.raises(hms.SendInDoubt):
        future.result(WAIT_S)
    with pytest.raises(hms.SendInDoubt):
        producer.send(b"x")
    with pytest.raises(hms.CommitInDoubt):
        transacted.commit()
    connection.close()


def test_what_a_silent_node_does_not_answer_in_time_is_in_doubt_in_asyncio(node):
    """The same of an event loop's futures."""

    async def run() -> None:
        connection = await hms.aio.connect(node.address, request_timeout_s=0.1)
        with patient(connection):
            producer = await connection.session().producer("q")
        keep_silent(node, Kind.SEND)
        for begun in [producer.send_async(b"x"), producer.send(b"x")]:
            with pytest.raises(hms.SendInDoubt):
                await begun
        await connection.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


@pytest.fixture
def hurry(monkeypatch):
    """The 5 s of a close, shortened."""
    monkeypatch.setattr(requests, "LEAVE_S", 0.02)


def test_close_does_not_wait_for_a_send_that_was_interrupted(node, monkeypatch, hurry):
    """Ctrl-C in a send to a full queue, then close(): previously it took request_timeout_s."""
    connection = hms.connect(node.address, request_timeout_s=10 * WAIT_S)
    producer = connection.session().producer("q")
    keep_silent(node, Kind.SEND)

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection.driver, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"x")

    assert in_thread(connection.close).get(timeout=WAIT_S) is None


def test_a_block_that_an_exception_leaves_does_not_wait_for_long(node, hurry):
    """Whoever presses Ctrl-C wants the program to end; the futures say what is in doubt."""
    keep_silent(node, Kind.SEND)
    futures = []

    def work() -> None:
        with (
            hms.connect(node.address, request_timeout_s=10 * WAIT_S) as connection,
            connection.session() as session,
            session.producer("q") as producer,
        ):
            futures.append(producer.send_async(b"x"))
            raise hms.HmsError

    assert isinstance(in_thread(work).get(timeout=WAIT_S), hms.HmsError)
    assert isinstance(futures[0].exception(0), hms.SendInDoubt)


def test_a_block_that_an_exception_leaves_does_not_wait_for_long_in_asyncio(node, hurry):
    """The same of a task that is cancelled."""
    keep_silent(node, Kind.SEND)

    async def run() -> None:
        futures = []

        async def work() -> None:
            async with (
                hms.aio.connect(node.address, request_timeout_s=10 * WAIT_S) as connection,
                connection.session() as session,
                session.producer("q") as producer,
            ):
                futures.append(producer.send_async(b"x"))
                raise LookupError

        with pytest.raises(LookupError):
            await work()
        with pytest.raises(hms.SendInDoubt):
            await futures[0]

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


@pytest.mark.parametrize("what", ["session", "connection"])
def test_close_does_not_wait_for_a_node_that_is_not_there(node, hurry, what):
    """It may never come back; what had left is in doubt."""
    keep_silent(node, Kind.SEND)
    connection = hms.connect(node.address, request_timeout_s=10 * WAIT_S)
    session = connection.session()
    future = session.producer("q").send_async(b"x")
    node.wait(lambda: node.kinds(Kind.SEND))
    node.drop()

    assert in_thread(closing_of(session, what).close).get(timeout=WAIT_S) is None
    assert in_thread(connection.close).get(timeout=WAIT_S) is None

    with pytest.raises(hms.SendInDoubt):
        future.result(WAIT_S)
