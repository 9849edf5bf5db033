"""Limits of a user: counts are refused, rates slow down, and acknowledgements have none."""

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import load_security
from hms.engine.effects import Effects
from hms.server.logins.user_limits import LIMITS
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.secured import document, secured_node

REPLACE = msgspec.structs.replace
MAY = [
    "produce queue:*",
    "consume queue:*",
    "temporary node:*",
    "subscribe topic:news",
    "subscribe-durable topic:news",
]


def limited(held, user="u", **limits):
    users = {**held.user, user: REPLACE(held.user[user], limits=limits)}
    return REPLACE(held, user=users, version=held.version + 1)


@pytest.fixture
def held():
    return document(u=MAY, v=MAY)


def node_of(held):
    node = GatedNode(held)
    for number, (peer, user) in enumerate([("p", "u"), ("q", "u"), ("r", "v")], 1):
        if peer == "q" and node.gate.identities.limits("u").get("connections") == 1:
            continue
        node.login(peer, user, number)
        node.ask(peer, wire.OpenSession(1))
    return node


OPENS = {
    "sessions": wire.OpenSession,
    "producers": lambda n: wire.OpenProducer(n, 1, "queue", "orders"),
    "consumers": lambda n: wire.OpenConsumer(n, 1, "queue", "orders", 1),
    "subscriptions": lambda n: wire.OpenConsumer(n, 1, "topic", "news", 1, durable=f"d{n}"),
    "temporary_destinations": lambda _: wire.CreateTemporary("queue"),
}


@pytest.mark.parametrize("what", OPENS)
def test_a_count_is_over_all_connections_of_a_user_and_of_no_other(held, what):
    """What is reached is refused by the call itself, with the limit and its number."""
    node = node_of(limited(held, **{what: 4}))
    begin = 2 if what == "sessions" else 1
    open_ = 2 if what == "sessions" else 0
    for handle in range(begin, begin + 4 - open_):
        peer = "pq"[handle % 2]
        assert not isinstance(node.ask(peer, OPENS[what](handle)), hms.HmsError)

    refused = node.ask("p", OPENS[what](99))

    assert isinstance(refused, hms.UserLimit)
    assert isinstance(refused, hms.TpLimit)
    assert refused.fields == {"user": "u", "what": what, "limit": 4}
    assert not isinstance(node.ask("r", OPENS[what](98)), hms.HmsError)
    node.change(limited(limited(held, **{what: 5}), "v"))
    assert not isinstance(node.ask("p", OPENS[what](99)), hms.HmsError)


def test_a_connection_too_many_is_refused_and_one_that_comes_back_is_not(held):
    """A client whose old connection was not missed yet is not one more."""
    node = node_of(limited(held, connections=1))
    node.hello("x", 7)
    ((_, data),) = node.auth("x", "u")
    assert wire.decode_error(data).fields == {"user": "u", "what": "connections", "limit": 1}
    node.hello("again", 1)
    ((envelope, _),) = node.auth("again", "u")
    assert envelope.kind is Kind.WELCOME


def test_the_largest_of_the_roles_holds_unless_the_user_has_its_own(held):
    """And what is said for all, without either."""
    role = {**held.role, "u": REPLACE(held.role["u"], limits={"sessions": 5, "producers": 7})}
    role["w"] = REPLACE(held.role["v"], limits={"sessions": 9})
    users = {**held.user, "u": REPLACE(held.user["u"], roles=("u", "w"), limits={"producers": 3})}
    general = REPLACE(held.security, limits={"sessions": 1, "consumers": 2})
    node = node_of(REPLACE(held, role=role, user=users, security=general))

    assert node.gate.identities.limits("u") == {"sessions": 9, "consumers": 2, "producers": 3}
    assert node.gate.identities.limits("v") == {"sessions": 1, "consumers": 2}


def sent(node, peer, sequence, count=1):
    return [e.kind for e, _ in node.send(peer, *send(1, sequence, count, pack(count)))]


def tick(node, ms):
    node.now_ms += ms
    node.broker.command(lambda fx, now_ms: node.engine.tick(now_ms, fx))
    node.step()


def rated(held, **limits):
    node = node_of(limited(held, **limits))
    for peer in "pqr":
        node.ask(peer, wire.OpenProducer(1, 1, "queue", "orders"))
    return node


def test_a_sender_above_its_rate_waits_and_the_others_do_not(held, record_property):
    """AT-42: over all connections of the user together; the answers come when there is room."""
    node = rated(held, messages_per_s=10)
    assert sent(node, "p", 1, 10) == [Kind.CONFIRM]
    assert sent(node, "q", 1, 1) == [Kind.CONFIRM]
    assert sent(node, "q", 2, 1) == []
    assert sent(node, "p", 11, 1) == []
    for sequence in range(1, 101):
        assert sent(node, "r", sequence) == [Kind.CONFIRM]

    due = node.engine.due_ms()
    assert node.now_ms < due <= node.now_ms + 150
    tick(node, due - node.now_ms)

    assert [e.kind for e, _ in node.outlet.take("q")] == [Kind.CONFIRM]
    assert node.outlet.take("p") == []
    tick(node, 200)
    assert [e.kind for e, _ in node.outlet.take("p")] == [Kind.CONFIRM]
    assert node.engine.state.blocked.slowed == {}
    record_property("figures", {"test": "AT-42", "others_confirmed": 100, "others_waited": 0})


def test_a_flood_is_held_to_its_rate(held):
    """A hundred batches, one a turn: what goes in ten seconds is what ten seconds allow."""
    node = rated(held, messages_per_s=20)
    confirmed, sequence = 0, 1
    for _ in range(100):
        confirmed += len(sent(node, "p", sequence))
        sequence += 1
    for _ in range(100):
        tick(node, 100)
        confirmed += len(node.outlet.take("p"))

    assert confirmed == 100
    assert node.engine.state.queues["orders"].line.waiting_count == 100
    for _ in range(500):
        sent(node, "p", sequence)
        sequence += 1
    before = node.engine.state.queues["orders"].line.waiting_count
    for _ in range(100):
        tick(node, 100)
    went = node.engine.state.queues["orders"].line.waiting_count - before
    assert 190 <= went <= 210


def test_bytes_have_a_rate_too_and_one_batch_may_be_larger_than_it(held):
    """It waits, and then it goes: no message is too large for a rate."""
    node = rated(held, bytes_per_s="1 KiB")
    assert sent(node, "p", 1, 200) == [Kind.CONFIRM]
    assert sent(node, "p", 201) == []
    tick(node, 1000)
    assert node.outlet.take("p") == []
    tick(node, 60_000)
    frames = node.outlet.take("p")
    assert [e.kind for e, _ in frames] in ([Kind.CONFIRM], [Kind.ERROR])


def test_what_waits_longer_than_flow_control_is_refused_with_the_limit(held):
    """And nothing of it is stored."""
    node = rated(held, messages_per_s=1)
    sent(node, "p", 1, 900)
    assert sent(node, "p", 901) == []
    tick(node, node.engine.state.blocked.due_ms - node.now_ms)

    error = node.answer(node.outlet.take("p"))

    assert isinstance(error, hms.UserLimit)
    assert error.fields["what"] == "messages_per_s"
    assert node.engine.state.queues["orders"].line.waiting_count == 900


def test_acknowledgements_and_receiving_have_no_rate(held):
    """P10: who is slowed down as a sender still empties its queue."""
    node = rated(held, messages_per_s=1)
    assert sent(node, "p", 1, 50) == [Kind.CONFIRM]
    assert sent(node, "p", 51) == []
    wanted = wire.encode(wire.OpenConsumer(1, 1, "queue", "orders", 60))
    frames = node.send("p", Kind.REQUEST, wanted)
    assert Kind.DELIVER in [e.kind for e, _ in frames]
    engine = node.engine
    epoch, fx = engine.state.connection(1).consumers[1].epoch, Effects()
    assert engine.acknowledge(1, 1, epoch, [(0, 1 << 60)], node.now_ms, fx) == 50


def test_a_commit_waits_like_a_send(held):
    """What it sends counts when it takes effect."""
    node = node_of(limited(held, messages_per_s=5))
    node.ask("p", wire.OpenSession(2, is_transacted=True))
    node.ask("p", wire.OpenProducer(1, 2, "queue", "orders"))
    for number in (1, 2):
        assert sent(node, "p", number, 10) == [Kind.CONFIRM]
        frames = node.send("p", Kind.REQUEST, wire.encode(wire.Commit(2, number)))
        assert [e.kind for e, _ in frames] == ([Kind.REPLY] if number == 1 else [])
    tick(node, 3000)

    assert [e.kind for e, _ in node.outlet.take("p")] == [Kind.REPLY]
    assert node.engine.state.queues["orders"].line.waiting_count == 20


def test_a_rate_that_is_lifted_lets_go_what_waits(held):
    """Without a new connection."""
    node = rated(held, messages_per_s=1)
    sent(node, "p", 1, 100)
    assert sent(node, "p", 101) == []
    node.change(limited(limited(held)))
    tick(node, 1)

    assert [e.kind for e, _ in node.outlet.take("p")] == [Kind.CONFIRM]
    assert sent(node, "p", 102, 50) == [Kind.CONFIRM]


def test_limits_are_set_and_shown_by_commands(tmp_path, monkeypatch, held):
    """A wrong one is refused with the nearest that there is."""
    with secured_node(tmp_path, held) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))

        def run(*words, code=0):
            done = CliRunner().invoke(main, ["user", *words], prog_name="hms")
            assert done.exit_code == code, done.output
            return done.output

        run("limit", "u", "connections=20", "bytes_per_s=100 MiB")
        assert load_security(node.security).user["u"].limits == {
            "connections": 20,
            "bytes_per_s": "100 MiB",
        }
        assert "connections 20, bytes_per_s 104857600" in run("show", "u")
        run("limit", "u", "connections=none")
        assert load_security(node.security).user["u"].limits == {"bytes_per_s": "100 MiB"}
        for wrong in ("conections=2", "sessions=0", "sessions=x", "sessions", "sessions=1 MiB"):
            run("limit", "u", wrong, code=1)
        assert set(LIMITS) >= {"connections"}
