"""The largest legal instance of each command of the protocol, for those who ask what one may cost.

Each is a function of a peer and of how many messages wait; it prepares what the command needs and
gives the command. It is made fresh for each use, so it may be prepared on one node again and again.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from hms.wire import branch_requests as tx
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Action, Kind, SendHead
from hms.wire.packed_messages import ROW, Head, encode_head

__all__ = ["LARGEST", "Command", "Peer", "commands_of_the_protocol"]

Command = tuple[Kind, bytes]
NAME, TEXT = "x" * 255, "t" * 200
LIKES = 64
SELECTOR = " OR ".join(f"text LIKE '%{chr(97 + n % 26)}_%y{n}%'" for n in range(LIKES))
SEND_MESSAGES, SEND_BYTES, OUT_MAX = 1024, 1 << 20, 8192
TRANSACTION_BYTES = 2 << 20
_OF_ONE = 250
"""What a message of a transaction counts, or a little more."""
_handles = count(1000)


class Peer(Protocol):
    """A client by hand."""

    def ask(self, kind: Kind, payload: bytes) -> Any:
        """Send, and wait for the answer."""

    def request(self, request: Any) -> Any:
        """The same, of a request."""

    def wait_for(self, messages: int) -> list[int]:
        """The ids of so many messages, once they are delivered."""


Make = Callable[[Peer, int], Command]
LARGEST: dict[str, Make] = {}


def commands_of_the_protocol() -> set[str]:
    """Every kind of frame that a client sends, and every request."""
    kinds = {kind.name for kind in Kind if kind < Kind.WELCOME}
    return kinds - {Kind.REQUEST.name} | {one.__name__ for one in wire.Request.__args__}


def _is(*names: Any) -> Callable[[Make], Make]:
    def known(make: Make) -> Make:
        for name in names:
            LARGEST[name.name if isinstance(name, Kind) else name.__name__] = make
        return make

    return known


def _asks(request: Any) -> Command:
    return Kind.REQUEST, wire.encode(request)


def pack(count: int, body: bytes = b"", **properties: Any) -> bytes:
    """Messages that are all alike."""
    head = encode_head(Head(properties))
    row = ROW.pack(len(head), len(body), 0, 0, 4, 0, 0, 0)
    return row * count + (head + body) * count


def send(producer: int, first: int, count: int, packed: bytes) -> Command:
    """A SEND of non-persistent messages."""
    head = SendHead(producer, count, first, is_persistent=False)
    return Kind.SEND, frames.encode_send(head, packed)


def fill(peer: Peer, destination: str, messages: int, session: int = 1, kind: str = "queue") -> int:
    """So many messages more wait there; the producer that sent them."""
    producer = next(_handles)
    peer.request(wire.OpenProducer(producer, session, kind, destination))
    for first in range(1, messages + 1, SEND_MESSAGES):
        some = min(SEND_MESSAGES, messages + 1 - first)
        peer.ask(*send(producer, first, some, pack(some, text=TEXT)))
    return producer


def _session(peer: Peer, **options: Any) -> int:
    session = next(_handles)
    peer.request(wire.OpenSession(session, 0 if options else 2, **options))
    return session


def _consumer(peer: Peer, session: int, destination: str, credit: int = 0, **options: Any) -> int:
    consumer = next(_handles)
    peer.request(wire.OpenConsumer(consumer, session, "queue", destination, credit, **options))
    return consumer


def _out(peer: Peer, session: int) -> tuple[int, list[int]]:
    """A consumer that has as much as one may have."""
    fill(peer, "work", OUT_MAX)
    consumer = _consumer(peer, session, "work", OUT_MAX)
    return consumer, peer.wait_for(OUT_MAX)


def _work(peer: Peer, session: int) -> None:
    """A transaction as large as one may be."""
    producer = next(_handles)
    peer.request(wire.OpenProducer(producer, session, "queue", "work"))
    messages = TRANSACTION_BYTES // _OF_ONE // SEND_MESSAGES * SEND_MESSAGES
    for first in range(1, messages, SEND_MESSAGES):
        peer.ask(*send(producer, first, SEND_MESSAGES, pack(SEND_MESSAGES)))


def _branch(peer: Peer) -> tuple[int, bytes]:
    session = _session(peer, is_xa=True)
    xid = bytes([0, 0, 0, 1, 8, 8]) + next(_handles).to_bytes(8, "big") * 2
    peer.request(tx.XaStart(session, xid))
    _work(peer, session)
    return session, xid


def _idle_branch(peer: Peer) -> bytes:
    session, xid = _branch(peer)
    peer.request(tx.XaEnd(session, xid, 0x04000000))
    return xid


@_is(Kind.HELLO)
def _hello(peer: Peer, _: int) -> Command:
    return Kind.HELLO, wire.encode(wire.Hello(1, *[NAME] * 5, secret=b"s" * 64))


@_is(Kind.AUTH)
def _auth(peer: Peer, _: int) -> Command:
    return Kind.AUTH, wire.encode(wire.Auth("PASSWORD", NAME, b"x" * 16_000))


@_is(Kind.HEARTBEAT)
def _heartbeat(peer: Peer, _: int) -> Command:
    return Kind.HEARTBEAT, b""


@_is(Kind.GOODBYE)
def _goodbye(peer: Peer, _: int) -> Command:
    _out(peer, _session(peer))
    _work(peer, _session(peer, is_transacted=True))
    return Kind.GOODBYE, b""


@_is(Kind.SEND)
def _largest_send(peer: Peer, _: int) -> Command:
    producer = next(_handles)
    peer.request(wire.OpenProducer(producer, 1, "queue", "work"))
    return send(producer, 1, SEND_MESSAGES, pack(SEND_MESSAGES, b"x" * 700, text=TEXT))


@_is(Kind.SETTLE)
def _settle(peer: Peer, _: int) -> Command:
    session = _session(peer)
    consumer, ids = _out(peer, session)
    wide = frames.RANGE.pack(1, (1 << 40) - 5) * (frames.RANGES_MAX - len(ids))
    own = b"".join(frames.RANGE.pack(one, one) for one in ids)
    item = frames.SETTLE_ITEM.pack(Action.FAIL, consumer, 0, frames.RANGES_MAX)
    return Kind.SETTLE, item + wide + own


def _with_body(head: Any) -> bytes:
    return wire.encode_with_body(head, bytes(SEND_BYTES - 1024))


@_is(Kind.CALL)
def _call(peer: Peer, _: int) -> Command:
    return Kind.CALL, _with_body(wire.CallHead(NAME, 1000))


@_is(Kind.RESULT)
def _result(peer: Peer, _: int) -> Command:
    fields = {f"f{n}": TEXT for n in range(200)}
    return Kind.RESULT, _with_body(wire.ResultHead(1, 2, error_number=1001, error_fields=fields))


@_is(Kind.TALK)
def _talk(peer: Peer, _: int) -> Command:
    return Kind.TALK, _with_body(wire.TalkHead(1))


@_is(Kind.NOTICE)
def _notice(peer: Peer, _: int) -> Command:
    return Kind.NOTICE, _with_body(wire.NoticeHead(2))


@_is(Kind.SCHEDULE)
def _schedule(peer: Peer, _: int) -> Command:
    producer = next(_handles)
    peer.request(wire.OpenProducer(producer, 1, "queue", "work"))
    head = wire.ScheduleHead(producer, f"s{next(_handles)}", every_ms=1 << 40, first_ms=1 << 41)
    body = pack(1, bytes(SEND_BYTES - 70_000), text="x" * 60_000)
    return Kind.SCHEDULE, wire.encode_with_body(head, body)


@_is(Kind.FILE)
def _file(peer: Peer, _: int) -> Command:
    return Kind.FILE, _with_body(wire.FileBlock(1, 0))


@_is(wire.OpenSession)
def _open_session(peer: Peer, _: int) -> Command:
    return _asks(wire.OpenSession(next(_handles), 0, is_xa=True, xid=b"x" * 134))


@_is(wire.CloseSession)
def _close_session(peer: Peer, _: int) -> Command:
    session = _session(peer)
    _out(peer, session)
    return _asks(wire.CloseSession(session))


@_is(wire.OpenProducer)
def _open_producer(peer: Peer, _: int) -> Command:
    return _asks(wire.OpenProducer(next(_handles), 1, "topic", "news", NAME, "a/" * 100 + "b"))


@_is(wire.CloseProducer)
def _close_producer(peer: Peer, _: int) -> Command:
    return _asks(wire.CloseProducer(fill(peer, "work", 1)))


@_is(wire.CreateTemporary)
def _create_temporary(peer: Peer, _: int) -> Command:
    return _asks(wire.CreateTemporary("queue"))


@_is(wire.DeleteTemporary)
def _delete_temporary(peer: Peer, waiting: int) -> Command:
    name = peer.request(wire.CreateTemporary("queue"))["name"]
    fill(peer, name, waiting)
    return _asks(wire.DeleteTemporary("queue", name))


@_is(wire.OpenConsumer)
def _open_consumer(peer: Peer, waiting: int) -> Command:
    fill(peer, "long", waiting)
    return _asks(wire.OpenConsumer(next(_handles), 1, "queue", "long", OUT_MAX, NAME, SELECTOR))


@_is(wire.RequestRetained)
def _request_retained(peer: Peer, _: int) -> Command:
    consumer = next(_handles)
    peer.request(wire.OpenConsumer(consumer, 1, "topic", "news", 100, retained="REQUEST"))
    return _asks(wire.RequestRetained(consumer))


@_is(wire.Poll)
def _poll(peer: Peer, waiting: int) -> Command:
    fill(peer, "long", waiting)
    return _asks(wire.Poll(_consumer(peer, 1, "long", 0, selector=SELECTOR)))


@_is(wire.CloseConsumer)
def _close_consumer(peer: Peer, _: int) -> Command:
    return _asks(wire.CloseConsumer(_out(peer, _session(peer))[0]))


@_is(wire.Unsubscribe)
def _unsubscribe(peer: Peer, waiting: int) -> Command:
    consumer, name = next(_handles), f"durable{next(_handles)}"
    peer.request(wire.OpenConsumer(consumer, 1, "topic", "news", 0, durable=name))
    peer.request(wire.CloseConsumer(consumer))
    fill(peer, "news", waiting, kind="topic")
    return _asks(wire.Unsubscribe("news", name))


@_is(wire.Commit)
def _commit(peer: Peer, _: int) -> Command:
    session = _session(peer, is_transacted=True)
    _work(peer, session)
    return _asks(wire.Commit(session, 1))


@_is(wire.Rollback)
def _rollback(peer: Peer, _: int) -> Command:
    session = _session(peer, is_transacted=True)
    consumer, ids = _out(peer, session)
    item = frames.SETTLE_ITEM.pack(Action.ACKNOWLEDGE, consumer, 0, 1)
    peer.ask(Kind.SETTLE, item + frames.RANGE.pack(min(ids), max(ids)))
    return _asks(wire.Rollback(session))


@_is(wire.Recover)
def _recover(peer: Peer, _: int) -> Command:
    session = _session(peer)
    _out(peer, session)
    return _asks(wire.Recover(session))


@_is(wire.Browse)
def _browse(peer: Peer, waiting: int) -> Command:
    fill(peer, "long", waiting)
    return _asks(wire.Browse("long", SELECTOR, is_oldest_first=False, count_max=1000))


@_is(wire.Advertise)
def _advertise(peer: Peer, _: int) -> Command:
    return _asks(wire.Advertise(f"s{next(_handles)}", NAME))


@_is(wire.Unadvertise)
def _unadvertise(peer: Peer, _: int) -> Command:
    service = f"s{next(_handles)}"
    peer.request(wire.Advertise(service))
    return _asks(wire.Unadvertise(service))


@_is(wire.AskOutcome)
def _ask_outcome(peer: Peer, _: int) -> Command:
    return _asks(wire.AskOutcome("hms1." + "A" * 1000))


@_is(wire.Watch)
def _watch(peer: Peer, _: int) -> Command:
    return _asks(wire.Watch("queue", "long"))


@_is(wire.Administer)
def _administer(peer: Peer, waiting: int) -> Command:
    fill(peer, "long", waiting)
    return _asks(wire.Administer("queue.purge", {"name": "long"}))


@_is(wire.OpenFile)
def _open_file(peer: Peer, _: int) -> Command:
    return _asks(wire.OpenFile(next(_handles), 1 << 30))


@_is(wire.CloseFile)
def _close_file(peer: Peer, _: int) -> Command:
    return _asks(wire.CloseFile(next(_handles), 1 << 30, "0" * 64))


@_is(wire.ReadFile)
def _read_file(peer: Peer, _: int) -> Command:
    return _asks(wire.ReadFile("f" * 255, 0, 256 << 10))


@_is(tx.XaStart)
def _xa_start(peer: Peer, _: int) -> Command:
    xid = bytes([0, 0, 0, 1, 64, 64]) + b"g" * 120 + next(_handles).to_bytes(8, "big")
    return _asks(tx.XaStart(_session(peer, is_xa=True), xid, 0, 1000))


@_is(tx.XaEnd)
def _xa_end(peer: Peer, _: int) -> Command:
    session, xid = _branch(peer)
    return _asks(tx.XaEnd(session, xid, 0x20000000))


@_is(tx.XaTake)
def _xa_take(peer: Peer, _: int) -> Command:
    return _asks(tx.XaTake(_session(peer, is_xa=True), 1))


@_is(tx.XaPrepare)
def _xa_prepare(peer: Peer, _: int) -> Command:
    return _asks(tx.XaPrepare(_idle_branch(peer)))


@_is(tx.XaCommit)
def _xa_commit(peer: Peer, _: int) -> Command:
    return _asks(tx.XaCommit(_idle_branch(peer), is_one_phase=True))


@_is(tx.XaRollback)
def _xa_rollback(peer: Peer, _: int) -> Command:
    return _asks(tx.XaRollback(_idle_branch(peer)))


@_is(tx.XaForget)
def _xa_forget(peer: Peer, _: int) -> Command:
    return _asks(tx.XaForget(b"x" * 134))


@_is(tx.XaRecover)
def _xa_recover(peer: Peer, _: int) -> Command:
    return _asks(tx.XaRecover(0, 1000))


def _decided(peer: Peer) -> bytes:
    gtrid = next(_handles).to_bytes(8, "big") * 8
    peer.request(tx.BeginGlobal(gtrid))
    peer.request(tx.Decide(gtrid, bytes(48 << 10)))
    return gtrid


@_is(tx.BeginGlobal)
def _begin_global(peer: Peer, _: int) -> Command:
    return _asks(tx.BeginGlobal(next(_handles).to_bytes(8, "big") * 8, 1 << 40, NAME))


@_is(tx.Decide)
def _decide(peer: Peer, _: int) -> Command:
    gtrid, xid = next(_handles).to_bytes(8, "big") * 8, _idle_branch(peer)
    peer.request(tx.BeginGlobal(gtrid))
    return _asks(tx.Decide(gtrid, bytes(40 << 10), [xid]))


@_is(tx.EndGlobal)
def _end_global(peer: Peer, _: int) -> Command:
    return _asks(tx.EndGlobal(_decided(peer)))


@_is(tx.AskDecision)
def _ask_decision(peer: Peer, _: int) -> Command:
    return _asks(tx.AskDecision(_decided(peer)))


@_is(tx.ForgetDecision)
def _forget_decision(peer: Peer, _: int) -> Command:
    return _asks(tx.ForgetDecision(_decided(peer)))


@_is(tx.NoteDecision)
def _note(peer: Peer, _: int) -> Command:
    return _asks(tx.NoteDecision(_decided(peer), bytes(48 << 10)))


@_is(tx.ListDecisions)
def _list_decisions(peer: Peer, _: int) -> Command:
    for _ in range(20):
        _decided(peer)
    return _asks(tx.ListDecisions(0, 200))


@_is(tx.ListActive)
def _list_active(peer: Peer, _: int) -> Command:
    for _ in range(100):
        peer.request(tx.BeginGlobal(next(_handles).to_bytes(8, "big") * 8, 0, NAME))
    return _asks(tx.ListActive())
