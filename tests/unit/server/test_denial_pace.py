"""The pace of denials: a user that is refused without end costs the others nothing."""

import time

import hms
from hms.server.broker import Lost
from hms.server.logins.denial_pace import (
    DENIALS_AT_ONCE,
    DENIALS_PER_S,
    USERS_MAX,
    WAIT_MS_MAX,
    DenialPace,
)
from hms.wire import structures as wire
from hms.wire.frames import Kind, decode_envelope, frame
from tests.support.gated import GatedNode
from tests.support.secured import document


def test_a_user_waits_for_what_it_has_beyond_its_denials():
    """However many connections it has; others have their own."""
    pace = DenialPace()

    assert not any(pace.denied("u", 0) for _ in range(DENIALS_AT_ONCE))
    assert pace.denied("u", 0) == 1000 // DENIALS_PER_S
    assert pace.denied("u", 0) == 2 * (1000 // DENIALS_PER_S)
    assert pace.denied("v", 0) == 0
    assert pace.denied("u", 1000) == 0


def test_a_wait_ends_and_the_table_is_bounded():
    """A flood makes neither grow."""
    pace = DenialPace()
    for _ in range(100 * DENIALS_PER_S):
        pace.denied("u", 0)

    assert pace.denied("u", 0) == WAIT_MS_MAX
    assert pace.denied("u", WAIT_MS_MAX + 1000 * DENIALS_AT_ONCE // DENIALS_PER_S) == 0
    for number in range(2 * USERS_MAX):
        pace.denied(f"u{number}", 0)
    assert len(pace._buckets) == USERS_MAX


def test_a_connection_that_is_refused_without_end_waits_and_no_other_one():
    """Neither another connection of the user nor one that settles; who has gone is looked at."""
    node = GatedNode(document(u=["consume queue:orders"]))
    for number, peer in enumerate(("wild", "calm"), 1):
        node.login(peer, "u", number)
        node.ask(peer, wire.OpenSession(1))
    items = [asked(Kind.REQUEST, wire.encode(wire.OpenSession(2)))]

    for _ in range(DENIALS_AT_ONCE):
        node.send("wild", Kind.REQUEST, wire.encode(wire.OpenProducer(9, 1, "queue", "ledger")))
    assert not node.broker.must_wait("wild", items)
    for _ in range(DENIALS_PER_S):
        node.send("wild", Kind.REQUEST, wire.encode(wire.OpenProducer(9, 1, "queue", "ledger")))

    assert node.broker.must_wait("wild", items)
    assert not node.broker.must_wait("calm", items)
    assert not node.broker.must_wait("wild", [asked(Kind.SETTLE, b"")])
    node.registry.is_stopping = True  # a node that stops waits for nobody
    assert not node.broker.must_wait("wild", items)
    node.registry.is_stopping = False
    for _ in range(DENIALS_PER_S):
        node.send("wild", Kind.REQUEST, wire.encode(wire.OpenProducer(9, 1, "queue", "ledger")))
    assert node.broker.must_wait("wild", items)
    assert not node.broker.must_wait("wild", [*items, Lost("gone")])


def test_a_user_that_floods_by_ever_new_connections_gets_no_new_one():
    """Until a little is forgotten; another user comes in."""
    node = GatedNode(document(u=[], v=[]))
    node.login("p", "u", 1)
    node.ask("p", wire.OpenSession(1))
    denied = wire.encode(wire.OpenProducer(9, 1, "queue", "ledger"))
    for _ in range(DENIALS_AT_ONCE + 10 * DENIALS_PER_S):
        node.send("p", Kind.REQUEST, denied)

    node.hello("q", 2)
    ((_, said),) = node.auth("q", "u")
    assert isinstance(wire.decode_error(said), hms.LoginBusy)
    assert node.login("r", "v", 3).user == "v"
    node.now_ms += 1_500
    assert node.login("s", "u", 4).user == "u"


def asked(kind, payload):
    envelope, data = frame(kind, payload, 1)
    return decode_envelope((envelope, data), 1 << 20), data


def test_who_went_with_its_last_refusal_is_forgotten():
    """Its lane brings nothing more, so that nobody else would take it away."""
    node = GatedNode(document(u=["consume queue:orders"]))
    node.broker.slowed.update(gone=time.monotonic() - 1, waiting=time.monotonic() + 3600)

    node.broker._tick()

    assert [*node.broker.slowed] == ["waiting"]
