"""What a lost connection means for an application: a scripted node dies and returns."""

import asyncio

import msgspec
import pytest
from client_rig import WAIT_S, fake_node, in_thread, patient, restart

import hms
from hms.client.core import requests
from hms.wire import structures
from hms.wire.frames import Action, Kind
from hms.wire.structures import Hello, OpenConsumer, OpenProducer, OpenSession
from tests.support.waiting import wait_until


def test_no_node_is_told_in_time():
    """A wrong address must not hang a program."""
    with pytest.raises(hms.ConnectionRefused, match="no HMS node"):
        hms.connect("tcp://127.0.0.1:1", connect_timeout_s=0.3)


def test_a_port_where_nothing_listens_is_told_at_once(monkeypatch):
    """It took 10 s, as a node that is silent does; the limit here would fail the test."""
    monkeypatch.setattr(requests, "CONNECT_TIMEOUT_S", 3600.0)

    with pytest.raises(hms.ConnectionRefused, match="nothing listens there"):
        hms.connect(["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"])


def test_one_address_that_answers_is_enough(node, monkeypatch):
    """The others of the list may refuse."""
    monkeypatch.setattr(requests, "CONNECT_TIMEOUT_S", 3600.0)

    with hms.connect(["tcp://127.0.0.1:1", node.address]) as connection:
        assert connection.is_connected


def test_no_node_is_told_in_time_in_asyncio_too():
    """And no task stays behind."""

    async def whole():
        with pytest.raises(hms.ConnectionRefused):
            await hms.aio.connect("tcp://127.0.0.1:1", connect_timeout_s=0.2)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


def test_a_refused_login_is_told_at_once(node):
    """Trying again would only lock the account."""

    def refuse(hello):
        raise hms.ClientIdInUse(client_id=hello.client_id)

    node.on[Hello] = refuse
    with pytest.raises(hms.ClientIdInUse):
        hms.connect(node.address, client_id="billing")


@pytest.mark.parametrize("address", ["", "127.0.0.1:7700", []])
def test_an_address_of_another_form_is_refused(address):
    """ZeroMQ's own message would be 'Invalid argument'."""
    with pytest.raises(hms.InvalidArgument):
        hms.connect(address)


def test_a_second_address_is_tried_when_the_first_is_dead(node):
    """F-K4: the addresses are tried in turn."""
    with hms.connect(["tcp://127.0.0.1:1", node.address]) as connection:
        assert connection.is_connected
        assert connection.node_name == "fake"


def test_a_killed_node_is_noticed_at_once_without_reconnect(node, errors):
    """F-M7: not after a heartbeat, and every waiting call ends."""
    connection = hms.connect(node.address, reconnect=False, exception_listener=errors.put)
    consumer = connection.session().consumer("orders")
    waiting = in_thread(consumer.receive)

    node.drop()

    assert isinstance(errors.get(timeout=WAIT_S), hms.ConnectionLost)
    assert isinstance(waiting.get(timeout=WAIT_S), hms.ConnectionLost)
    with pytest.raises(hms.ConnectionLost):
        connection.session()
    connection.close()


def test_what_was_open_is_opened_again_under_the_same_numbers(connection, node, errors):
    """F-K5: the application goes on with the objects it has."""
    session = connection.session()
    producer = session.producer("orders")
    consumer = session.consumer("orders", selector="A = 1")
    before = [node.requests(kind)[0] for kind in (OpenSession, OpenProducer, OpenConsumer)]

    node.drop()
    assert isinstance(errors.get(timeout=WAIT_S), hms.ConnectionLost)
    restart(node)
    receipt = producer.send(b"after")
    node.wait(lambda: node.consumers)
    node.deliver((5, b"again"), count=2)

    assert receipt.message_id == "000000000001"
    assert consumer.receive(WAIT_S).redelivered
    after = [node.requests(kind)[1] for kind in (OpenSession, OpenProducer, OpenConsumer)]
    after[1] = msgspec.structs.replace(after[1], sent_before=0)  # whether it was sent by then
    assert after == before
    assert len({hello.uid for hello in node.kinds(Kind.HELLO)}) == 1


def test_unconfirmed_sends_are_repeated_byte_for_byte(connection, node):
    """F-D9: the node recognises them, so nothing is lost and nothing stored twice."""
    node.on[Kind.SEND] = lambda _: None  # never confirms
    producer = connection.session().producer("orders")
    sending = in_thread(lambda: producer.send_many([b"x" * 100] * 1_000))
    node.wait(lambda: len(node.kinds(Kind.SEND)) >= 5)
    node.drop()
    before = list(node.kinds(Kind.SEND))
    del node.on[Kind.SEND]

    restart(node)
    receipts = sending.get(timeout=WAIT_S)

    assert not isinstance(receipts, Exception), receipts
    assert len(receipts) == 1_000
    assert node.kinds(Kind.SEND)[len(before) :][: len(before)] == before


def test_a_call_during_the_outage_waits_for_the_node(connection, node, errors):
    """F-K6: an outage shorter than the request time is only a pause."""
    session = connection.session()
    node.drop()
    errors.get(timeout=WAIT_S)
    opening = in_thread(lambda: session.consumer("orders"))

    restart(node)

    assert isinstance(opening.get(timeout=WAIT_S), hms.Consumer)


def test_a_call_gives_up_when_the_outage_is_too_long(node, errors):
    """F-K6: and receive() too (F-K8), while receive_nowait() returns at once."""
    with hms.connect(
        node.address, request_timeout_s=0.3, exception_listener=errors.put
    ) as connection:
        with patient(connection):
            session = connection.session()
            producer, consumer = session.producer("orders"), session.consumer("orders")
        node.drop()
        errors.get(timeout=WAIT_S)

        assert consumer.receive_nowait() is None
        with pytest.raises(hms.ConnectionLost):
            consumer.receive()
        with pytest.raises(hms.ConnectionLost):
            producer.send(b"x")
        with pytest.raises(hms.ConnectionLost):
            connection.administer("queue.list")


def test_the_attempts_end_after_their_period(node, errors):
    """F-K4: reconnect_period_s."""
    connection = hms.connect(
        node.address,
        reconnect_interval_s=0.01,
        reconnect_period_s=0.1,
        request_timeout_s=WAIT_S,
        exception_listener=errors.put,
    )
    consumer = connection.session().consumer("orders")
    node.drop()

    with pytest.raises(hms.ConnectionLost, match="over"):
        consumer.receive()
    connection.close()


def test_an_acknowledgement_of_before_the_loss_is_refused(connection, node, errors):
    """F-K9: the message comes again; taking the call as good would hide that."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"x"))
    message = consumer.receive(WAIT_S)
    node.drop()
    errors.get(timeout=WAIT_S)
    restart(node)

    with pytest.raises(hms.AcknowledgeLost):
        message.ack()
    with pytest.raises(hms.AcknowledgeLost):
        session.ack()
    session.ack()  # told once; of what was consumed since there is nothing
    assert node.settled(Action.ACKNOWLEDGE) == []


def test_a_prefetched_message_is_dropped_by_the_loss(connection, node, errors):
    """F-K5: it comes again, flagged; keeping it would hand it out twice."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"first"))
    wait_until(lambda: consumer._prefetched.buffer, pause_s=0.001)

    node.drop()
    errors.get(timeout=WAIT_S)

    assert consumer.receive_nowait() is None


def test_a_silent_node_is_taken_for_lost(errors):
    """F-M7: a frozen node keeps its socket open."""
    limits = structures.Limits(1 << 20, 1 << 22, 16, 1000, 0.3)
    with fake_node(limits) as node:
        connection = hms.connect(node.address, exception_listener=errors.put)

        assert isinstance(errors.get(timeout=WAIT_S), hms.ConnectionLost)
        assert node.wait(lambda: node.kinds(Kind.HEARTBEAT))
        connection.close()


def test_an_acknowledgement_that_was_on_its_way_may_have_taken_effect(connection, node):
    """Told as if it had not, an application would undo work whose message never comes again."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"x"))
    message = consumer.receive(WAIT_S)
    node.on[Kind.SETTLE] = lambda _: None
    ending = in_thread(message.ack)
    node.wait(lambda: node.settled(Action.ACKNOWLEDGE))

    node.drop()

    error = ending.get(timeout=WAIT_S)
    assert isinstance(error, hms.AcknowledgeLost)
    assert error.when == "during"


def test_a_listener_that_exits_does_not_end_the_connection(node):
    """It ended the thread that beats and connects again, and nobody was told."""

    def leave(_event):
        raise SystemExit

    with hms.connect(
        node.address, event_listener=leave, exception_listener=leave, request_timeout_s=WAIT_S
    ) as connection:
        node.drop()
        restart(node)
        producer = connection.session().producer("orders")

        assert producer.send(b"x").message_id
