"""close() over a real socket: what other threads and tasks are told of what they have begun."""

import asyncio
import threading

import pytest
from client_rig import WAIT_S, FakeNode, fake_node, in_thread

import hms
from hms.wire.frames import Kind
from hms.wire.structures import CloseSession, Commit


@pytest.fixture
def node():
    with fake_node() as node:
        yield node


def heard(node: FakeNode, what: object) -> list:
    """The requests or frames of that kind that came."""
    return node.kinds(what) if isinstance(what, Kind) else node.requests(what)


def keep_silent(node: FakeNode, what: object) -> None:
    """Never answer that."""
    node.on[what] = lambda *_: None


def interrupt_close(connection: hms.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """close(), during whose wait Ctrl-C comes."""
    me, wait_for = threading.current_thread(), connection.wait_for

    def interrupted(*step: object) -> bool:
        if threading.current_thread() is me:
            raise KeyboardInterrupt
        return wait_for(*step)

    monkeypatch.setattr(connection, "wait_for", interrupted)
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
