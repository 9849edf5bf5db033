"""The vectors of the specification that need three copies of a log, by their numbers; as those of
test_failover_client.py with the blocking or the asyncio client, with HMS_HA=full with both.

"a" leads, "b" and "c" follow. Clients reach each over a wire, and each reaches the others and the
arbiter over cables, which a test cuts.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from copies_rig import copies_in
from cut_wire import cut_wire
from failover_client_process import COUNT
from failover_shells import IS_FULL, SHELLS_SHOWN, WAIT_S, Asyncio, Opened, in_doubt, shell_of
from test_clock_steps import HOUR, WallClock

import hms
import hms.aio
from hms.engine.session.temporary_destinations import OWNER_GRACE_MS
from hms.engine.settings import EngineSettings
from tests.acceptance.ha_rig import Sender
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until
from tpmon.tx.decision_log import NodeLog
from tpmon.xa.resource_opening import close_resources

pytestmark = pytest.mark.timeout(400)
HERE = Path(__file__).parent
REMEMBERED = EngineSettings().producers_remembered
QUEUES = ("orders", "other")
OTHERS, EACH = (100_000 if IS_FULL else 12_000), 4_000
SESSIONS = 700
"""Of a connection; it may have 768."""
AT_ONCE = 1_000
"""Each producer may have one frame on its way whatever the others have; a node that stands still
cuts a connection of which 4,096 wait."""
LONG_S = 300
"""A third of it is longer than anything here takes."""


@pytest.fixture(scope="module")
def paid():
    """A PostgreSQL that takes part in transactions."""
    with postgres_server({"max_prepared_transactions": "20"}) as server:
        server.ask("CREATE TABLE paid (id varchar(64) PRIMARY KEY)")
        yield server


@pytest.fixture(scope="module")
def group(tmp_path_factory, paid):
    folder = tmp_path_factory.mktemp("copies")
    config = {
        "hms": {"queue": {name: {} for name in QUEUES}},
        "rm": {"pg": {"kind": "postgresql", "open": paid.url}},
        "server": {
            "own": {
                "module": "failover_services",
                "MIN": 1,
                "MAX": 1,
                "THREADS": 4,
                "python_path": [str(HERE)],
            }
        },
        "service": {"AGAIN": {"idempotent": True}},
        "node": {"replica_timeout_s": 1, "recovery_interval_s": 1.0},
    }
    with pytest.MonkeyPatch.context() as environment, copies_in(folder, **config) as made:
        environment.setenv("HMS_BOOK", str(folder))
        made.book = folder / "runs"
        made.heal()
        yield made


@pytest.fixture
def copies(group):
    """All three there, nothing cut, nothing waits."""
    group.heal()
    group.empty(*QUEUES)
    group.book.unlink(missing_ok=True)
    yield group
    group.heal()


@pytest.fixture(params=SHELLS_SHOWN)
def shell(request):
    with shell_of(request) as made:
        yield made


@pytest.fixture
def opened(shell, copies):
    """Makes connections to the group over its wires, which are closed at the end."""
    with ExitStack() as stack:

        def make(addresses=None, **options):
            given = {"connect_timeout_s": WAIT_S} | options
            return Opened(stack, shell, addresses or copies.addresses, **given)

        yield make


def lose_answers(copies, name):
    """What a machine says to clients from now on is lost."""
    copies.wires[name].lose("down")


def refuse_all(copies):
    """No client reaches any machine."""
    for wire in copies.wires.values():
        wire.refuse()


def pass_all(copies):
    """Each does, over a connection anew."""
    for wire in copies.wires.values():
        wire.cut_client()
        wire.pass_on()


@pytest.mark.timeout(400 + OTHERS // 50)
def test_v04_more_producers_than_are_remembered_do_not_make_it_forgotten(copies, opened):
    """Their clients are there: 12,000 are opened at b meanwhile and send, with HMS_HA=full 100,000.
    The original id; stored once."""
    a = copies.leader
    client = opened(request_timeout_s=LONG_S * 3)
    lose_answers(copies, a)
    sent = client.sending(b"once")
    copies.wires[a].wait_swallowed("down")
    refuse_all(copies)
    copies.kill(a)
    node = copies.nodes[copies.leader]
    with ExitStack() as others:
        for first in range(0, OTHERS, EACH):
            connection = others.enter_context(hms.connect(node.address))
            session = others.enter_context(connection.session())
            producers = [session.producer("other") for _ in range(min(EACH, OTHERS - first))]
            for future in [one.send_async(b"x") for one in producers]:
                future.result(WAIT_S)
        pass_all(copies)

        receipt = sent.result(3 * LONG_S)

        assert copies.found() == [(b"once", receipt.message_id)]


def test_v05_what_was_forgotten_meanwhile_is_in_doubt_and_never_sent_again(copies, opened):
    """So many others have sent at b that it cannot know any more: stored once, never twice."""
    a = copies.leader
    client = opened(request_timeout_s=LONG_S)
    lose_answers(copies, a)
    sent = client.sending(b"once")
    copies.wires[a].wait_swallowed("down")
    refuse_all(copies)
    copies.kill(a)
    others_work(copies.nodes[copies.leader])
    pass_all(copies)

    token = in_doubt(sent)

    assert copies.bodies() == [b"once"]
    with copies.direct() as connection:
        assert connection.outcome(token).state in ("STORED", "FORGOTTEN")
    client.sending(b"next").result(WAIT_S)
    assert copies.bodies() == [b"once", b"next"]


def test_v28_a_commit_that_was_forgotten_meanwhile_is_in_doubt_and_not_said_to_be_undone(
    copies, opened
):
    """So many others have committed at b that it cannot know any more. It was durable."""
    a = copies.leader
    client = opened(transacted=True, request_timeout_s=LONG_S)
    client.shell.do(lambda: client.producer.send(b"work"))
    client.shell.do(lambda: client.connection.administer("queue.list"))
    lose_answers(copies, a)
    committed = client.shell.begin(client.session.commit)
    copies.wires[a].wait_swallowed("down")
    refuse_all(copies)
    copies.kill(a)
    asyncio.run(others_commit(copies.nodes[copies.leader]))
    pass_all(copies)

    token = in_doubt(committed, hms.CommitInDoubt)

    with copies.direct() as connection:
        assert connection.outcome(token).state == "FORGOTTEN"
    assert copies.bodies() == [b"work"]
    client.shell.do(lambda: client.producer.send(b"next"))
    client.shell.do(client.session.commit)
    assert copies.bodies() == [b"work", b"next"]


async def others_commit(node):
    """So many sessions that no more are remembered commit; their clients are lost."""
    with cut_wire(node.address) as wire, hms.connect(node.address) as operator:
        for _ in range(0, REMEMBERED + 10, SESSIONS):
            connection = await hms.aio.connect(wire.address, reconnect=False)
            await asyncio.gather(*[commit_one(connection) for _ in range(SESSIONS)])
            wire.cut_client()
            with suppress(hms.HmsError):
                await connection.close()
            wait_until(lambda: nobody_sends(operator), WAIT_S)


def nobody_sends(operator):
    """The node has closed all that a client which is lost had."""
    return operator.administer("queue.show", {"name": "other"})["producers"] == 0


async def commit_one(connection):
    session = await connection.session(transacted=True)
    producer = await session.producer("other")
    await producer.send(b"x")
    await session.commit()


def others_work(node):
    """So many producers that no more are remembered send; their client is lost."""
    with (
        cut_wire(node.address) as wire,
        hms.connect(wire.address, reconnect=False) as connection,
        connection.session() as session,
    ):
        producers = [session.producer("other") for _ in range(REMEMBERED + 10)]
        for at in range(0, len(producers), AT_ONCE):
            for future in [one.send_async(b"x") for one in producers[at : at + AT_ONCE]]:
                future.result(WAIT_S)
        wire.cut_client()
        wait_until(lambda: not connection.is_connected, WAIT_S)
    with hms.connect(node.address) as operator:
        wait_until(lambda: nobody_sends(operator), WAIT_S)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_v17_v18_what_is_not_persistent_is_repeated_where_nothing_moved_and_else_in_doubt(
    copies, opened, is_replaced
):
    """17: the client alone was cut off, and the confirmation lost: stored once. 18: a take-over; it
    is not at b, and its client does not send it again."""
    a, client = copies.leader, opened()
    lose_answers(copies, a)
    sent = client.sending(b"once", persistent=False)
    copies.wires[a].wait_swallowed("down")
    if is_replaced:
        copies.kill(a)
    pass_all(copies)

    if is_replaced:
        token = in_doubt(sent)
        with copies.direct() as connection:
            assert connection.outcome(token).state == "FORGOTTEN"
    else:
        sent.result(WAIT_S)
    client.sending(b"next").result(WAIT_S)
    assert copies.bodies() == [b"once", b"next"][is_replaced:]


def test_v39_what_the_primary_before_had_sent_comes_after_the_next_one_answered_and_is_dropped(
    copies, opened
):
    """Its delivery was on its way when it stood still past its lease. b delivers the message; what
    a says when it goes on reaches nobody, and its client stays at b."""
    a, client = copies.leader, opened()
    wire, epoch = copies.wires[a], copies.said()["epoch"]
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    taken = client.shell.begin(lambda: consumer.receive(WAIT_S))
    wire.hold("down")
    with copies.direct() as connection, connection.session() as session:
        session.producer("orders").send(b"one")
    wire.wait_swallowed("down")
    copies.nodes[a].pause()

    assert bytes(taken.result(WAIT_S).body) == b"one"
    copies.nodes[a].resume()
    wire.pass_on()
    copies.heal()
    assert copies.said()["epoch"] > epoch
    assert copies.leader != a
    with copies.direct() as connection, connection.session() as session:
        session.producer("orders").send(b"two")
    following = client.shell.do(lambda: consumer.receive(WAIT_S))
    assert bytes(following.body) == b"two"
    client.sending(b"three").result(WAIT_S)
    assert bytes(client.shell.do(lambda: consumer.receive(WAIT_S)).body) == b"three"


@pytest.mark.parametrize("is_durable", [False, True])
def test_v31_a_decision_in_flight_holds_everywhere_or_nowhere(
    copies, opened, paid, monkeypatch, is_durable
):
    """Of a queue and a PostgreSQL: the log says which."""
    a, client = copies.leader, opened()
    way = "down" if is_durable else "up"
    decide = NodeLog.decide

    def lost(self, *told):
        copies.wires[a].lose(way)
        return decide(self, *told)

    monkeypatch.setattr(NodeLog, "decide", lost)
    number = f"{type(client.shell).__name__}{is_durable}"
    ended = client.shell.begin(lambda: pay(client, number))
    copies.wires[a].wait_swallowed(way)
    monkeypatch.setattr(NodeLog, "decide", decide)
    copies.kill(a)
    pass_all(copies)

    if is_durable:
        ended.result(WAIT_S)
    else:
        with pytest.raises(hms.TransactionRolledBack):
            ended.result(WAIT_S)
    wait_until(lambda: paid.ask("SELECT gid FROM pg_prepared_xacts") == [], WAIT_S)
    rows = {row[0] for row in paid.ask("SELECT id FROM paid")}
    assert (number in rows) == is_durable
    assert copies.bodies() == [number.encode()] * is_durable
    close_resources()


def pay(client, number):
    """A row and a message in one transaction."""
    if isinstance(client.shell, Asyncio):
        return pay_later(client, number)
    with client.connection.transaction(timeout_s=WAIT_S):
        hms.rm("pg").execute("INSERT INTO paid VALUES (%s)", (number,))
        with hms.rm("hms").producer("orders") as producer:
            producer.send(number.encode())
    return None


async def pay_later(client, number):
    async with client.connection.session(xa=True) as session:
        producer = await session.producer("orders")
        async with client.connection.transaction(timeout_s=WAIT_S) as transaction:
            await transaction.enlist(session)
            (await transaction.rm("pg")).execute("INSERT INTO paid VALUES (%s)", (number,))
            await producer.send(number.encode())


def test_v40_a_client_alone_that_is_cut_off_comes_back_to_where_it_was(copies, opened):
    """The others say that they follow; nothing moves, nothing is stored twice."""
    a, client = copies.leader, opened()
    epoch = copies.said()["epoch"]
    client.sending(b"before").result(WAIT_S)
    wire = copies.wires[a]
    wire.lose("down")
    late = client.sending(b"meanwhile")
    wire.wait_swallowed("down")
    wire.refuse()
    wire.cut_client()

    wait_until(lambda: standbys_that_answered(client) == 2, WAIT_S)
    assert not late.done()
    wire.pass_on()

    late.result(WAIT_S)
    assert copies.bodies() == [b"before", b"meanwhile"]
    assert (copies.leader, copies.said()["epoch"]) == (a, epoch)
    assert client.connection.is_connected


def standbys_that_answered(client):
    """How many machines have said that they follow."""
    told = [one for one in client.events if isinstance(one.reason, hms.NotPrimary)]
    return len({one.address for one in told})


def test_v41_a_primary_that_is_cut_off_confirms_nothing_and_its_client_moves(copies, opened):
    """From b, c and the arbiter, with a client that reaches all of them."""
    a, client = copies.leader, opened()
    epoch = copies.said()["epoch"]
    client.sending(b"before").result(WAIT_S)
    copies.cut_off(a)
    sent = [client.sending(b"%d" % number) for number in range(5)]

    for one in sent:
        one.result(WAIT_S)

    with hms.connect([copies.wires[n].address for n in copies.wires if n != a]) as other:
        said = other.administer("status")["replication"]
    assert (said["replica"] != a, said["epoch"] > epoch) == (True, True)
    copies.heal()
    found = copies.bodies()
    assert found[0] == b"before"
    assert sorted(found[1:]) == [b"%d" % number for number in range(5)]
    assert copies.said()["replica"] == said["replica"]


def test_v45_a_temporary_queue_has_its_name_and_its_answers_at_the_next_primary(copies, opened):
    """It ends a minute after its owner has not come back."""
    a, owner, sender = copies.leader, opened(), opened()
    mine = owner.shell.do(owner.session.temporary_queue)
    leaving = opened()
    left = leaving.shell.do(leaving.session.temporary_queue)
    answers = sender.shell.do(lambda: sender.session.producer(mine))
    first = sender.shell.do(lambda: answers.send(b"answer"))
    consumer = owner.shell.do(lambda: owner.session.consumer(mine))
    leaving.shell.do(leaving.connection.close)
    with copies.direct() as connection:
        wait_until(lambda: not has(connection, left.name), WAIT_S)
    copies.kill(a)

    sender.shell.do(lambda: answers.send(b"another one"))
    found = [owner.shell.do(lambda: consumer.receive(WAIT_S)) for _ in range(2)]

    assert [bytes(one.body) for one in found] == [b"answer", b"another one"]
    assert found[0].message_id == first.message_id
    with pytest.raises(hms.DestinationNotFound):
        sender.shell.do(lambda: sender.session.producer(left))
    if IS_FULL:
        owner.shell.do(consumer.close)
        copies.wires[copies.leader].lose("up")
        with copies.direct() as connection:
            wait_until(lambda: not has(connection, mine.name), OWNER_GRACE_MS / 1000 + WAIT_S)


def has(connection, name):
    try:
        connection.administer("queue.show", {"name": name})
    except hms.DestinationNotFound:
        return False
    return True


@pytest.mark.parametrize("service", ["ONCE", "AGAIN"])
def test_v48_a_call_that_ran_is_in_doubt_and_made_again_only_if_it_may(copies, opened, service):
    """[service.AGAIN] has idempotent = true."""
    a, client = copies.leader, opened()
    called = client.shell.begin(lambda: client.connection.call(service, service, timeout_s=WAIT_S))
    wait_until(lambda: runs(copies, service) == 1, WAIT_S)
    copies.kill(a)

    if service == "ONCE":
        with pytest.raises(hms.ServerLost, match="Whether it ran is not known"):
            called.result(WAIT_S)
        with copies.book.open("a") as book:
            book.write("there\n")
        call = client.connection.call
        assert client.shell.do(lambda: call("ONCE", "there", timeout_s=WAIT_S)).data == "there"
        assert runs(copies, service) == 1
    else:
        assert called.result(WAIT_S).data == service
        assert runs(copies, service) == 2


def runs(copies, service):
    """How often it has begun."""
    return copies.book.read_text().splitlines().count(service) if copies.book.exists() else 0


class ClientProcess:
    """A client that can be suspended."""

    def __init__(self, copies, shell, task, prefix=()):
        words = [type(shell).__name__.lower(), task, *copies.addresses]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(HERE / "failover_client_process.py"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(HERE.parent.parent), "PYTHONWARNINGS": "ignore"},
        )
        self.go_on = self._go_on

    def said(self):
        """Its next word."""
        line = self._process.stdout.readline()
        assert line, self._process.wait()
        return json.loads(line)

    def _go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number):
        os.kill(self._process.pid, number)

    def wait(self):
        return self._process.wait(WAIT_S)

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@contextmanager
def client_process(*given):
    made = ClientProcess(*given)
    try:
        yield made
    finally:
        made.close()


def test_v51_a_client_that_slept_over_two_switchovers_is_told_what_happened(copies, shell):
    """Its send and its commit were durable, and their answers lost: as 3 and 23."""
    with client_process(copies, shell, "send_and_commit") as client:
        assert client.said() == "ready"
        first = copies.leader
        lose_answers(copies, first)
        client.go_on()
        wait_until(lambda: (len(copies.found()), len(copies.found("other"))) == (1, 1), WAIT_S)
        client.signal(signal.SIGSTOP)
        moved = [copies.move(), copies.move()]
        assert moved[0] != first
        pass_all(copies)
        client.signal(signal.SIGCONT)

        message_id = client.said()
        assert client.wait() == 0

    assert copies.found() == [(b"once", message_id)]
    assert copies.bodies("other") == [b"work"]


def test_v53_a_forked_child_is_refused_at_its_first_use(copies, shell):
    """Each of four calls; the parent goes on."""
    with client_process(copies, shell, "fork") as client:
        assert client.said() == 4
        assert client.wait() == 0
    assert copies.bodies() == [b"parent"] * 2


def test_v54_a_clients_clock_has_no_effect(copies, shell, tmp_path):
    """One hour off, then stepping, over a take-over: all once, nothing expires."""
    clock = WallClock(tmp_path)
    clock.set(HOUR)
    told = []
    with client_process(copies, shell, "send_and_receive", clock.prefix) as client:
        for step in (HOUR, -HOUR, 2 * HOUR, 0, -HOUR):
            assert client.said() == "ready"
            clock.set(step)
            if step == 2 * HOUR:
                copies.kill(copies.leader)
            client.go_on()
        told = client.said()
        assert client.wait() == 0

    assert told == [str(number) for number in range(COUNT)]
    assert copies.bodies() == []
    with copies.direct() as connection:
        assert connection.administer("queue.show", {"name": "orders"})["expired"] == 0


def test_a_group_of_three_goes_on_when_its_arbiter_and_one_copy_are_away(copies):
    """The cables do what they are for: cut from b and the arbiter, a goes on with c."""
    a = copies.leader
    one = next(name for name in copies.nodes if name != a)
    epoch = copies.said()["epoch"]
    for between in ((a, one), (one, a), (a, "arbiter")):
        copies.cables[between].cut()
    sender = Sender(list(copies.nodes.values()))
    sender.wait_for(50)
    sender.end()
    assert copies.said()["epoch"] == epoch
    assert copies.bodies() == sender.confirmed
