"""A planned move: what was begun ends first, then the other machine leads, and no client is told of
an error. Two processes with folders of their own, and a real etcd.
"""

import re
import threading

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.cli.target import Target
from hms.boot.switching import REST_BYTES
from tests.acceptance.failover_shells import Blocking
from tests.acceptance.ha_rig import NOT_NOW, WAIT_S, connect, switch_over
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
LONG_S = 120
background = Blocking().begin


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    node = {"replica_timeout_s": 1, "drain_s": LONG_S, "heartbeat_s": 60}
    with arbiter(folder) as decided_by, pair(folder, decided_by, node=node) as two:
        two.a.boot()
        yield two


@pytest.fixture
def two(made):
    """Both there, nothing waits."""
    made.boot()
    with connect(*made.machines) as connection:
        for name in ("orders", "held"):
            connection.administer("queue.purge", {"name": name})
    return made


class Watched:
    """A client, and what its listeners were told."""

    def __init__(self, two):
        self.errors, self.events = [], []
        self.connection = connect(
            *two.machines, exception_listener=self.errors.append, event_listener=self.events.append
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def has_moved(self):
        """And was told of nothing else."""
        kinds = [one.kind for one in self.events]
        return (*kinds[:1], *kinds[-1:], "closed" in kinds) == ("moved", "reconnected", False)


def switchover(two, *, is_repeated=True, **how):
    """In the background; a future. Ordered again where the other machine stood still before the
    drain began, and not afterwards."""
    leader, follower = two.leader, two.follower
    seen = len(leader.log)

    def has_begun():
        return not is_repeated or "what was begun has" in leader.log[seen:]

    future = background(lambda: switch_over(two.machines, has_begun=has_begun, **how))
    future.to = follower
    return future


def is_draining(two):
    """The node has begun to drain, and not ended it."""
    return two.replication()["drains_for"] != ""


def test_what_was_begun_ends_first_and_nothing_comes_again(two):
    """An open transaction, a message that is not acknowledged, a listener that runs, and messages
    that nobody has seen: the move waits for the first three, and the rest is given back."""
    started, may_end, heard = threading.Event(), threading.Event(), []

    def listen(message):
        started.set()
        heard.append((bytes(message.body), message.redelivered))
        assert may_end.wait(WAIT_S)

    with Watched(two) as sender, Watched(two) as manual, Watched(two) as listening:
        producer = sender.connection.session().producer("orders")
        for number in range(30):
            producer.send(b"%d" % number)
        session = manual.connection.session(ack=hms.AckMode.CLIENT)
        own = session.consumer("orders", prefetch=10)
        seen = own.receive(WAIT_S)
        hearing = listening.connection.session().consumer("orders")
        hearing.listen(listen)
        work = sender.connection.session(transacted=True)
        work.producer("orders").send(b"in a transaction")
        producer.send(b"30")
        assert started.wait(WAIT_S)

        moving = switchover(two)
        wait_until(lambda: is_draining(two), WAIT_S)
        producer.send(b"31")  # plain sends go on
        seen.ack()
        work.producer("orders").send(b"the same one")
        work.commit()
        assert not moving.done()
        assert len(heard) == 1  # nothing new is delivered
        may_end.set()
        assert moving.result(WAIT_S).get("to", moving.to.folder.name) == moving.to.folder.name

        wait_until(lambda: two.leader is moving.to, WAIT_S)
        own.close()
        wait_until(lambda: len(heard) == 33, WAIT_S)
        producer.send(b"32")
        wait_until(lambda: len(heard) == 34, WAIT_S)
        assert not any(redelivered for _, redelivered in heard)
        sent = {b"%d" % number for number in range(33)} | {b"in a transaction", b"the same one"}
        assert sorted([bytes(seen.body), *(body for body, _ in heard)]) == sorted(sent)
        for one in (sender, manual, listening):
            wait_until(one.has_moved, WAIT_S)  # told in a thread of its own
            assert one.errors == []


def test_what_does_not_end_refuses_the_move_and_all_goes_on(two):
    """50: the numbers and the client are named, nothing is lost, flagged or told; then by force."""
    with Watched(two) as client:
        session = client.connection.session(transacted=True)
        producer, plain = session.producer("orders"), client.connection.session()
        assert producer.send(b"held").message_id  # the node has it: a send is not waited for
        waiting = plain.consumer("orders")
        leader = two.leader
        with pytest.raises(
            hms.SwitchoverRefused, match=r"after 0\.5 s there are 1 transaction with .*\(client \d+"
        ):
            switchover(two, drain_s=0.5).result(WAIT_S)

        assert two.leader is leader
        plain.producer("orders").send(b"as before")
        assert waiting.receive(WAIT_S).body == b"as before"
        session.commit()
        message = waiting.receive(WAIT_S)
        assert (message.body, message.redelivered) == (b"held", False)
        assert (client.errors, client.events) == ([], [])
        assert producer.send(b"cut off").message_id
        moving = switchover(two, drain_s=0, is_forced=True)
        moving.result(WAIT_S)
        try:  # a commit that comes before the node has stopped is one more
            session.commit()
        except hms.TransactionRolledBack:
            is_there = False
        else:
            is_there = True
        wait_until(lambda: two.leader is moving.to, WAIT_S)
        plain.producer("orders").send(b"behind")
        found = [waiting.receive(WAIT_S).body for _ in range(1 + is_there)]
        assert found == [b"cut off", b"behind"][not is_there :]


def test_a_target_that_stands_still_for_a_moment_is_waited_for(two):
    """While a listener runs: a busy machine is no reason to begin all over."""
    may_end, heard = threading.Event(), []

    def listen(message):
        heard.append(bytes(message.body))
        assert may_end.wait(WAIT_S)

    with Watched(two) as client:

        def is_heard():
            copies = client.connection.administer("status")["replication"]["replicas"]
            return all(one["is_heard"] for one in copies)

        consumer = client.connection.session().consumer("orders")
        consumer.listen(listen)
        client.connection.session().producer("orders").send(b"1")
        wait_until(lambda: heard, WAIT_S)
        moving = switchover(two)
        wait_until(lambda: is_draining(two), WAIT_S)
        moving.to.pause()
        try:
            wait_until(lambda: not is_heard(), WAIT_S)
        finally:
            moving.to.resume()
        wait_until(is_heard, WAIT_S)
        assert not moving.done()
        may_end.set()
        moving.result(WAIT_S)
        wait_until(lambda: two.leader is moving.to, WAIT_S)
        assert client.errors == []


def test_a_target_that_is_killed_refuses_the_move(two):
    """While a listener runs; it goes on with the next message where it was."""
    may_end, heard = threading.Event(), []

    def listen(message):
        heard.append(bytes(message.body))
        assert may_end.wait(WAIT_S)

    with Watched(two) as client:
        session = client.connection.session()
        producer = client.connection.session().producer("orders")
        consumer = session.consumer("orders")
        consumer.listen(listen)
        producer.send(b"1")
        wait_until(lambda: heard, WAIT_S)
        moving = switchover(two)
        wait_until(lambda: is_draining(two), WAIT_S)
        late = producer.send_async(b"2")
        moving.to.kill()
        with pytest.raises(hms.SwitchoverRefused):
            moving.result(WAIT_S)
        late.result(WAIT_S)
        may_end.set()
        wait_until(lambda: heard == [b"1", b"2"], WAIT_S)
        assert (client.errors, client.events) == ([], [])


def test_what_begins_meanwhile_waits_and_takes_effect_once(two):
    """A transaction that begins during the drain, with its commit, and sends of which no log keeps
    anything: they wait, and go to the next primary. A second move is refused meanwhile."""
    with Watched(two) as held, Watched(two) as client:
        work = held.connection.session(transacted=True)
        work.producer("orders").send(b"first")
        moving = switchover(two)
        wait_until(lambda: is_draining(two), WAIT_S)
        with pytest.raises(hms.SwitchoverRefused, match="under way"):
            switchover(two).result(WAIT_S)
        later = client.connection.session(transacted=True)
        producer = later.producer("orders")
        passing = client.connection.session().producer("orders", persistent=False)
        sends = [producer.send_async(b"second") for _ in range(3)]
        commits = background(later.commit)
        unlogged = [passing.send_async(b"passing") for _ in range(3)]
        assert not commits.done()
        work.commit()
        moving.result(WAIT_S)
        commits.result(WAIT_S)
        for one in [*sends, *unlogged]:
            one.result(WAIT_S)
        assert (held.errors, client.errors) == ([], [])
        wait_until(lambda: two.leader is moving.to, WAIT_S)
        consumer = client.connection.session().consumer("orders")
        found = [consumer.receive(WAIT_S) for _ in range(7)]
        assert consumer.receive(0) is None
        assert not any(one.redelivered for one in found)
        bodies = sorted(bytes(one.body) for one in found)
        assert bodies == [b"first", *[b"passing"] * 3, *[b"second"] * 3]


def boot_anew(two):
    """The machine that follows, until it has everything; it has applied little of it then."""
    one, leader = two.follower, two.leader
    joined = leader.log.count(" joins, ")
    one.stop()
    one.boot()
    wait_until(lambda: leader.log.count(" joins, ") > joined, WAIT_S)  # not as it was before
    with connect(*two.machines) as operator:

        def may_lead():
            rows = operator.administer("status")["replication"]["replicas"]
            return all(row["is_in_sync"] and row["is_member"] for row in rows)

        wait_until(may_lead, WAIT_S)
    return one


def test_who_was_just_booted_applies_the_log_before_anything_stops(two):
    """It read the rest when it led, and all clients waited for that. What is refused where it takes
    too long is a test of the unit: how long it takes is the machine's."""
    with Watched(two) as client:
        producer = client.connection.session().producer("held")
        for _ in range(100):
            producer.send_many([b"waits"] * 1000)
        for sent in [producer.send_async(b"waits") for _ in range(40_000)]:
            sent.result(WAIT_S)

        one = boot_anew(two)
        told = switchover(two).result(WAIT_S)
        wait_until(lambda: two.leader is one, WAIT_S)

        assert told.get("left_bytes", 0) <= REST_BYTES
        applied = int(re.findall(r"(\d+) records of the log are applied already", one.log)[-1])
        assert applied >= 97  # of the 100 large ones at least: the rest may be many small ones
        assert client.errors == []
        client.connection.administer("queue.purge", {"name": "held"})


def test_of_a_move_whose_answer_is_lost_the_arbiter_tells_how_it_ended(two, monkeypatch):
    """The machine that led may end before its answer is read: it was an error, of a move that was
    made. Where nobody else leads afterwards it stays one."""
    leader, follower = two.leader, two.follower
    ask, is_ordered = Target.administer, []

    def lost(target, verb, **arguments):
        if is_ordered:
            ask(target, verb, **arguments)
        raise hms.ConnectionLost(address="ipc://a", reason="it ended")

    monkeypatch.setattr(Target, "administer", lost)

    def typed(*words):
        line = ["switchover", "--config", str(leader.config_file), *words]
        done = CliRunner().invoke(main, line)
        return None if NOT_NOW.search(done.output) else done

    failed = typed("--timeout", "1")
    assert failed.exit_code == 1
    assert "HMS-1004" in failed.output
    assert two.leader is leader

    is_ordered.append(True)
    done = wait_until(typed, 2 * WAIT_S)
    assert done.exit_code == 0, done.output
    assert " leads node1 in epoch " in done.output
    wait_until(lambda: two.leader is follower, WAIT_S)
