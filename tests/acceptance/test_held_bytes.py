"""Each way to make a node hold bytes, as much of it as a client can ask for: its peak in memory
stays below max_memory_bytes and 256 MiB, and others are served.

A part of the ways runs always, at a twentieth of its size. All of them, in full:

    HMS_HELD_BYTES=full python -m pytest tests/acceptance/test_held_bytes.py
"""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

import hms
from hms.testing import node
from hms.wire import branch_requests as tx
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from hms.wire.packed_messages import ROW, Head, encode_head
from tests.support import zmtp
from tests.support.hello import hello_of
from tests.support.hostile import Hostile, pack

IS_FULL = os.environ.get("HMS_HELD_BYTES") == "full"
SIZE = 1 if IS_FULL else 20
MIB = 1 << 20
MEMORY = 64 * MIB
HELD_MAX = MEMORY + 256 * MIB
PAGED_BYTES = 340
"""What a message whose body is in the log only takes beside that; there may be max_paged_messages
of them, 4,000,000 unless set."""
CONFIG = {
    "node": {
        "node1": {
            "max_memory_bytes": "64 MiB",
            "max_message_bytes": "16 MiB",
            "segment_bytes": "64 MiB",
            "max_pending_bytes": "32 MiB",
            "heartbeat_s": 30,
        }
    },
    "hms": {
        "queue": {
            "orders": {},
            "full": {"max_messages": 1, "limit_behavior": "FLOW_CONTROL"},
            "gather": {"message_group": "GATHER"},
        },
        "topic": {"news": {}},
    },
}
POSTED = 1 << 31
"""Correlates what nobody waits for; the answer to what comes behind it tells of it."""
PATIENT = {"connect_timeout_s": 60, "request_timeout_s": 60}
"""The node has much to read before."""
BIG = bytes(8 * MIB)
MEDIUM = bytes(MIB)


def _open(peer, session=1, producer=1, kind="queue", name="orders", **session_options):
    assert peer.request(wire.OpenSession(session, 0, **session_options))
    assert peer.request(wire.OpenProducer(producer, session, kind, name))


def lane(running, stack):
    """Frames that stand behind a log that is slow."""
    for _ in range(4):
        peer = stack.enter_context(Hostile(running.address))
        _open(peer)
        for n in range(200 // SIZE):
            head = frames.SendHead(1, 1, n + 1, is_persistent=True)
            peer.post(Kind.SEND, frames.encode_send(head, pack(BIG)), n + 1)
        stack.enter_context(Hostile(running.address))


def unread_pages(running, stack):
    """A peer that browses and does not read."""
    with hms.connect(running.address) as conn, conn.session() as session:
        session.producer("orders").send(BIG)
    for n in range(4):
        raw = stack.enter_context(_raw(running, n))
        for k in range(200 // SIZE):
            _say(raw, Kind.REQUEST, wire.encode(wire.Browse("orders", count_max=1)), k + 2)


def unread_publications(running, stack):
    """Subscribers with the largest windows that do not read."""
    for n in range(20 if IS_FULL else 2):
        raw = stack.enter_context(_raw(running, n))
        _say(raw, Kind.REQUEST, wire.encode(wire.OpenSession(1, 2)), 2)
        _say(raw, Kind.REQUEST, wire.encode(wire.OpenConsumer(2, 1, "topic", "news", 8192)), 3)
    with hms.connect(running.address) as conn, conn.session() as session:
        producer = session.producer(hms.Topic("news"))
        for _ in range(200 // SIZE):
            try:
                producer.send(MEDIUM, persistent=False)
            except hms.HmsError:
                break


def unfinished(running, stack):
    """Frames without their last byte, on many connections."""
    envelope, payload = frame(Kind.SEND, BIG + BIG, 9)
    whole = zmtp.part(envelope, is_last=False) + zmtp.part(payload, is_last=True)
    for n in range(100 // SIZE):
        raw = stack.enter_context(_raw(running, n))
        try:
            raw.sendall(whole[:-1])
        except (BrokenPipeError, ConnectionResetError):
            continue


def without_end(running, stack):
    """A message of ever more parts, from one who has said HELLO, and from one who has not."""
    piece = zmtp.part(MEDIUM, is_last=False)
    for raw in (_raw(running, 1), zmtp.connect(running.address)):
        stack.enter_context(raw)
        try:
            for _ in range(1500 // SIZE):
                raw.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            continue


def open_transactions(running, stack):
    """60 sessions with a transaction of 30 MiB each."""
    peer = stack.enter_context(Hostile(running.address))
    for n in range(1, 60 // SIZE + 1):
        _open(peer, n, 1000 + n, is_transacted=True)
        for k in range(30):
            if not peer.send(1000 + n, k + 1, MEDIUM, persistent=True):
                break


def prepared_branches(running, stack):
    """Branches that have voted are there until somebody completes them."""
    peer = stack.enter_context(Hostile(running.address))
    _open(peer, is_xa=True)
    sequence = 0
    for n in range(300 // SIZE):
        xid = bytes([0, 0, 0, 1, 4, 1]) + b"%04d" % n + b"b"
        peer.request(tx.XaStart(1, xid))
        for _ in range(2):
            sequence += 1
            peer.send(1, sequence, MEDIUM, persistent=True)
        peer.request(tx.XaEnd(1, xid, 0x04000000))
        peer.request(tx.XaPrepare(xid))


def decisions(running, stack):
    """Nobody forgets them."""
    peer = stack.enter_context(Hostile(running.address))
    for n in range(10_000 // SIZE):
        peer.request(tx.BeginGlobal(b"g%d" % n))
        if not peer.request(tx.Decide(b"g%d" % n, bytes(48 << 10))):
            break


def calls(running, stack):
    """Calls of a service whose server does not answer."""
    server = stack.enter_context(Hostile(running.address))
    assert server.request(wire.Advertise("SLOW"))
    for _ in range(4):
        peer = stack.enter_context(Hostile(running.address))
        for n in range(200 // SIZE):
            head = wire.CallHead("SLOW", 600_000)
            peer.post(Kind.CALL, wire.encode_with_body(head, BIG), n + 1)
        stack.enter_context(Hostile(running.address))


def retained(running, stack):
    """A publication for each of many topics."""
    with hms.connect(running.address) as conn, conn.session() as session:
        for n in range(600 // SIZE):
            try:
                topic = hms.Topic(f"news/{n}")
                session.producer(topic).send(MEDIUM, retain=True, persistent=False)
            except hms.HmsError:
                break


def temporaries(running, stack):
    """Messages in queues that a connection made for itself."""
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    with hms.connect(running.address) as conn, conn.session() as session:
        for _ in range(600 // SIZE):
            queue = session.temporary_queue()
            try:
                session.producer(queue).send(MEDIUM, persistent=False)
            except hms.HmsError:
                break


def selectors(running, stack):
    """As many subscriptions as there may be, with the longest selectors."""
    text = " OR ".join(f"a{n} = {n}" for n in range(500))
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    for n in range(20_000 // SIZE):
        if not peer.request(
            wire.OpenConsumer(n + 2, 1, "topic", "news", 0, "", f"{text} OR b={n}")
        ):
            break


def likes(running, stack):
    """Subscriptions whose selectors take most for each of their characters."""
    text = f"a LIKE '{'%x' * 4000}"
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    for n in range(2_000 // SIZE):
        if not peer.request(wire.OpenConsumer(n + 2, 1, "topic", "news", 0, "", f"{text}{n}'")):
            break


def scans(running, stack):
    """Consumers with selectors at a queue in which many messages wait."""
    peer = stack.enter_context(Hostile(running.address))
    _open(peer)
    for n in range(100 // SIZE):
        assert peer.send(1, 1000 * n + 1, *[b"x"] * 1000, persistent=True)
    for n in range(1_000 // SIZE):
        where = "a = 1" if n % 2 else "a IS NULL"
        selector = f"{where} OR b = {n}"
        if not peer.request(wire.OpenConsumer(n + 2, 1, "queue", "orders", 0, "", selector)):
            break


def taken_from_behind(running, stack):
    """Large messages that a selector takes from behind one that nobody takes."""
    conn = stack.enter_context(hms.connect(running.address))
    session = stack.enter_context(conn.session(ack=hms.AckMode.CLIENT))
    producer = session.producer("orders")
    producer.send(b"nobody's")
    consumer = session.consumer("orders", selector="mine")
    for _ in range(900 // SIZE):
        producer.send(MEDIUM, {"mine": True}, persistent=False)
        consumer.receive(timeout_s=60).ack()


def long_topics(running, stack):
    """Topic strings that are as long as they may be, each of them new."""
    for p in range(2):
        peer = stack.enter_context(Hostile(running.address))
        assert peer.request(wire.OpenSession(1, 2))
        for n in range(70_000 // SIZE):
            topic = f"{p}.{n}" + "x" * 10_200
            if not peer.request(wire.OpenProducer(n + 2, 1, "topic", "news", "", topic)):
                break


def long_topics_in_turn(running, stack):
    """The same, each closed before the next one is published on."""
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    for n in range(70_000 // SIZE):
        topic = f"{n}" + "x" * 10_200
        opening = wire.OpenProducer(n + 2, 1, "topic", "news", "", topic)
        peer.post(Kind.REQUEST, wire.encode(opening), POSTED)
        head = frames.SendHead(n + 2, 1, 1, is_persistent=False)
        peer.post(Kind.SEND, frames.encode_send(head, pack(b"x")), POSTED)
        assert peer.request(wire.CloseProducer(n + 2)), "the producer was not opened"


def subscriptions(running, stack):
    """Subscriptions that are not durable, to one long topic, and to patterns of many levels."""
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    for n in range(60_000 // SIZE):
        topic = "x" * 10_000 if n % 2 else f"{n}/" + "#/ab/" * 120
        if not peer.request(wire.OpenConsumer(n + 2, 1, "topic", "news", 0, topic=topic)):
            break


def durables(running, stack):
    """Durable subscriptions with long topics, which stay when their client leaves."""
    for p in range(4):
        with Hostile(running.address) as peer:
            assert peer.request(wire.OpenSession(1, 2))
            for n in range(2_000 // SIZE):
                topic, name = f"{p}.{n}" + "x" * 10_000, f"d{p}.{n}"
                where = f"b = '{'y' * 7000}{n}'"
                wanted = wire.OpenConsumer(
                    n + 2, 1, "topic", "news", 0, "", where, durable=name, topic=topic
                )
                if not peer.request(wanted):
                    break
                peer.request(wire.CloseConsumer(n + 2))


def queues(running, stack):
    """Queues take little in the log, and more in memory."""
    for p in range(4):
        peer = stack.enter_context(Hostile(running.address))
        for n in range(10_000 // SIZE):
            if not peer.request(wire.Administer("queue.create", {"name": f"q{p}.{n}"})):
                break


def empties(running, stack):
    """Messages without a body, as many as may wait; see PAGED_BYTES."""
    peer = stack.enter_context(Hostile(running.address))
    _open(peer)
    for n in range(4_300 // SIZE):
        if not peer.send(1, 1000 * n + 1, *[b""] * 1000, persistent=True):
            break


def producers(running, stack):
    """Producers that never send."""
    peer = stack.enter_context(Hostile(running.address))
    assert peer.request(wire.OpenSession(1, 2))
    for n in range(200_000 // SIZE):
        if not peer.request(wire.OpenProducer(n + 2, 1, "queue", "orders", "n" * 255)):
            break


def watches(running, stack):
    """Destinations that are watched, and do not exist."""
    peer = stack.enter_context(Hostile(running.address))
    for n in range(100_000 // SIZE):
        if not peer.request(wire.Watch("queue", f"{n}" * 40)):
            break


def waits_for_room(running, stack):
    """Sends to a queue that is full."""
    for _ in range(40 if IS_FULL else 2):
        peer = stack.enter_context(Hostile(running.address))
        _open(peer, name="full")
        for n in range(40 // SIZE):
            head = frames.SendHead(1, 1, n + 1, is_persistent=True)
            peer.post(Kind.SEND, frames.encode_send(head, pack(MEDIUM)), n + 1)
        stack.enter_context(Hostile(running.address))


def unfinished_groups(running, stack):
    """Groups that wait for their last message."""
    peer = stack.enter_context(Hostile(running.address))
    _open(peer, name="gather")
    for n in range(600 // SIZE):
        head = encode_head(Head(properties={"JMSXGroupID": f"g{n}", "JMSXGroupSeq": 1}))
        row = ROW.pack(len(head), len(MEDIUM), 0, 0, 4, 0, 0, 0)
        sent = frames.encode_send(
            frames.SendHead(1, 1, n + 1, is_persistent=False), row + head + MEDIUM
        )
        answer = peer.ask(Kind.SEND, sent)
        if answer is None or answer[0] is not Kind.CONFIRM:
            break


def groups(running, stack):
    """Messages each of which is a group of its own."""
    peer = stack.enter_context(Hostile(running.address))
    _open(peer)
    for n in range(1_000 // SIZE):
        heads = [encode_head(Head(properties={"JMSXGroupID": f"{n}.{k}"})) for k in range(500)]
        rows = b"".join(ROW.pack(len(head), 0, 0, 0, 4, 0, 0, 0) for head in heads)
        said = frames.SendHead(1, 500, 500 * n + 1, is_persistent=False)
        sent = frames.encode_send(said, rows + b"".join(heads))
        answer = peer.ask(Kind.SEND, sent, 500)
        if answer is None or answer[0] is not Kind.CONFIRM:
            break


def schedules(running, stack):
    """Each keeps its message."""
    with hms.connect(running.address) as conn, conn.session() as session:
        producer = session.producer("orders")
        for n in range(600 // SIZE):
            try:
                producer.schedule(f"s{n}", MEDIUM, every_s=86_400)
            except hms.HmsError:
                break


def file_blocks(running, stack):
    """Blocks of files that come faster than they are written."""
    for _ in range(8 if IS_FULL else 1):
        peer = stack.enter_context(Hostile(running.address))
        for handle in range(1, 9):
            peer.request(wire.OpenFile(handle, 1 << 30))
        for n in range(100 // SIZE):
            for handle in range(1, 9):
                block = wire.encode_with_body(wire.FileBlock(handle, n * MIB), MEDIUM)
                peer.post(Kind.FILE, block, n + 20)
        stack.enter_context(Hostile(running.address))


ALWAYS = [unread_pages, unfinished, calls, decisions]
WAYS = [
    *ALWAYS,
    lane,
    unread_publications,
    without_end,
    open_transactions,
    prepared_branches,
    retained,
    temporaries,
    selectors,
    likes,
    scans,
    taken_from_behind,
    long_topics,
    long_topics_in_turn,
    subscriptions,
    durables,
    queues,
    empties,
    producers,
    watches,
    waits_for_room,
    unfinished_groups,
    groups,
    schedules,
    file_blocks,
]


@pytest.mark.timeout(600 if IS_FULL else 300)
@pytest.mark.parametrize("way", WAYS if IS_FULL else ALWAYS, ids=lambda way: way.__name__)
def test_a_node_holds_no_more_than_it_may(way, tmp_path, record_property):
    """2.9 GiB on a lane, 1.5 in a frame without end, 1.7 for a peer that does not read."""
    prefix = []
    if way is lane:
        assert shutil.which("strace"), "scripts/test installs it"
        slow = "inject=fdatasync:delay_enter=2000000:when=8+"
        prefix = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", slow]
    with node(store=tmp_path / "store", config=CONFIG, command_prefix=prefix) as running:
        Path(f"/proc/{running.pid}/clear_refs").write_text("5")
        with ExitStack() as stack:
            way(running, stack)
            with hms.connect(running.address, **PATIENT) as conn:
                assert conn.administer("status")["node"] == "node1"
            peak = _peak(running.pid)
        record_property("peak MiB", peak >> 20)
        print(f"{way.__name__}: {peak >> 20} MiB")
        with hms.connect(running.address, **PATIENT) as conn:
            assert conn.administer("status")["node"] == "node1"
    assert peak < HELD_MAX + (PAGED_BYTES * 4_000_000 if way is empties else 0)


def _peak(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return kib << 10


def _raw(running, number):
    raw = zmtp.connect(running.address)
    _say(raw, Kind.HELLO, wire.encode(hello_of(number)), 1)
    raw.recv(1)
    return raw


def _say(raw, kind, payload, correlation):
    envelope, body = frame(kind, payload, correlation)
    raw.sendall(zmtp.part(envelope, is_last=False) + zmtp.part(body, is_last=True))
