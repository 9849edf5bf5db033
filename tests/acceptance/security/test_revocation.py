"""AT-34: what is taken away while it is used ends, and counts no attempt."""

import threading
import time
from contextlib import ExitStack

import msgspec
import pytest

import hms
from hms.boot.security_file import change_security
from hms.client.xa_resource import HmsResource
from hms.server.logins.security_document import RoleEntry
from hms.wire import branch_requests as xa
from hms.wire import structures as wire
from hms.wire.frames import Action as SettleAction
from hms.wire.frames import Kind, Settlement, encode_settle
from hms.wire.packed_messages import FLAG_RETAIN, ROW, Head, encode_head
from hms.wire.xid import Xid
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import drained, wait_until

REPLACE = msgspec.structs.replace
CONSUMERS = 1000
CALM = {"heartbeat_s": 60}
"""Ten threads at work in one process: none of its connections is taken for lost."""
XID = bytes([0, 0, 0, 1, 2, 1]) + b"gtb"
OTHER = bytes([0, 0, 0, 1, 2, 1]) + b"gtc"
RB_BASE = 100


def without(held, role, permission):
    """The document with a permission taken away."""
    left = tuple(p for p in held.role[role].permissions if p != permission)
    return REPLACE(
        held, role={**held.role, role: RoleEntry(permissions=left)}, version=held.version + 1
    )


@pytest.fixture
def held():
    topics = ["subscribe", "subscribe-durable", "publish"]
    of_u = ["produce queue:orders", "consume queue:orders", "transact node:*"]
    of_u += ["advertise service:*", "call service:*", "retain topic:news"]
    return document(
        u=[*of_u, *[f"{action} topic:news" for action in topics]],
        v=["consume queue:orders", *[f"{action} topic:#" for action in topics]],
    )


@pytest.fixture
def node(held):
    made = GatedNode(held)
    made.login("p", "u", 1)
    made.ask("p", wire.OpenSession(1))
    return made


def kinds(frames):
    return [envelope.kind for envelope, _ in frames]


def test_a_thousand_consumers_are_closed_at_once_and_their_messages_return(node, held):
    """The next consumer gets all of them, as if they had never been delivered."""
    node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    for handle in range(1, CONSUMERS + 1):
        node.ask("p", wire.OpenConsumer(handle, 1, "queue", "orders", 1))
    node.send("p", *send(1, 1, CONSUMERS, pack(CONSUMERS)))
    queue = node.engine.state.queues["orders"]
    assert queue.line.out_count == CONSUMERS

    node.change(without(held, "u", "consume queue:orders"))

    events = [wire.decode(d, wire.Event) for e, d in node.outlet.take("p") if e.kind is Kind.EVENT]
    assert {(e.what, e.error_number) for e in events} == {
        ("consumer_closed", hms.NotAuthorized.number)
    }
    assert len(events) == node.closed == CONSUMERS
    assert (queue.line.out_count, queue.line.waiting_count) == (0, CONSUMERS)
    node.login("q", "v", 2)
    node.ask("q", wire.OpenSession(1))
    node.ask("q", wire.OpenConsumer(1, 1, "queue", "orders", CONSUMERS))
    assert queue.line.out_count == CONSUMERS
    assert {attempts for _, attempts in queue.line.history.values()} <= {0}
    assert isinstance(
        node.ask("p", wire.OpenConsumer(5000, 1, "queue", "orders", 1)), hms.NotAuthorized
    )


class Crew:
    """A connection with consumers at work, in a thread of its own: each message is acknowledged."""

    def __init__(self, node, count):
        login = {"user": "u", "password": PASSWORD, "exception_listener": self._told}
        self.closed, self.done, self.in_doubt = [], [], []
        self._connection = hms.connect(node.address, **login)
        sessions = [self._connection.session(ack=hms.AckMode.CLIENT) for _ in range(10)]
        queue = hms.Queue("orders")
        self._consumers = [
            one.consumer(queue, prefetch=2) for one in sessions for _ in range(count // 10)
        ]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _told(self, fault):
        self.closed.append((time.perf_counter(), fault))

    def _run(self):
        left = list(self._consumers)
        while left:
            for consumer in list(left):
                try:
                    message = consumer.receive_nowait()
                except hms.NotAuthorized:
                    left.remove(consumer)
                    continue
                if message is None:
                    continue
                try:
                    message.ack()
                    self.done.append(message.body)
                except hms.AcknowledgeLost:
                    self.in_doubt.append(message.body)

    def end(self):
        self._thread.join(60)
        self._connection.close()


def test_a_thousand_consumers_of_a_real_node_lose_a_right_while_they_work(
    tmp_path, record_property
):
    """Must show 6: all are closed, what they had goes to others and counts no attempt (one more
    would make it a dead letter), each confirmed message is there once, and what a branch has
    promised holds."""
    of_u = ["consume queue:orders", "produce queue:orders", "transact node:*"]
    held = document(u=of_u, v=["produce queue:orders"])
    config = {"hms": {"queue": {"orders": {"redelivery_limit": 1}}}}
    with secured_node(tmp_path, held, config, CALM) as node, ExitStack() as stack:
        own = stack.enter_context(hms.connect(node.address))
        sending = stack.enter_context(hms.connect(node.address, user="v", password=PASSWORD))
        theirs = stack.enter_context(hms.connect(node.address, user="u", password=PASSWORD))
        xid, branch = Xid(1, b"gt", b"b"), theirs.session(xa=True)
        rm = HmsResource(theirs, branch)
        assert rm.xa_start(xid) == 0
        branch.producer(hms.Queue("orders")).send(b"of the branch")
        assert (rm.xa_end(xid), rm.xa_prepare(xid)) == (0, 0)
        crews = [Crew(node, CONSUMERS // 10) for _ in range(10)]
        sent, stop = [], threading.Event()

        def produce():
            with sending.session() as session:
                out = session.producer(hms.Queue("orders"))
                while not stop.is_set():
                    bodies = [b"%d" % (len(sent) + n) for n in range(50)]
                    out.send_many(bodies)
                    sent.extend(bodies)

        producing = threading.Thread(target=produce)
        producing.start()
        wait_until(lambda: all(len(crew.done) > 20 for crew in crews), timeout_s=90)

        began = time.perf_counter()
        change_security(node.security, lambda d: without(d, "u", "consume queue:orders"))
        wait_until(lambda: sum(len(crew.closed) for crew in crews) >= CONSUMERS, timeout_s=120)
        last_s = max(at for crew in crews for at, _ in crew.closed) - began
        stop.set()
        producing.join(60)
        for crew in crews:
            crew.end()
        faults = [fault for crew in crews for _, fault in crew.closed]
        done = [body for crew in crews for body in crew.done]
        in_doubt = [body for crew in crews for body in crew.in_doubt]
        assert rm.xa_commit(xid) == 0
        with own.session() as session:
            inn = session.consumer(hms.Queue("orders"))
            left = [one.body for one in drained(own, inn)]
        counts = own.administer("queue.show", {"name": "orders"})
        dead = own.administer("queue.list", {})
    dead = [row["waiting"] for row in dead if row["name"] == "HMS.DLQ"]
    record_property(
        "figures",
        {
            "must show": 6,
            "consumers": CONSUMERS,
            "closed_within_s": round(last_s, 2),
            "sent": len(sent),
            "done": len(done),
            "in_doubt": len(in_doubt),
            "left": len(left),
        },
    )
    assert sum(isinstance(fault, hms.NotAuthorized) for fault in faults) == CONSUMERS
    assert len({*done}) == len(done)
    assert {*sent, b"of the branch"} == {*done, *left} | ({*in_doubt} - {*left})
    assert not {*done} & {*left}
    assert len({*left}) == len(left)
    assert not sum(dead)
    assert (counts["waiting"], counts["in_flight"]) == (0, 0)


def test_a_producer_is_refused_at_its_next_send_and_goes_on_when_it_is_granted_again(node, held):
    """The order of a change and a SEND is the order of the lock."""
    node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    assert kinds(node.send("p", *send(1, 1, 1, pack(1)))) == [Kind.CONFIRM]

    node.change(without(held, "u", "produce queue:orders"))
    assert isinstance(node.answer(node.send("p", *send(1, 2, 1, pack(1)))), hms.NotAuthorized)
    node.change(REPLACE(held, version=9))

    assert kinds(node.send("p", *send(1, 2, 1, pack(1)))) == [Kind.CONFIRM]
    assert node.engine.state.queues["orders"].line.waiting_count == 2


@pytest.mark.parametrize("how", ["disabled", "deleted", "logged out", "connect taken away"])
def test_a_user_who_may_not_be_here_is_disconnected_and_its_prepared_branches_stay(node, held, how):
    """What it has promised to a transaction manager holds."""
    node.login("x", "u", 2)
    node.ask("x", wire.OpenSession(1, is_xa=True))
    node.ask("x", wire.OpenProducer(1, 1, "queue", "orders"))
    node.ask("x", xa.XaStart(1, XID))
    node.send("x", *send(1, 1, 1, pack(1)))
    node.ask("x", xa.XaEnd(1, XID, 0x04000000))
    assert node.ask("x", xa.XaPrepare(XID))["code"] == 0
    users = dict(held.user)
    if how == "deleted":
        del users["u"]
    elif how == "disabled":
        users["u"] = REPLACE(users["u"], enabled=False)
    elif how == "logged out":
        users["u"] = REPLACE(users["u"], generation=2)
    else:
        users["u"] = REPLACE(users["u"], roles=("v",))
        held = without(held, "v", "connect listener:*")

    node.change(REPLACE(held, user=users, version=9))

    assert list(node.registry.numbers) == []
    ((envelope, data),) = node.outlet.take("x")
    assert envelope.kind is Kind.GOODBYE
    assert isinstance(wire.decode_error(data), hms.LoginExpired)
    assert XID in node.engine.state.branches.by_xid


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_branch_that_received_of_a_revoked_consumer_is_rolled_back(node, held, is_suspended):
    """Its sends would take effect without its receipts; one that is prepared keeps what it has."""
    held = REPLACE(held, version=2)
    node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    node.send("p", *send(1, 1, 4, pack(4)))
    node.login("x", "u", 2)
    for session, xid in ((1, XID), (2, OTHER)):
        node.ask("x", wire.OpenSession(session, is_xa=True))
        node.ask("x", wire.OpenProducer(session, session, "queue", "orders"))
        node.ask("x", wire.OpenConsumer(session, session, "queue", "orders", 0))
        node.ask("x", xa.XaStart(session, xid))
        node.send("x", *send(session, 1, 1, pack(1)))
    node.ask("x", xa.XaEnd(2, OTHER, 0x04000000))
    assert node.ask("x", xa.XaPrepare(OTHER))["code"] == 0
    epoch = node.engine.state.connection(2).consumers[1].epoch
    credit = Settlement(SettleAction.CREDIT, 1, epoch, 2, ())
    node.send("x", Kind.SETTLE, encode_settle([credit]))
    line = node.engine.state.queues["orders"].line
    assert line.out_count == 2
    if is_suspended:
        node.ask("x", xa.XaEnd(1, XID, 0x02000000))

    node.change(without(held, "u", "consume queue:orders"))

    assert (line.out_count, line.waiting_count) == (0, 4)
    ended = node.ask("x", xa.XaEnd(1, XID, 0x04000000))
    assert RB_BASE <= ended["code"] <= RB_BASE + 7
    assert RB_BASE <= node.ask("x", xa.XaPrepare(XID))["code"] <= RB_BASE + 7
    assert node.ask("x", xa.XaCommit(OTHER))["code"] == 0
    assert line.waiting_count == 5


def test_what_is_published_reaches_only_owners_who_may_have_it(node, held):
    """PS-04: match, then authorise; what is withheld is counted."""
    node.login("q", "v", 2)
    node.ask("q", wire.OpenSession(1))
    node.ask("q", wire.OpenConsumer(1, 1, "topic", "#", 100))
    node.ask("q", wire.OpenConsumer(2, 1, "topic", "news", 100, durable="d"))
    node.ask("p", wire.OpenProducer(1, 1, "topic", "news"))

    node.change(without(held, "v", "subscribe topic:#"))
    node.send("p", *send(1, 1, 3, pack(3)))

    durable = next(iter(node.engine.state.space.subscriptions.values()))
    assert (durable.withheld, durable.line.waiting_count) == (3, 0)
    assert not durable.consumers


def test_a_subscription_whose_owner_may_not_have_it_any_more_is_listed_as_such():
    """It collects nothing, and an operator would look for the reason in vain: of a right that is
    gone, of a wildcard that reaches nothing, of a user that is deleted."""
    right = "subscribe topic:#"
    held = document(v=[right, "subscribe-durable topic:#"], op=["view subscription:*"])
    node = GatedNode(held)
    for number, name in enumerate(("v", "op"), 1):
        node.login(name, name, number)
        node.ask(name, wire.OpenSession(1))
    for handle, (name, topic) in enumerate((("exact", "news"), ("wild", "news/#")), 1):
        wanted = wire.OpenConsumer(handle, 1, "topic", "", 100, durable=name, topic=topic)
        assert not isinstance(node.ask("v", wanted), hms.HmsError)

    def listed():
        rows = node.ask("op", wire.Administer("subscription.list", {}))
        return {row["name"]: row["owner_rights"] for row in rows}

    gone = "owner without rights"
    assert listed() == {"exact": "", "wild": ""}
    node.change(without(held, "v", right))
    assert listed() == {"exact": gone, "wild": gone}
    below = RoleEntry(permissions=("connect listener:*", "subscribe topic:news/a"))
    node.change(REPLACE(held, version=3, role={**held.role, "v": below}))
    assert listed() == {"exact": gone, "wild": ""}
    users = {name: user for name, user in held.user.items() if name != "v"}
    node.change(REPLACE(held, version=4, user=users))
    assert listed() == {"exact": gone, "wild": gone}


def test_a_subscription_to_everything_gets_what_is_granted_below(held):
    """And nothing else, also of what is retained."""
    roles = {
        **held.role,
        "v": RoleEntry(permissions=("connect listener:*", "subscribe topic:news/a")),
    }
    node = GatedNode(REPLACE(held, role=roles))
    for peer, user in (("p", "u"), ("q", "v")):
        node.login(peer, user, {"p": 1, "q": 2}[peer])
        node.ask(peer, wire.OpenSession(1))
    node.ask("p", wire.OpenProducer(1, 1, "topic", "news", topic="a"))
    node.ask("p", wire.OpenProducer(2, 1, "topic", "news", topic="b"))
    retained = pack(1)[:26] + b"\x02" + pack(1)[27:]
    node.send("p", *send(1, 1, 1, retained))
    node.send("p", *send(2, 1, 1, retained))

    frames = node.send("q", Kind.REQUEST, wire.encode(wire.OpenConsumer(1, 1, "topic", "#", 100)))
    node.send("p", *send(1, 2, 1, pack(1)))
    node.send("p", *send(2, 2, 1, pack(1)))

    delivered = [*frames, *node.outlet.take("q")]
    assert kinds(delivered).count(Kind.DELIVER) == 2


def test_a_topic_retains_only_for_who_may_have_it_retain(node, held):
    """Retained, a message stays for all who come later."""
    node.change(without(held, "u", "retain topic:news"))
    node.ask("p", wire.OpenProducer(1, 1, "topic", "news"))
    retained = pack(1)[:26] + b"\x02" + pack(1)[27:]

    assert isinstance(node.answer(node.send("p", *send(1, 1, 1, retained))), hms.NotAuthorized)
    assert kinds(node.send("p", *send(1, 1, 1, pack(1)))) == [Kind.CONFIRM]


def test_a_durable_subscription_of_another_user_is_not_resumed(node):
    """Nor ended: its name grants nothing."""
    node.ask("p", wire.OpenConsumer(1, 1, "topic", "news", 1, durable="d"))
    node.ask("p", wire.CloseConsumer(1))
    node.login("q", "v", 2)
    node.ask("q", wire.OpenSession(1))

    again = node.ask("q", wire.OpenConsumer(1, 1, "topic", "news", 1, durable="d"))
    ended = node.ask("q", wire.Unsubscribe("news", "d"))

    assert isinstance(again, hms.NotAuthorized)
    assert isinstance(ended, hms.NotAuthorized)
    assert node.ask("p", wire.Unsubscribe("news", "d")) is None


def test_services_that_are_not_granted_any_more_are_offered_no_more(node, held):
    """The next call of them finds nobody."""
    node.ask("p", wire.Advertise("PAY"))
    node.change(without(held, "u", "advertise service:*"))

    assert node.broker.monitor.services_of(1) == []


def test_a_changed_file_holds_at_a_running_node_within_its_look(tmp_path):
    """And a damaged one changes nothing: the node says so in its log."""
    held = document(u=["consume queue:orders"])
    told = []
    with secured_node(tmp_path, held) as node:
        login = {"user": "u", "password": PASSWORD, "exception_listener": told.append}
        with hms.connect(node.address, **login) as connection, connection.session() as session:
            consumer = session.consumer(hms.Queue("orders"))
            good = node.security.read_text()
            node.security.write_text(good.replace("version", "versoin"))
            wait_until(lambda: "not taken over" in node.log)
            wait_until(lambda: "alert policy_rejected begins" in node.log)
            assert consumer.receive_nowait() is None
            node.security.write_text(good)
            wait_until(lambda: "alert policy_rejected ends" in node.log)

            change_security(node.security, lambda d: without(d, "u", "consume queue:orders"))

            wait_until(lambda: told)
            with pytest.raises(hms.NotAuthorized):
                consumer.receive(timeout_s=60)
    assert [type(one) for one in told] == [hms.NotAuthorized]


def test_what_a_closed_consumer_had_is_told_truly(tmp_path):
    """What it had comes again; a commit() or ack() that said "done" after that lied: a message that
    was moved was at both queues."""
    held = document(u=["consume queue:orders", "produce queue:orders", "produce queue:payments"])
    told, modes = [], (hms.AckMode.CLIENT, hms.AckMode.AUTO)
    with secured_node(tmp_path, held) as node:
        with hms.connect(node.address) as own, own.session() as session:
            session.producer(hms.Queue("orders")).send_many([b"%d" % i for i in range(9)])
        login = {"user": "u", "password": PASSWORD, "exception_listener": told.append}
        with hms.connect(node.address, **login) as connection:
            client, auto = (connection.session(ack=mode) for mode in modes)
            local = connection.session(transacted=True)
            consumers = [s.consumer(hms.Queue("orders"), prefetch=3) for s in (client, local, auto)]
            got = [[consumer.receive(timeout_s=60) for _ in range(2)] for consumer in consumers]
            local.producer(hms.Queue("payments")).send(got[1][0].body)

            change_security(node.security, lambda d: without(d, "u", "consume queue:orders"))

            wait_until(lambda: sum(isinstance(one, hms.NotAuthorized) for one in told) == len(got))
            with pytest.raises(hms.AcknowledgeLost):
                got[0][0].ack()
            with pytest.raises(hms.AcknowledgeLost):
                client.ack()
            with pytest.raises(hms.TransactionRolledBack, match="closed by the node"):
                local.commit()
            with pytest.raises(hms.NotAuthorized):
                consumers[2].receive(timeout_s=60)
            lost = {
                one.fields["message_id"] for one in told if isinstance(one, hms.AcknowledgeLost)
            }
        with hms.connect(node.address) as own, own.session() as session:
            back = session.consumer(hms.Queue("orders"))
            again = list(drained(own, back))
            assert session.consumer(hms.Queue("payments")).receive(timeout_s=0.5) is None
    ids = {message.message_id for message in again}
    assert {m.message_id for pair in got[:2] for m in pair} <= ids
    assert {m.message_id for m in got[2]} & ids <= lost


EVERY_MS = 1000


def scheduled(node, peer, name="beat", flags=0, **options):
    """The answer to a SCHEDULE by producer 1, each second from the next one on."""
    first_ms = node.now_ms + EVERY_MS
    head = wire.ScheduleHead(1, name, every_ms=EVERY_MS, first_ms=first_ms, **options)
    encoded = encode_head(Head({}))
    body = ROW.pack(len(encoded), 1, 0, 0, 4, 0, flags, 0) + encoded + b"x"
    return node.answer(node.send(peer, Kind.SCHEDULE, wire.encode_with_body(head, body)))


def passed(node, ms=EVERY_MS):
    """What a schedule is, after so long."""
    node.now_ms += ms
    node.broker.command(lambda fx, now_ms: node.engine.tick(now_ms, fx))
    node.step()
    return node.engine.state.schedules.by_name["beat"]


def test_a_schedule_is_judged_by_what_its_owner_may_when_it_is_due(node, held, caplog):
    """AT-29: it went on for whoever had lost every right. What is refused is not made up for."""
    held = REPLACE(held, version=2)
    may = (*held.role["u"].permissions, "schedule queue:orders")
    held = REPLACE(held, role={**held.role, "u": RoleEntry(permissions=may)})
    node.change(held)
    node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    line = node.engine.state.queues["orders"].line
    assert scheduled(node, "p")["owner"] == "u"
    passed(node)
    assert line.waiting_count == 1

    node.change(REPLACE(without(held, "u", "produce queue:orders"), version=3))
    assert isinstance(scheduled(node, "p", "other"), hms.NotAuthorized)
    node.send("p", Kind.GOODBYE, b"")
    found = passed(node, 10 * EVERY_MS)
    assert (line.waiting_count, found.refused) == (1, 1)
    assert "HMS-1030" in found.error
    assert "schedule 'beat' is not sent" in caplog.text
    node.change(REPLACE(held, user={}, version=4))
    assert (line.waiting_count, passed(node).refused) == (1, 2)

    node.change(REPLACE(held, version=5))
    assert (passed(node).refused, found.error) == (2, "")
    assert line.waiting_count == 2


def test_a_schedule_of_another_user_is_replaced_by_who_may_cancel_it(node, held):
    """A name is known to all, and a schedule elsewhere of the same name ended it."""
    own = {"u": ("schedule queue:orders",), "v": ("schedule queue:ledger", "produce queue:*")}
    roles = {
        name: RoleEntry(permissions=(*held.role[name].permissions, *more))
        for name, more in own.items()
    }
    held = REPLACE(held, role=roles, version=2)
    node.change(held)
    node.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    scheduled(node, "p")
    node.login("q", "v", 2)
    node.ask("q", wire.OpenSession(1))
    node.ask("q", wire.OpenProducer(1, 1, "queue", "ledger"))

    assert isinstance(scheduled(node, "q", may_replace=True), hms.NotAuthorized)
    assert node.engine.state.schedules.by_name["beat"].plan.owner == "u"
    assert isinstance(scheduled(node, "q", may_replace=False), hms.ScheduleExists)
    granted = RoleEntry(permissions=(*roles["v"].permissions, "schedule queue:orders"))
    node.change(REPLACE(held, role={**roles, "v": granted}, version=3))
    assert scheduled(node, "q", may_replace=True)["owner"] == "v"


def test_a_scheduled_publication_is_retained_for_who_may_retain(node, held):
    """A send was asked for this permission, a schedule never."""
    may = (*held.role["v"].permissions, "schedule topic:news")
    node.change(REPLACE(held, role={**held.role, "v": RoleEntry(permissions=may)}, version=2))
    node.login("q", "v", 2)
    node.ask("q", wire.OpenSession(1))
    node.ask("q", wire.OpenProducer(1, 1, "topic", "news"))

    assert isinstance(scheduled(node, "q", flags=FLAG_RETAIN), hms.NotAuthorized)
    assert scheduled(node, "q")["destination"] == "topic:news"
