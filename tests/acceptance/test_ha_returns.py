"""A machine that leads no more comes back by itself, as one that follows; and how it is ended."""

import os
import signal
from contextlib import closing

import pytest

import hms
from hms.boot.config import load
from hms.boot.replicating import make_arbiter
from tests.acceptance.copies_rig import copies_in
from tests.acceptance.failover_shells import Asyncio, Blocking
from tests.acceptance.ha_rig import (
    QUEUES,
    WAIT_S,
    Sender,
    bodies,
    connect,
    hms_command,
    switch_over,
    type_switchover,
)
from tests.acceptance.pair_rig import BRIEF_S, arbiter, pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    node = {"replica_timeout_s": 3, "heartbeat_s": 60}
    with arbiter(folder, BRIEF_S) as decided_by, pair(folder, decided_by, node=node) as two:
        two.a.boot()
        yield two


@pytest.fixture
def two(made):
    """Both there, and nothing waits."""
    made.boot()
    with connect(*made.machines) as connection:
        connection.administer("queue.purge", {"name": "orders"})
    return made


@pytest.fixture
def three(tmp_path):
    node = {"replica_timeout_s": 1}
    with copies_in(tmp_path, lease_s=BRIEF_S, hms=QUEUES, node=node) as copies:
        for one in copies.nodes.values():
            one.boot()
        copies.wait_for_all()
        yield copies


def test_a_primary_that_was_stopped_past_its_lease_follows(two):
    """It was replaced meanwhile. Nobody boots it: it has the whole log again, and leads next."""
    old, new = two.leader, two.follower
    pid = old.pid
    with connect(*two.machines) as connection, connection.session() as session:
        producer = session.producer("orders")
        producer.send(b"before")
        old.pause()
        with connect(new) as later:
            assert later.administer("status")["replication"]["replica"] == new.folder.name
        old.resume()
        producer.send(b"after")

        two.wait_for_both()
        assert (two.leader, old.pid) == (new, pid)
        assert "stands by" in old.log
        assert "HMS-5020" in old.log or "HMS-5071" in old.log
        new.kill()
        producer.send(b"at last")
    assert bodies(*two.machines) == [b"before", b"after", b"at last"]
    assert two.machines[two.machines.index(old)].pid == pid


def test_a_primary_that_is_cut_off_follows_when_it_is_reached_again(three):
    """It can confirm nothing and cannot know who leads: it ends its term, and not its process."""
    leader = three.leader
    pid = three.nodes[leader].pid
    sender = Sender(list(three.nodes.values()))
    sender.wait_for(20)
    three.cut_off(leader)
    sender.wait_for(20)
    for cable in three.cables.values():
        cable.heal()

    wait_until(lambda: len(three.said()["members"]) == 3, WAIT_S)
    wait_until(lambda: three.said()["failures_survived"] == 1, WAIT_S)
    sender.end()
    assert three.leader != leader
    assert three.nodes[leader].pid == pid
    assert three.bodies() == sender.confirmed


def test_a_standby_that_is_told_to_stop_says_so_and_ends_with_0(two):
    """It ended by the signal, without a word."""
    one = two.follower
    assert one.stop() == 0

    assert sorted(two.replication()["members"]) == ["a", "b"]  # it may be back at once
    assert "told to stop" in one.log.splitlines()[-1]
    with connect(*two.machines) as connection:
        connection.session().producer("orders").send(b"goes on")
    assert two.leader is not one


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_told_to_stop_while_it_moves_ends(two, number):
    """An operator wants the machine: it hands over, and does not begin anew as a standby."""
    old, new = two.leader, two.follower
    switch_over(two.machines)
    os.kill(old.pid, number)
    assert old.wait() == 0
    wait_until(lambda: two.leader is new, WAIT_S)


def test_a_switchover_that_is_said_at_a_standby_goes_to_the_one_that_leads(two):
    """No client's address of the other machine is known there: it goes over the copies' link."""
    old, new = two.leader, two.follower
    code, said = type_switchover(new)
    assert (code, said) == (
        0,
        f"{new.folder.name} leads node1 in epoch {two.replication()['epoch']}\n",
    )
    assert two.leader is new
    two.wait_for_both()
    assert f"{new.folder.name} sends on what" in old.log

    with connect(*two.machines) as client, client.session(transacted=True) as session:
        session.producer("orders").send(b"work")
        code, said = type_switchover(old, "--drain-s", "0.1")
        assert code == 1
        assert "HMS-5073" in said
        assert "1 transaction with work" in said
        code, said = hms_command(old, "switchover", "--to", new.folder.name)
        assert "it leads already" in said
        session.rollback()


def test_who_said_it_at_a_standby_hears_who_leads_when_the_other_one_dies(two):
    """It cannot answer any more: the arbiter is looked at meanwhile."""
    old, new = two.leader, two.follower
    with connect(*two.machines) as client:
        session = client.session(transacted=True)
        session.producer("orders").send(b"work")
        told = Blocking().begin(lambda: type_switchover(new))
        wait_until(lambda: two.replication()["drains_for"], WAIT_S)
        old.kill()

        code, said = told.result(WAIT_S)
    assert (code, f"{new.folder.name} leads node1" in said) == (0, True), said


def test_the_best_copy_of_three_is_taken_where_none_is_named(three):
    """One that has everything; none does where each says why not."""
    leader, other = three.leader, next(one for one in three.nodes if one != three.leader)
    assert three.nodes[other].stop() == 0
    third = next(one for one in three.nodes if one not in (leader, other))

    def moves():
        """On a busy machine the one that leads may be granted the next epoch again."""
        if three.leader != third:
            code, said = hms_command(three.nodes[leader], "switchover")
            assert code or f"{third} leads" in said, said
        return three.leader == third

    wait_until(moves, 2 * WAIT_S)

    wait_until(lambda: "copies that count" in three.nodes[third].log, WAIT_S)
    addresses = [one.address for one in three.nodes.values()]
    with hms.connect(addresses, request_timeout_s=10) as sender:
        producer = sender.session().producer("orders")
        producer.send(b"confirmed, and the record of who counts with it")
        three.nodes[leader].kill()
        waits = producer.send_async(b"nobody else has it")
        # The one that leads tells how it is though its log waits: it had no answer for 60 s.
        wait_until(lambda: not any(row["is_heard"] for row in three.said()["replicas"]), WAIT_S)
        assert not waits.done()
    with three.direct() as operator, pytest.raises(hms.SwitchoverRefused) as refused:
        operator.administer("replica.switchover", {"drain_s": WAIT_S})
    assert "another replica: none has everything" in str(refused.value)
    assert f"{leader}: " in str(refused.value)
    assert f"{other}: " in str(refused.value)


@pytest.mark.parametrize("shell", [Blocking, Asyncio])
def test_a_client_that_waits_asks_the_others_before_its_heartbeat_is_over(two, shell):
    """The machine that leads stands still, and the other one leads by now: only silence tells."""
    old, new, told = two.leader, two.follower, []
    addresses = [one.address for one in two.machines]
    given = {"request_timeout_s": WAIT_S, "event_listener": told.append}
    client = shell()
    connection = client.do(lambda: client.connect(addresses, **given))
    session = client.do(connection.session)
    producer = client.do(lambda: session.producer("orders"))
    client.do(lambda: producer.send(b"before"))
    old.pause()
    try:
        client.begin(lambda: producer.send(b"waits")).result(WAIT_S)
    finally:
        old.resume()

    assert f"{new.address} leads in epoch" in str(told[0].reason)
    client.do(connection.close)
    client.close()
    two.wait_for_both()
    assert two.leader is new


def test_a_move_is_refused_while_nobody_could_be_granted_an_epoch(three):
    """The one that leads would give up, and no other one could begin: nothing is changed."""
    for (_, other), cable in three.cables.items():
        if other == "arbiter":
            cable.cut()
    wait_until(lambda: three.said()["arbiter"] == "does not answer", WAIT_S)
    with three.direct() as operator:
        with pytest.raises(hms.SwitchoverRefused, match="could be granted the next epoch"):
            operator.administer("replica.switchover")
        operator.session().producer("orders").send(b"goes on")
    for cable in three.cables.values():
        cable.heal()
    wait_until(lambda: three.said()["arbiter"] == "answers", WAIT_S)
    assert three.move() == three.leader


def nobody_leads(one):
    """As the arbiter has it."""
    config = load(one.config_file)
    with closing(make_arbiter(config, config.node())) as arbiter:
        return arbiter.read().leader is None


def test_a_standby_says_that_nobody_leads(two):
    """There is nobody to whom it could be sent on."""
    one = two.follower
    leader = two.leader
    one.pause()  # before it could take over
    try:
        leader.kill()
        wait_until(lambda: nobody_leads(one), WAIT_S)  # else the order waits for that machine
        said = hms_command(one, "switchover", "--timeout", "1")[1]
        assert "nobody leads" in said
    finally:
        one.resume()
