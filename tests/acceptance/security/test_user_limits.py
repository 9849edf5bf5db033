"""Limits of a user: counts are refused, rates slow down, and acknowledgements have none."""

import dataclasses

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import load_security
from hms.engine.effects import Effects
from hms.engine.settings import DestinationSettings
from hms.server.broker import Lost
from hms.server.logins.user_limits import LIMITS
from hms.wire import structures as wire
from hms.wire.branch_requests import XaEnd, XaRollback, XaStart
from hms.wire.frames import Kind
from hms.wire.xa_constants import TMRESUME, TMSUCCESS, TMSUSPEND
from hms.wire.xid import Xid
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.memory import SETTINGS
from tests.support.secured import document, secured_node

REPLACE = msgspec.structs.replace
FIRST, SECOND = (Xid(1, name, b"b").pack() for name in (b"g1", b"g2"))
MAY = [
    "produce queue:*",
    "consume queue:*",
    "temporary node:*",
    "transact node:*",
    "subscribe topic:news",
    "subscribe-durable topic:news",
]


def limited(held, user="u", **limits):
    users = {**held.user, user: REPLACE(held.user[user], limits=limits)}
    return REPLACE(held, user=users, version=held.version + 1)


@pytest.fixture
def held():
    return document(u=MAY, v=MAY)


def node_of(held, settings=SETTINGS):
    node = GatedNode(held, settings)
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
    "transactions": lambda n: wire.OpenSession(n, is_transacted=True),
}


@pytest.mark.parametrize("what", OPENS)
def test_a_count_is_over_all_connections_of_a_user_and_of_no_other(held, what):
    """What is reached is refused by the call itself, with the limit and its number."""
    node = node_of(limited(held, **{what: 4}))
    begin = 2 if what in ("sessions", "transactions") else 1
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


def test_branches_are_transactions_until_they_are_prepared(held):
    """To work on in one, to vote and to end it are never refused: only so they become fewer."""
    node = node_of(limited(held, transactions=2))
    node.ask("p", wire.OpenSession(2, is_xa=True))
    node.ask("q", wire.OpenSession(2, is_xa=True))
    node.ask("p", wire.OpenSession(3, is_transacted=True))
    assert node.ask("p", XaStart(2, FIRST))["code"] == 0
    assert node.ask("p", XaEnd(2, FIRST, TMSUSPEND))["code"] == 0
    refused = node.ask("q", XaStart(2, SECOND))
    assert refused.fields == {"user": "u", "what": "transactions", "limit": 2}
    assert node.ask("p", XaStart(2, FIRST, TMRESUME))["code"] == 0
    assert node.ask("p", XaEnd(2, FIRST, TMSUCCESS))["code"] == 0
    assert node.ask("p", XaRollback(FIRST))["code"] == 0
    assert node.ask("q", XaStart(2, SECOND))["code"] == 0


def called(node, peer, correlation, **more):
    head = wire.CallHead("SVC", 0, **more)
    return node.send(peer, Kind.CALL, wire.encode_with_body(head, b""), correlation)


def invoked(node, peer="s"):
    frames = [data for e, data in node.outlet.take(peer) if e.kind is Kind.INVOKE]
    return [wire.decode_with_body(data, wire.InvokeHead)[0] for data in frames]


@pytest.fixture
def served():
    """A service of a user of its own, and a limit of two calls for another one."""
    may = [*MAY, "call service:SVC"]
    held = document(u=may, v=may, s=["advertise service:*"])
    node = node_of(limited(held, calls=2))
    node.login("s", "s", 9, is_server=True)
    node.ask("s", wire.Advertise("SVC", places=2))
    return node


@pytest.mark.parametrize("mode", [0, 1])
def test_calls_that_have_not_ended_are_counted(served, mode):
    """Also one that still waits for its server, and one without a reply; results are not."""
    node = served
    called(node, "p", 1, mode=mode)
    called(node, "q", 2, is_reply_wanted=False)
    ((envelope, data),) = called(node, "p", 3)
    assert envelope.kind is Kind.ERROR
    assert wire.decode_error(data).fields == {"user": "u", "what": "calls", "limit": 2}
    called(node, "r", 1)
    running = invoked(node)
    assert len(running) == 2
    for head in running:
        node.send("s", Kind.RESULT, wire.encode_with_body(wire.ResultHead(head.call, 2), b""))
    assert [e.kind for e, _ in node.outlet.take("p")] == [Kind.ANSWER]
    assert called(node, "p", 4) == called(node, "q", 5) == []
    assert called(node, "p", 6)[0][0].kind is Kind.ERROR
    node.broker.handle("q", [Lost("cut")])
    assert called(node, "p", 7) == []
    assert called(node, "p", 8)[0][0].kind is Kind.ERROR


def test_a_conversation_that_is_left_before_it_ran_is_no_call_any_more(served):
    """Nobody else would count it off."""
    node = served
    for correlation in (1, 2):
        called(node, "r", correlation)
    for correlation in (3, 4):
        called(node, "p", correlation, mode=1)
    assert called(node, "p", 5)[0][0].kind is Kind.ERROR
    node.send("p", Kind.TALK, wire.encode_with_body(wire.TalkHead(3, what=2), b""))
    assert called(node, "p", 5) == []


def test_who_holds_too_much_in_subscriptions_gets_no_more_of_them_and_loses_nothing(held):
    """One that is there is resumed and goes on collecting: it is emptied only so."""
    may = [*MAY, "publish topic:news"]
    node = node_of(limited(document(u=may, v=may), subscription_bytes="1 KiB"))
    node.ask("p", OPENS["subscriptions"](1))
    node.ask("p", wire.CloseConsumer(1))
    node.ask("r", wire.OpenProducer(1, 1, "topic", "news"))
    body = pack(1, b"x" * 600)
    for sequence in (1, 2):
        assert node.send("r", *send(1, sequence, 1, body))[0][0].kind is Kind.CONFIRM

    refused = node.ask("p", OPENS["subscriptions"](2))

    assert isinstance(refused, hms.UserLimit)
    assert refused.fields == {"user": "u", "what": "subscription_bytes", "limit": 1024}
    assert node.send("r", *send(1, 3, 1, body))[0][0].kind is Kind.CONFIRM
    (place,) = [s for s in node.engine.state.space.subscriptions.values() if s.is_durable]
    assert place.line.waiting_count == 3
    frames = node.send("q", Kind.REQUEST, wire.encode(REPLACE(OPENS["subscriptions"](1), credit=9)))
    assert Kind.DELIVER in [envelope.kind for envelope, _ in frames]
    epoch, fx = node.engine.state.connection(2).consumers[1].epoch, Effects()
    assert node.engine.acknowledge(2, 1, epoch, [(0, 1 << 60)], node.now_ms, fx) == 3
    assert not isinstance(node.ask("p", OPENS["subscriptions"](2)), hms.HmsError)


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


def filled(held, count, names=("orders",), group=None, **limits):
    """Queues that hold so many messages of 100 bytes."""
    settings = tuple(DestinationSettings("queue", name) for name in names)
    settings = dataclasses.replace(SETTINGS, destinations=settings)
    node = node_of(limited(held, **limits), settings)
    own = {} if group is None else {"JMSXGroupID": group}
    for number, name in enumerate(names, 1):
        node.ask("r", wire.OpenProducer(number, 1, "queue", name))
        frames = node.send("r", *send(number, 1, count, pack(count, b"x" * 100, **own)))
        assert [e.kind for e, _ in frames] == [Kind.CONFIRM]
    return node


def consume(node, peer, handle, queue="orders", session=1, **more):
    asked = wire.OpenConsumer(handle, session, "queue", queue, 1000, **more)
    node.send(peer, Kind.REQUEST, wire.encode(asked))
    tick(node, 0)


def held_by(node, *numbers):
    """How many messages the consumers of connections have; what is counted for u is what is out."""
    known = node.engine.state.connections
    of_user = [c for n in (1, 2) if n in known for c in known[n].consumers.values()]
    if 1 in known and known[1].in_flight is not None:
        assert known[1].in_flight.size_bytes == sum(c.out_bytes for c in of_user)
    return sum(len(c.out) for n in numbers for c in known[n].consumers.values())


def settle(node, number, handle, count):
    """The oldest of them, and a turn of the node."""
    consumer = node.engine.state.connection(number).consumers[handle]
    ids = [(one, one) for one in list(consumer.out)[:count]]
    node.broker.command(
        lambda fx, now: node.engine.acknowledge(number, handle, consumer.epoch, ids, now, fx)
    )
    assert not ids or node.engine.is_urgent or not node.engine.state.outgoing.held
    tick(node, 0)
    return len(ids)


def most_of(node, limit):
    """How many are in flight at the limit, with the one that goes beyond."""
    line = node.engine.state.queues["orders"].line
    size = {c.out_bytes / len(c.out) for c in node.engine.state.queues["orders"].holders if c.out}
    assert line.waiting_count
    assert len(size) == 1
    return int(-(-limit // size.pop()))


@pytest.mark.parametrize(
    ("group", "selector"), [(None, ""), (None, "JMSPriority > 0"), ("g", "")], ids=str
)
def test_what_a_user_has_in_flight_is_bounded_over_all_its_connections(held, group, selector):
    """Others go on; what is settled makes room for as much; the last one may go beyond."""
    node = filled(held, 300, group=group, bytes_in_flight=1000)
    line = node.engine.state.queues["orders"].line
    for peer in "pq":
        consume(node, peer, 1, selector=selector)
    most = most_of(node, 1000)
    assert 5 < most < 20
    assert held_by(node, 1, 2) == most
    for _ in range(20):
        for number in (1, 2):
            settle(node, number, 1, 3)
            assert held_by(node, 1, 2) == most
    if group is None:
        consume(node, "r", 1, selector=selector)
        assert (held_by(node, 3), line.waiting_count) == (line.out_count - most, 0)
        return
    for _ in range(300):
        settle(node, 1, 1, 7)
        settle(node, 2, 1, 7)
    assert (line.out_count, line.waiting_count) == (0, 0)


def test_two_consumers_of_a_user_are_not_given_a_group_each_beyond_the_limit(held):
    """Groups are handed out to all consumers at once; each took one that went beyond."""
    node = filled(held, 1, group="a", bytes_in_flight=1)
    for sequence, group in enumerate("bcd", 2):
        node.send("r", *send(1, sequence, 1, pack(1, b"x" * 100, JMSXGroupID=group)))
    for peer in "pq":
        consume(node, peer, 1)
    came = 0
    while node.engine.state.queues["orders"].line.out_count:
        assert held_by(node, 1, 2) == 1
        came += settle(node, 1, 1, 1) or settle(node, 2, 1, 1)
    assert came == 4


def test_many_queues_of_a_user_at_its_limit_take_turns_and_all_come(held):
    """Nobody waits for ever behind the first queue, and each tick looks at few of them."""
    names = [f"q{n}" for n in range(40)]
    node = filled(held, 20, names, bytes_in_flight=1)
    for handle, name in enumerate(names, 1):
        consume(node, "p", handle, name)
    connection, came = node.engine.state.connection(1), []
    while any(consumer.out for consumer in connection.consumers.values()):
        assert held_by(node, 1) == 1
        (handle,) = [n for n, one in connection.consumers.items() if one.out]
        came.append(handle)
        settle(node, 1, handle, 1)
    assert len(came) == 800
    assert came[1:41] == list(range(1, 41))
    assert node.engine.state.outgoing.held == {}


def test_bytes_in_flight_are_counted_off_however_they_end(held):
    """Given back, rolled back, closed, cut; and a limit that comes, changes and goes holds at
    once."""
    node = filled(held, 300)
    node.ask("p", wire.OpenSession(2, is_transacted=True))
    consume(node, "p", 1)
    assert held_by(node, 1) == 300
    assert not node.engine.state.outgoing.is_limited
    node.change(limited(held, bytes_in_flight=1000))
    settle(node, 1, 1, 200)
    assert held_by(node, 1) == 100
    node.ask("p", wire.CloseConsumer(1))
    consume(node, "q", 1)
    most = most_of(node, 1000)
    assert held_by(node, 2) == most
    node.broker.handle("q", [Lost("cut")])
    tick(node, 0)
    consume(node, "p", 3, session=2)
    assert held_by(node, 1) == most
    settle(node, 1, 3, most)
    assert held_by(node, 1) == most
    node.ask("p", wire.Rollback(2))
    tick(node, 0)
    assert held_by(node, 1) == most
    node.change(limited(limited(held, bytes_in_flight="10 KiB")))
    tick(node, 0)
    assert held_by(node, 1) == 100


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
