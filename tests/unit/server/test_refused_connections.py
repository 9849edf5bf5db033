"""What is not let in is audited: by the minute, with bounded memory and disk."""

import json
from types import SimpleNamespace

import msgspec
import pytest
import zmq

import hms
from hms.records import RecordType
from hms.records.audit import decode_audit, why_of
from hms.server import refused_connections
from hms.server.bans import Ban
from hms.server.listening_sockets import ListenAt
from hms.server.logins.auditing import STRANGERS_BYTES_A_MINUTE
from hms.server.logins.callers import Caller
from hms.server.logins.client_guard import CUTS_MAX, SHUN_S, SHUNNED_MAX, ClientGuard
from hms.server.refused_connections import OTHERS, RefusedConnections
from hms.server.refused_connections import why_of as why_of_fault
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.secured import document

REPLACE = msgspec.structs.replace
REFUSED, REQUIRED, BUSY, PROTOCOL = 1031, 1032, 1033, 1001


def entries_of(node):
    return [
        decode_audit(payload) for kind, _, payload in node.store.records if kind == RecordType.AUDIT
    ]


@pytest.fixture
def node():
    return GatedNode(document(u=[]))


def tell(node, refused):
    """What a node does each second."""
    for some in refused.take():
        node.broker.command(lambda fx, now_ms, s=some: node.auditing.not_let_in(s, now_ms, fx))
    node.step()


def flush(node):
    node.now_ms += 60_000
    node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))
    node.step()


def caller(number=1, key="k" * 40):
    return Caller("clients", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", key=key)


def test_the_first_is_a_record_with_address_listener_key_and_reason(node):
    """The rest of the minute is one more, whatever came in one look and in later ones."""
    refused = RefusedConnections(is_audited=True)
    for _ in range(10):
        refused.note(caller(), "its key is not known", REFUSED)
    tell(node, refused)
    (first,) = entries_of(node)
    for _ in range(5):
        refused.note(caller(), "its key is not known", REFUSED)
    tell(node, refused)
    flush(node)

    first, rest = entries_of(node)
    assert (first.source, first.resource) == ("10.0.0.1", "listener:clients")
    assert (first.action, first.command, first.result) == ("connect", "refused", REFUSED)
    assert json.loads(first.arguments) == {"why": "its key is not known", "key": "k" * 40}
    assert why_of(first) == f"its key is not known (key {'k' * 40})"
    assert (first.count, rest.count, rest.source) == (1, 14, "10.0.0.1")


def test_a_flood_from_many_addresses_takes_bounded_memory_and_disk(node, monkeypatch):
    """All of it is counted, and nobody is waited for."""
    monkeypatch.setattr(refused_connections, "KEYS_MAX", 2000)
    refused = RefusedConnections(is_audited=True)
    for number in range(5000):
        refused.note(caller(number), "its key is not known", REFUSED)
    assert len(refused._kept) == 2001
    tell(node, refused)
    assert len(refused._kept) == 0
    flush(node)

    found = entries_of(node)
    assert sum(one.count for one in found) == 5000 == refused.total
    assert {one.user for one in found} == {"", OTHERS}
    written = sum(len(payload) for kind, _, payload in node.store.records)
    assert written < 2 * STRANGERS_BYTES_A_MINUTE


def test_a_flood_of_connections_hides_no_login_that_failed(node):
    """It has a room of its own in the minute."""
    refused = RefusedConnections(is_audited=True)
    for number in range(3000):
        refused.note(caller(number), "its key is not known", REFUSED)
    tell(node, refused)
    node.hello("p")
    node.auth("p", "u", "wrong")

    last = entries_of(node)[-1]
    assert (last.user, last.result, why_of(last)) == ("u", REFUSED, "the password is wrong")


def test_an_open_node_and_a_silent_connection_keep_nothing():
    """They are counted and logged; nobody takes them away."""
    refused, silent = RefusedConnections(), RefusedConnections(is_audited=True)
    refused.note(caller(), "its key is not known", REFUSED)
    silent.note(caller(), "it said no HELLO within 15 s")

    assert [*refused.take(), *silent.take()] == []
    assert (refused.total, silent.total) == (1, 1)


def test_counts_of_minutes_that_are_not_over_stand_in_the_audit_of_a_stop(node):
    """They were lost with each stop."""
    for peer in "abc":
        node.hello(peer)
        node.auth(peer, "u", "wrong")
    node.broker.stopped(lambda fx, now_ms: node.auditing.flush(now_ms, fx, is_last=True))
    node.step()

    assert [one.count for one in entries_of(node)] == [1, 2]


def said(node):
    """Number and reason of each refusal."""
    return [(one.result, why_of(one)) for one in entries_of(node)]


def test_who_brings_no_login_is_audited_with_the_reason(node):
    """A process that is no user's, and one whose user may not log in."""
    node.hello("p", mechanisms=())
    u = REPLACE(node.document.user["u"], os_users=("till",), enabled=False)
    node.os_users[1000] = "till"
    node.change(REPLACE(node.document, version=2, user={**node.document.user, "u": u}))
    node.hello("q", mechanisms=())

    first, second = entries_of(node)
    assert said(node)[0] == (REQUIRED, "it brought no login, and its process is no user's")
    assert (second.user, why_of(second)) == ("u", "the user is disabled")
    assert first.source == second.source == "uid 1000"


def test_frames_before_the_login_are_audited(node):
    """Once each: the peer is known no more behind it."""
    node.hello("p")
    node.send("p", Kind.REQUEST, b"")
    node.send("p", Kind.REQUEST, b"")

    assert said(node) == [(PROTOCOL, "a frame before the login")]


def test_a_login_that_finds_no_worker_is_audited(node):
    """The client is told to come again, and an auditor that it was told so."""
    node.workers.room = 0
    node.hello("p")
    node.auth("p", "u")

    assert said(node) == [(BUSY, "too many logins wait")]


def test_a_banned_user_is_audited_with_the_ban(node):
    """The ban is asked behind the login, so user and password were right."""
    node.registry.bans.add(Ban("user", "u", 0, 0, "left the company"))
    node.hello("p")
    ((envelope, data),) = node.auth("p", "u")

    assert envelope.kind is Kind.ERROR
    ((error, why),) = said(node)
    assert error == wire.decode_error(data).number
    assert "left the company" in why
    assert entries_of(node)[0].user == "u"


def asked(key, address=b"10.0.0.1", domain=b"hms-listener-clients", mechanism=b"CURVE"):
    """What libzmq asks of a connection."""
    return [b"1.0", b"1", domain, address, b"", mechanism, key]


@pytest.fixture
def guard():
    """Of a listener that takes any key, with the seconds of its clock."""
    seconds, context = [0.0], zmq.Context()
    at = ListenAt("tcp://*:1", "clients", (b"", b""), takes_any_key=True)
    refused = RefusedConnections(is_audited=True)
    made = ClientGuard(context, [at], tuple, refused, lambda: seconds[0])
    yield SimpleNamespace(guard=made, seconds=seconds, refused=refused)
    made.zap.close()
    context.term()


def test_a_key_that_goes_on_to_be_cut_waits_at_its_address_and_nowhere_else(guard):
    """A network key is shared: who has it elsewhere is not kept out, nor anybody by one fault."""
    key, other = b"k" * 32, b"o" * 32
    admit = guard.guard._who
    shown = admit(asked(key)).decode()
    for _ in range(CUTS_MAX):
        assert admit(asked(key)) == shown.encode()
        guard.guard.shun(Caller("clients", "10.0.0.1", key=shown))

    assert admit(asked(key)) is None
    assert admit(asked(key, b"10.0.0.2")) == shown.encode() != admit(asked(other))
    ((noted,),) = guard.refused.take()
    assert (noted.key, noted.error) == (shown, REFUSED)
    assert "were cut a moment ago" in noted.why
    guard.seconds[0] = SHUN_S
    assert admit(asked(key)) == shown.encode()


def test_a_thousand_keys_that_were_cut_are_not_all_remembered(guard):
    """Each costs its owner a connection, and the node must not keep them for ever."""
    for number in range(1000):
        guard.guard.shun(Caller("clients", "10.0.0.1", key=f"{number}"))
    assert len(guard.guard._cuts) == SHUNNED_MAX


def test_a_question_that_makes_no_sense_is_refused(guard):
    """Whatever libzmq asks of: another domain, none of the mechanisms, parts that are missing."""
    for parts in (asked(b"", domain=b"x"), asked(b"", mechanism=b"NULL"), [], [b"\x1b[2J"] * 4):
        assert guard.guard._who(parts) is None
    (noted,) = guard.refused.take()
    assert {one.why for one in noted} == {"it does not encrypt"}
    assert not any("\x1b" in one.source for one in noted)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (hms.errors.ProtocolError(detail="a frame"), "a frame"),
        (hms.errors.TooManyConnections(count=7, limit=7), "7"),
        (hms.errors.TooManyConnections(), "?"),
    ],
)
def test_the_reason_is_told_without_the_cure_and_also_where_a_value_is_missing(fault, said):
    """The main thread tells it, which must not end for that."""
    assert said in why_of_fault(fault)
    assert fault.cure not in why_of_fault(fault)
