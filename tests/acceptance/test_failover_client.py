"""What a client is told when its node is lost: the vectors of the specification, by their numbers.

Each runs with the blocking or the asyncio client; HMS_HA=full: with both (55). "a" is the node, "b"
the same log booted again, "m" another node. Frames and answers are lost on a wire that is cut.
Those that need three copies of a log are in test_failover_client_copies.py.
"""

import random
import shutil
import uuid
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import pytest
from cut_wire import cut_wire
from failover_shells import IS_FULL, SHELLS_SHOWN, WAIT_S, Opened, in_doubt, shell_of

import hms
from hms.client.browse_pages import PAGE_MESSAGES
from hms.client.core.link import State
from hms.testing import node
from hms.wire.xa_constants import XA_OK
from hms.wire.xid import Xid
from tests.support.waiting import drained, wait_until

CONFIG = {
    "hms": {
        "queue": {"orders": {}, "small": {"max_messages": 1}, "other": {}},
        "topic": {"news": {}},
    },
    "node": {"node1": {"heartbeat_s": 60}},  # no client that is late is taken for gone
}
BRIEF_S = 4
"""So long all but what is to be in doubt may take, too."""
LONG_S = 300
"""Longer than anything here takes."""
LOSSES = 50 if IS_FULL else 4
FILE_BYTES = 3_000_001


@pytest.fixture(params=SHELLS_SHOWN)
def shell(request):
    with shell_of(request) as made:
        yield made


@pytest.fixture(scope="module")
def node_m():
    with node(config=CONFIG) as started:
        yield started


@pytest.fixture(scope="module")
def node_l():
    """The node of most tests, killed and booted again and again."""
    with node(config=CONFIG) as started:
        yield started


@pytest.fixture
def log(node_l):
    """Node L behind a wire, its queues empty."""
    if not node_l.is_running:
        node_l.boot()
    with cut_wire(node_l.address) as wire:
        yield SimpleNamespace(node=node_l, wire=wire, address=wire.address)
    if not node_l.is_running:
        node_l.boot()
    empty(node_l)


@pytest.fixture
def node_n(node_m):
    """Node M for tests that store something there."""
    yield node_m
    empty(node_m)


def empty(one):
    with hms.connect(one.address) as connection:
        for name in ("orders", "small", "other"):
            connection.administer("queue.purge", {"name": name})


def bodies(one, name="orders"):
    """What waits there."""
    with hms.connect(one.address) as connection, connection.session() as session:
        return [bytes(message.body) for message in session.browser(name)]


@pytest.fixture
def opened(shell):
    """Makes connections, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda *given, **options: Opened(stack, shell, *given, **options)


def swallowed(log, client, way):
    """A send whose frame ("up") or whose confirmation ("down") is lost on the wire."""
    log.wire.lose(way)
    sent = client.sending(b"once")
    log.wire.wait_swallowed(way)
    return sent


def kill(log):
    log.node.kill()
    log.wire.pass_on()


def boot_again(log):
    """Its node is killed and comes back with the same log."""
    kill(log)
    log.node.boot()


def test_v01_a_send_that_the_node_never_read_is_repeated(log, opened):
    """It was written, the node was killed before it read it."""
    client = opened(log.address)
    sent = swallowed(log, client, "up")
    boot_again(log)

    receipt = sent.result(WAIT_S)

    assert receipt.message_id
    assert bodies(log.node) == [b"once"]


def test_v03_a_durable_send_whose_confirmation_was_lost_is_answered_as_it_was(log, opened):
    """The id is the original one: the message is there under it, once."""
    client = opened(log.address)
    sent = swallowed(log, client, "down")
    boot_again(log)

    receipt = sent.result(WAIT_S)

    with hms.connect(log.node.address) as connection, connection.session() as session:
        assert [one.message_id for one in session.browser("orders")] == [receipt.message_id]


def test_v07_a_refusal_that_was_lost_is_told_again(log, opened):
    """The queue is full: repeated, answered by the node that came back, stored once at most."""
    client = opened(log.address, queue="small")
    client.sending(b"fills it").result(WAIT_S)
    log.wire.lose("down")
    sent = client.sending(b"too many")
    log.wire.wait_swallowed("down")
    boot_again(log)

    with pytest.raises(hms.QueueFull):
        sent.result(WAIT_S)

    assert bodies(log.node, "small") == [b"fills it"]


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_a_send_to_what_was_deleted_meanwhile_is_not_said_to_have_failed(log, opened, is_stored):
    """Its producer is not opened again; what the node has taken before, it has taken."""
    with hms.connect(log.node.address) as connection:
        connection.administer("queue.create", {"name": "brief"})
    client = opened(log.address, queue="brief")
    log.wire.lose("down" if is_stored else "up")
    sent = client.sending(b"once")
    log.wire.wait_swallowed("down" if is_stored else "up")
    with hms.connect(log.node.address) as connection:
        if is_stored:
            wait_until(lambda: len(bodies(log.node, "brief")) == 1, WAIT_S)
        connection.administer("queue.delete", {"name": "brief", "force": True})
    log.wire.cut_client()
    log.wire.pass_on()

    if is_stored:
        assert sent.result(WAIT_S).message_id
    else:
        assert client.outcome(in_doubt(sent)).state is hms.OutcomeState.WITHDRAWN


def test_v08_all_whose_confirmations_were_lost_are_repeated_in_order(log, opened):
    """A window of 64; each is stored once, and has the id that it was given."""
    client = opened(log.address)
    log.wire.lose("down")

    def send_all():
        return [client.producer.send_async(b"%d" % number) for number in range(64)]

    futures = client.shell.do(send_all)
    log.wire.wait_swallowed("down")
    boot_again(log)

    def ids():
        return [one.result().message_id for one in futures]

    wait_until(lambda: client.shell.do(lambda: all(one.done() for one in futures)), WAIT_S)
    with hms.connect(log.node.address) as connection, connection.session() as session:
        found = [(bytes(one.body), one.message_id) for one in session.browser("orders")]
    told = [(b"%d" % number, one) for number, one in enumerate(client.shell.do(ids))]
    assert found[::-1] == told  # a browser shows the newest first


def test_v09_with_another_node_in_reach_it_is_held_for_its_own_log(log, node_m, opened):
    """M stores nothing of it."""
    client = opened([log.address, node_m.address])
    sent = swallowed(log, client, "down")
    boot_again(log)

    sent.result(WAIT_S)

    assert (bodies(log.node), bodies(node_m)) == ([b"once"], [])


def test_v10_v11_what_is_in_doubt_and_was_stored_is_said_to_be_stored(log, node_m, opened):
    """The library sends nothing again; the outcome has the id."""
    client = opened([log.address, node_m.address], request_timeout_s=BRIEF_S)
    sent = swallowed(log, client, "down")
    log.wire.refuse()
    kill_and_refuse(log)

    token = in_doubt(sent)

    assert bodies(node_m) == []
    log.node.boot()
    with hms.connect(log.node.address) as connection, connection.session() as session:
        found = connection.outcome(token)
        assert found.state is hms.OutcomeState.STORED
        assert found.message_ids == tuple(one.message_id for one in session.browser("orders"))
        assert connection.outcome(token) == found


@pytest.mark.parametrize("is_stored", [True, False])
def test_v13_v14_others_go_to_m_at_once_and_the_same_producer_waits(log, node_n, opened, is_stored):
    """What waits behind the held send goes where that goes, in order; afterwards all go to m."""
    client = opened([log.address, node_n.address], request_timeout_s=LONG_S)
    other = other_of(client)
    held = swallowed(log, client, "down" if is_stored else "up")
    log.wire.refuse()
    kill_and_refuse(log)
    wait_until(lambda: is_at(client, node_n), WAIT_S)

    def send_behind():
        return [client.producer.send_async(b"%d" % number) for number in range(3)]

    behind = client.shell.do(send_behind)
    client.shell.begin(partial(other.send, b"at once")).result(WAIT_S)

    assert bodies(node_n, "other") == [b"at once"]
    assert bodies(node_n) == []
    assert not held.done()
    log.wire.pass_on()
    log.node.boot()
    held.result(WAIT_S)
    wait_until(lambda: client.shell.do(lambda: all(one.done() for one in behind)), WAIT_S)
    client.shell.do(lambda: [one.result() for one in behind] and None)
    assert bodies(log.node)[::-1] == [b"once", b"0", b"1", b"2"]
    assert bodies(node_n) == []
    client.sending(b"afterwards").result(WAIT_S)
    assert bodies(node_n) == [b"afterwards"]


@pytest.mark.timeout(300 + 20 * LOSSES)
def test_v13_v14_again_and_again_nothing_is_lost_doubled_or_out_of_order(log, node_n, opened):
    """Four producers send while the node at which they are is lost, by turns: L is killed, M is cut
    off. HMS_HA=full: 50 times."""
    sent = []
    with cut_wire(node_n.address) as wire_of_m:
        wires = [log.wire, wire_of_m]
        client = opened([wire.address for wire in wires], request_timeout_s=LONG_S)
        producers = [client.shell.do(lambda: client.session.producer("orders")) for _ in range(4)]
        other = other_of(client)

        def send_some():
            for which, producer in enumerate(producers):
                body = b"%d %d" % (which, len(sent))
                sent.append((body, client.shell.begin(partial(producer.send, body))))

        for turn in range(LOSSES):
            wire, way = wires[turn % 2], "down" if turn % 4 < 2 else "up"
            wire.lose(way)
            send_some()
            wire.wait_swallowed(way, count=len(producers))
            wire.refuse()
            if wire is log.wire:
                log.node.kill()
            wire.cut_client()
            wait_until(partial(is_at, client, wires[1 - turn % 2]), WAIT_S)
            client.shell.begin(partial(other.send, b"elsewhere")).result(WAIT_S)
            send_some()
            wire.pass_on()
            if wire is log.wire:
                log.node.boot()
            for _, one in sent:
                one.result(WAIT_S)
    found = [bodies(log.node)[::-1], bodies(node_n)[::-1]]
    assert sorted([*found[0], *found[1]]) == sorted(body for body, _ in sent)
    for one in found:
        for which in (b"0 ", b"1 ", b"2 ", b"3 "):
            numbers = [int(body[2:]) for body in one if body.startswith(which)]
            assert numbers == sorted(numbers)


def is_at(client, place):
    """Whether it is connected there: what it sends before that may have gone to the other one."""
    link = client.connection.link
    return link.state is State.UP and link.address == place.address


def other_of(client):
    """A producer that nothing waits for."""
    return client.shell.do(lambda: client.session.producer("other"))


def kill_and_refuse(log):
    log.node.kill()
    log.wire.cut_client()


def test_v12_what_is_not_there_is_withdrawn_and_a_delayed_copy_is_refused(log, opened):
    """The answer cannot change: the frame comes afterwards, over a connection that lives."""
    client = opened(log.address, request_timeout_s=BRIEF_S)
    log.wire.hold("up")
    token = in_doubt(client.sending(b"late"))
    asked = opened(log.node.address)

    assert asked.outcome(token).state is hms.OutcomeState.WITHDRAWN
    log.wire.pass_on()

    client.shell.do(lambda: client.connection.administer("queue.list"))  # behind the late frame
    assert bodies(log.node) == []
    assert asked.outcome(token).state is hms.OutcomeState.WITHDRAWN
    log.node.kill()
    log.node.boot()
    assert opened(log.node.address).outcome(token).state is hms.OutcomeState.WITHDRAWN


def test_v21_an_open_transaction_is_rolled_back(log, opened):
    """The next one works."""
    client = opened(log.address, transacted=True)
    client.shell.do(lambda: client.producer.send(b"gone"))
    client.shell.do(lambda: client.connection.administer("queue.list"))
    boot_again(log)

    with pytest.raises(hms.TransactionRolledBack):
        client.shell.do(client.session.commit)
    client.shell.do(lambda: client.producer.send(b"next"))
    client.shell.do(client.session.commit)

    assert bodies(log.node) == [b"next"]


@pytest.mark.parametrize("is_durable", [False, True])
def test_v22_v23_the_log_says_what_became_of_a_commit(log, opened, is_durable):
    """22: it was never read, so it is rolled back. 23: its answer was lost, so it returns."""
    client = opened(log.address, transacted=True)
    client.shell.do(lambda: client.producer.send(b"work"))
    client.shell.do(lambda: client.connection.administer("queue.list"))
    way = "down" if is_durable else "up"
    log.wire.lose(way)
    committed = client.shell.begin(client.session.commit)
    log.wire.wait_swallowed(way)
    boot_again(log)

    if is_durable:
        committed.result(WAIT_S)
    else:
        with pytest.raises(hms.TransactionRolledBack):
            committed.result(WAIT_S)
    assert bodies(log.node) == [b"work"] * is_durable


@pytest.mark.parametrize("is_durable", [False, True])
def test_v25_v26_v27_a_commit_in_doubt_has_an_outcome(log, node_m, opened, is_durable):
    """M is not asked; the outcome is the log's, and the same when it is asked again."""
    addresses = [log.address, node_m.address]
    client = opened(addresses, transacted=True, request_timeout_s=BRIEF_S)
    client.shell.do(lambda: client.producer.send(b"work"))
    client.shell.do(lambda: client.connection.administer("queue.list"))
    way = "down" if is_durable else "up"
    log.wire.lose(way)
    committed = client.shell.begin(client.session.commit)
    log.wire.wait_swallowed(way)
    log.wire.refuse()
    kill_and_refuse(log)

    token = in_doubt(committed, hms.CommitInDoubt)

    log.node.boot()
    asked = opened(log.node.address)
    state = "COMMITTED" if is_durable else "ROLLED_BACK"
    assert [asked.outcome(token).state for _ in range(2)] == [state, state]
    assert bodies(log.node) == [b"work"] * is_durable
    assert bodies(node_m) == []


def test_v27_a_commit_that_comes_after_its_outcome_is_rolled_back(log, opened):
    """A delayed copy must not make the answer untrue; later commits of the session do not, too."""
    client = opened(log.address, transacted=True, request_timeout_s=BRIEF_S)
    client.shell.do(lambda: client.producer.send(b"work"))
    client.shell.do(lambda: client.connection.administer("queue.list"))
    log.wire.hold("up")
    token = in_doubt(client.shell.begin(client.session.commit), hms.CommitInDoubt)
    asked = opened(log.node.address)

    assert asked.outcome(token).state is hms.OutcomeState.ROLLED_BACK
    log.wire.pass_on()
    client.shell.do(lambda: client.producer.send(b"next"))
    client.shell.do(client.session.commit)

    assert asked.outcome(token).state is hms.OutcomeState.ROLLED_BACK
    assert bodies(log.node) == [b"next"]
    log.node.kill()
    log.node.boot()
    assert opened(log.node.address).outcome(token).state is hms.OutcomeState.ROLLED_BACK


def test_v29_rollback_during_the_outage_returns(log, opened):
    """What was received comes again, flagged."""
    opened(log.address).sending(b"work").result(WAIT_S)
    client = opened(log.address, transacted=True)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    client.shell.do(lambda: consumer.receive(60))
    log.node.kill()

    client.shell.do(client.session.rollback)

    log.node.boot()
    again = client.shell.do(lambda: consumer.receive(WAIT_S))
    assert (bytes(again.body), again.redelivered) == (b"work", True)


def test_v32_receive_waits_through_an_outage(log, opened):
    """And ends at its own time when there is nothing."""
    client = opened(log.address)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    received = client.shell.begin(lambda: consumer.receive(WAIT_S))
    boot_again(log)
    opened(log.node.address).sending(b"at last").result(WAIT_S)

    assert bytes(received.result(WAIT_S).body) == b"at last"
    kill(log)
    assert client.shell.do(lambda: consumer.receive(0.2)) is None


def test_v33_what_was_prefetched_comes_again_flagged(log, opened):
    """No old copy is handed out: each has been delivered twice when it comes."""
    sender = opened(log.address)
    for number in range(20):
        sender.sending(b"%d" % number).result(WAIT_S)
    client = opened(log.address, ack=hms.AckMode.CLIENT)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    seen = [client.shell.do(lambda: consumer.receive(WAIT_S)) for _ in range(3)]
    assert [one.delivery_count for one in seen] == [1, 1, 1]
    boot_again(log)

    again = []
    while len(again) < 20:
        one = client.shell.do(lambda: consumer.receive(WAIT_S))
        if one.delivery_count > 1:
            again.append((bytes(one.body), one.redelivered, one.delivery_count))

    assert again == [(b"%d" % number, True, 2) for number in range(20)]


@pytest.mark.parametrize("is_durable", [False, True])
def test_v35_an_acknowledgement_that_waits_is_done_or_said_to_be_lost(log, opened, is_durable):
    """Durable: the message is gone. Else it comes again, flagged, and the program is told."""
    opened(log.address).sending(b"work").result(WAIT_S)
    client = opened(log.address, ack=hms.AckMode.CLIENT)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    client.shell.do(lambda: consumer.receive(WAIT_S))
    way = "down" if is_durable else "up"
    log.wire.lose(way)
    acknowledged = client.shell.begin(client.session.ack)
    log.wire.wait_swallowed(way)
    boot_again(log)

    fault = acknowledged.exception(WAIT_S)

    again = client.shell.do(lambda: consumer.receive(0.2 if is_durable else WAIT_S))
    if is_durable:
        assert again is None
    else:
        assert again.redelivered
        assert isinstance(fault, hms.AcknowledgeLost) or wait_until(lambda: lost(client), WAIT_S)


def lost(client):
    """The acknowledgements of which its exception listener was told; in a thread of its own."""
    return [one for one in client.errors if isinstance(one, hms.AcknowledgeLost)]


def test_v52_close_during_the_outage_names_what_is_in_doubt(log, opened):
    """With the token of each."""
    client = opened(log.address, request_timeout_s=BRIEF_S)
    sent = swallowed(log, client, "down")
    kill_and_refuse(log)
    log.wire.refuse()

    client.shell.do(client.connection.close)

    token = in_doubt(sent)
    log.wire.pass_on()
    log.node.boot()
    assert opened(log.node.address).outcome(token).state is hms.OutcomeState.STORED


def test_an_outcome_is_told_to_nobody_who_alters_a_token(log, node_m, opened):
    """Neither what it was, nor whether there was anything; another log says that it is another."""
    client = opened(log.address, request_timeout_s=BRIEF_S)
    log.wire.lose("down")
    token = in_doubt(client.sending(b"once"))
    asked, other = opened(log.node.address), opened(node_m.address)

    with pytest.raises(hms.OutcomeElsewhere):
        other.outcome(token)
    bytewise = (
        token[:at] + ("A" if one != "A" else "B") + token[at + 1 :] for at, one in enumerate(token)
    )
    for altered in (*bytewise, token[:-1], token + "A", "x", "hms1."):
        with pytest.raises((hms.TokenRefused, hms.OutcomeElsewhere)):
            asked.outcome(altered)
    for _ in range(2):
        assert asked.outcome(token).state is hms.OutcomeState.STORED


def test_v43_v44_a_log_that_went_back_is_told_with_what_it_lacks(log, opened, tmp_path):
    """An older copy of the store was put in its place: 30 confirmed messages are named."""
    client = opened(log.address)
    for number in range(5):
        client.shell.do(lambda number=number: client.producer.send(b"%d" % number))
    log.node.kill()
    shutil.copytree(log.node.store, tmp_path / "copy")
    log.node.boot()
    sent = [client.sending(b"lost").result(WAIT_S).message_id for _ in range(30)]
    log.node.kill()
    shutil.rmtree(log.node.store)
    shutil.copytree(tmp_path / "copy", log.node.store)
    log.node.boot()
    client.sending(b"goes on").result(WAIT_S)

    client.shell.do(lambda: client.connection.administer("queue.list"))
    wait_until(lambda: any(isinstance(one, hms.ConfirmedLost) for one in client.errors))
    (lost,) = [one for one in client.errors if isinstance(one, hms.ConfirmedLost)]
    assert (lost.count, list(lost.message_ids)) == (30, sent)
    assert sorted(bodies(log.node)) == [b"0", b"1", b"2", b"3", b"4", b"goes on"]


def test_v04_others_that_worked_meanwhile_do_not_make_it_forgotten(log, opened):
    """As 3: the original id, stored once."""
    client = opened(log.address)
    sent = swallowed(log, client, "down")
    log.wire.refuse()
    kill_and_refuse(log)
    log.node.boot()
    others_work(log.node)
    log.wire.pass_on()

    receipt = sent.result(WAIT_S)

    with hms.connect(log.node.address) as connection, connection.session() as session:
        assert [one.message_id for one in session.browser("orders")] == [receipt.message_id]


def others_work(one, clients=3):
    """Clients that send, each with producers of its own, and leave."""
    for _ in range(clients):
        with hms.connect(one.address) as connection, connection.session() as session:
            for name in ("other", "small"):
                session.producer(name).send(b"work")
                connection.administer("queue.purge", {"name": name})


@pytest.fixture
def upload(tmp_path):
    """A file, and what a node has of it."""
    path = tmp_path / "source.bin"
    path.write_bytes(random.Random(7).randbytes(FILE_BYTES))
    return path


def sends_file(client, path):
    return client.sending(hms.Message.file(path))


def saved(log, folder):
    """Each file that waits, read from the node."""
    found = []
    with hms.connect(log.node.address) as connection, connection.session() as session:
        consumer = session.consumer("orders")
        for message in drained(connection, consumer):
            message.save(folder / "target.bin")
            found.append((folder / "target.bin").read_bytes())
    return found


@pytest.mark.parametrize("frames", [2, 14])
def test_v19_v20_a_file_goes_on_where_the_node_has_come_to(log, opened, upload, tmp_path, frames):
    """The answers after so many frames are lost: to a block of the file, or to its message."""
    client = opened(log.address)
    log.wire.lose_after("down", frames)
    sent = sends_file(client, upload)
    log.wire.wait_swallowed("down")
    boot_again(log)

    sent.result(WAIT_S)

    assert saved(log, tmp_path) == [upload.read_bytes()]


def test_v20_a_file_that_the_next_primary_lacks_is_sent_again(
    log, opened, upload, tmp_path, monkeypatch
):
    """It was whole at the node that was lost, whose copies had not got it yet; its message had not
    arrived. send() raised FileUnknown."""
    client = opened(log.address)
    uploaded = hms.Message.uploaded

    def is_there(message, described):
        uploaded(message, described)
        log.wire.lose("up")

    monkeypatch.setattr(hms.Message, "uploaded", is_there)
    sent = sends_file(client, upload)
    log.wire.wait_swallowed("up")
    monkeypatch.setattr(hms.Message, "uploaded", uploaded)
    kill(log)
    (file,) = (one for one in (log.node.store / "files").iterdir() if one.is_file())
    file.unlink()
    log.node.boot()

    receipt = sent.result(WAIT_S)

    assert receipt.message_id
    assert saved(log, tmp_path) == [upload.read_bytes()]


def test_v30_a_prepared_branch_is_in_doubt_once_and_can_be_committed(log, opened):
    """The one who prepared it commits it over the outage."""
    client = opened(log.address, xa=True)
    xid, resource = prepared(client)
    boot_again(log)

    assert client.shell.do(lambda: resource.xa_recover(10)) == [xid]
    assert client.shell.do(lambda: resource.xa_commit(xid)) == XA_OK

    assert client.shell.do(lambda: resource.xa_recover(10)) == []
    assert bodies(log.node) == [b"branch"]


def prepared(client):
    xid, resource = Xid(9, uuid.uuid4().bytes, b"hms"), client.session.resource
    assert client.shell.do(lambda: resource.xa_start(xid)) == XA_OK
    client.shell.do(lambda: client.producer.send(b"branch"))
    assert client.shell.do(lambda: resource.xa_end(xid)) == XA_OK
    assert client.shell.do(lambda: resource.xa_prepare(xid)) == XA_OK
    return xid, resource


@pytest.mark.parametrize("is_durable", [False, True])
def test_v34_an_automatic_acknowledgement_on_its_way_is_done_or_comes_again(
    log, opened, is_durable
):
    """Done: the message is gone. Else it comes again, flagged, and the program is told."""
    opened(log.address).sending(b"work").result(WAIT_S)
    client = opened(log.address)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    client.shell.do(lambda: client.connection.administer("queue.list"))  # behind the message
    way = "down" if is_durable else "up"
    log.wire.lose(way)
    received = client.shell.begin(lambda: consumer.receive(WAIT_S))
    log.wire.wait_swallowed(way)
    boot_again(log)

    message = received.result(WAIT_S)

    assert bytes(message.body) == b"work"
    again = client.shell.do(lambda: consumer.receive(0.2 if is_durable else WAIT_S))
    if is_durable:
        assert again is None
    else:
        assert again.redelivered
        wait_until(lambda: lost(client), WAIT_S)
        assert [one.when for one in lost(client)] == ["during"]


def test_v36_acknowledgements_are_not_for_another_log(log, node_m, opened):
    """Reported as lost; the message waits where it was."""
    opened(log.address).sending(b"work").result(WAIT_S)
    client = opened([log.address, node_m.address], ack=hms.AckMode.CLIENT)
    consumer = client.shell.do(lambda: client.session.consumer("orders"))
    client.shell.do(lambda: consumer.receive(WAIT_S))
    log.wire.lose("up")
    acknowledged = client.shell.begin(client.session.ack)
    log.wire.wait_swallowed("up")
    log.wire.refuse()
    kill_and_refuse(log)

    assert isinstance(acknowledged.exception(WAIT_S), hms.AcknowledgeLost)

    log.wire.pass_on()
    log.node.boot()
    assert bodies(log.node) == [b"work"]


def test_v46_a_durable_subscriber_goes_on_and_misses_nothing(log, opened):
    """What comes twice is flagged."""
    client = opened(log.address)
    heard = client.shell.do(lambda: client.session.subscriber("news", durable="d46"))
    sender = opened(log.node.address, queue="topic:news")
    sender.sending(b"1").result(WAIT_S)
    kill(log)
    log.node.boot()
    sender.sending(b"2").result(WAIT_S)

    came = {}
    while b"2" not in came:
        one = client.shell.do(lambda: heard.receive(WAIT_S))
        assert one.redelivered or bytes(one.body) not in came
        came[bytes(one.body)] = one.redelivered

    assert list(came) == [b"1", b"2"]


def test_v47_a_browser_goes_on_behind_what_it_showed(log, opened):
    """Between two pages; it skips nothing that stayed, and shows nothing twice."""
    sender = opened(log.node.address)
    wanted = [b"%d" % number for number in range(PAGE_MESSAGES + 5)]
    sender.shell.do(lambda: sender.producer.send_many(wanted))
    client = opened(log.address)
    browser = client.shell.do(lambda: client.session.browser("orders", oldest_first=True))
    shown = [client.shell.do(browser.next_message) for _ in range(3)]
    boot_again(log)

    while (one := client.shell.do(browser.next_message)) is not None:
        shown.append(one)

    assert [bytes(one.body) for one in shown] == wanted
