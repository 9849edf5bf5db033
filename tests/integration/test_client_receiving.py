"""Consumers over a real socket, against a scripted node."""

import queue
import sys
import threading

import msgspec
import pytest
from client_frames import browsed
from client_rig import LIMITS, WAIT_S, fake_node, in_thread, patient

import hms
from hms.wire.frames import Action, Kind
from hms.wire.packed_messages import KIND_FILE
from hms.wire.structures import (
    Administer,
    Browse,
    CreateTemporary,
    DeleteTemporary,
    OpenConsumer,
    OpenSession,
    Poll,
    Recover,
)
from tests.support.waiting import wait_until


def _await_buffered(consumer: hms.Consumer, count: int) -> None:
    """Until so many messages wait in the client."""
    wait_until(lambda: len(consumer._prefetched.buffer) >= count, pause_s=0.001)


def test_a_message_is_received_and_acknowledged_by_itself(connection, node):
    """F-B1: AUTO; the acknowledgement does not wait for the next receive."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"one"), (2, b"two"))

    bodies = [consumer.receive(WAIT_S).body, consumer.receive(WAIT_S).body]

    assert bodies == [b"one", b"two"]
    node.wait(lambda: node.settled(Action.ACKNOWLEDGE) == [1, 2])


def test_receiving_with_a_time_gives_none_when_it_is_over(connection):
    """F-E1: an application must be able to look in and go on."""
    consumer = connection.session().consumer("orders")

    assert consumer.receive(0.02) is None
    assert consumer.receive_nowait() is None


def test_many_are_received_at_once_in_order_and_acknowledged(connection, node):
    """As many as are here, without waiting for more; AUTO says all of them."""
    consumer = connection.session().consumer("orders", prefetch=200)
    node.deliver(*((number, b"%d" % number) for number in range(1, 151)))

    first = consumer.receive_many(100, WAIT_S)
    rest = consumer.receive_many(100, WAIT_S)

    assert [m.body for m in first + rest] == [b"%d" % number for number in range(1, 151)]
    assert (len(first), len(rest)) == (100, 50)
    assert consumer.receive_many(100, 0.02) == []
    node.wait(lambda: sorted(node.settled(Action.ACKNOWLEDGE)) == list(range(1, 151)))


def test_receiving_many_waits_for_the_first(connection, node):
    """And does not wait for the count to be full."""
    consumer = connection.session().consumer("orders")
    got: queue.Queue[list[hms.Message]] = queue.Queue()
    threading.Thread(target=lambda: got.put(consumer.receive_many(10)), daemon=True).start()

    node.deliver((1, b"late"))

    assert [m.body for m in got.get(timeout=WAIT_S)] == [b"late"]


def test_of_many_the_expired_ones_are_left_out_and_told(connection, node):
    """F-D2, in the midst of those that can be handed out."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"a"), (2, b"b"))
    node.deliver((3, b"old"), expires_at_ms=1)
    node.deliver((4, b"c"))
    _await_buffered(consumer, 4)

    assert [m.body for m in consumer.receive_many(10, WAIT_S)] == [b"a", b"b", b"c"]
    node.wait(lambda: node.settled(Action.RELEASE) == [3])
    node.wait(lambda: sorted(node.settled(Action.ACKNOWLEDGE)) == [1, 2, 4])


def test_each_of_many_is_acknowledged_by_hand(connection, node):
    """CLIENT: all that were received are seen, each can be settled alone."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"))
    _await_buffered(consumer, 4)
    messages = consumer.receive_many(3)

    messages[1].ack()
    assert node.settled(Action.ACKNOWLEDGE) == [2]
    session.recover()

    assert sorted(node.settled(Action.FAIL)) == [1, 3]
    assert 4 not in node.settled(Action.FAIL)
    with pytest.raises(hms.IllegalState):
        messages[0].ack()


def test_messages_received_after_a_recover_can_be_acknowledged(connection, node):
    """What is said of them bears the new epoch, whichever way they are taken."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"a"))
    assert consumer.receive(WAIT_S) is not None
    session.recover()
    node.deliver((1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), count=2)
    _await_buffered(consumer, 4)

    single = [consumer.receive(WAIT_S), consumer.receive(WAIT_S)]
    for message in [*single, *consumer.receive_many(2)]:
        message.ack()

    assert node.settled(Action.ACKNOWLEDGE) == [1, 2, 3, 4]


FAR_MS = 1 << 42
"""A time of expiry: then every message is looked at."""


def test_what_was_taken_reaches_the_application_whatever_forbids_the_next(
    connection, node, monkeypatch
):
    """AUTO would acknowledge them, and nobody would have seen them (P9)."""
    session = connection.session()
    consumer = session.consumer("orders")
    node.deliver((1, b"a"), (2, b"b"), (3, b"c"), expires_at_ms=FAR_MS)
    _await_buffered(consumer, 3)
    taken, calls = consumer.taken, []

    def taken_once():
        calls.append(1)
        if len(calls) > 2:
            raise hms.ConnectionClosed(what="consumer")
        return taken()

    monkeypatch.setattr(consumer, "taken", taken_once)

    assert [m.body for m in consumer.receive_many(10, WAIT_S)] == [b"a", b"b"]
    monkeypatch.undo()
    assert [m.body for m in consumer.receive_many(10, WAIT_S)] == [b"c"]


def test_closing_beside_a_receiver_of_many_loses_nothing(connection, node):
    """Each message is with the application, or it is not acknowledged."""
    session = connection.session()
    consumer = session.consumer("orders", prefetch=2000)
    node.deliver(*((number, b"x") for number in range(1, 1001)), expires_at_ms=FAR_MS)
    _await_buffered(consumer, 1000)
    got: list[hms.Message] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        closing = threading.Timer(0.001, consumer.close)
        closing.start()
        got = consumer.receive_many(1000, WAIT_S)
        closing.join()
    except hms.ConnectionClosed:
        pass
    finally:
        sys.setswitchinterval(interval)
    session.close()

    assert set(node.settled(Action.ACKNOWLEDGE)) <= {m.delivered_id for m in got}


def test_of_many_a_file_is_not_behind_what_expired_before_it(connection, node):
    """A file only ever comes first."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"a"))
    node.deliver((2, b"old"), expires_at_ms=1)
    node.deliver((3, b"b"), kind=KIND_FILE)
    _await_buffered(consumer, 3)

    assert [m.body for m in consumer.receive_many(10, WAIT_S)] == [b"a"]
    assert [m.kind for m in consumer.receive_many(10, WAIT_S)] == [hms.BodyKind.FILE]


def test_beside_a_listener_nobody_receives_even_after_the_listener_did(connection, node):
    """What a listener takes itself does not open the door to other threads."""
    consumer = connection.session(ack=hms.AckMode.CLIENT).consumer("orders")
    is_in, may_go = threading.Event(), threading.Event()

    def listener(_message):
        consumer.receive(0)
        is_in.set()
        may_go.wait(WAIT_S)

    node.deliver(*((number, b"x") for number in range(1, 9)))
    _await_buffered(consumer, 8)
    consumer.listen(listener)
    assert is_in.wait(WAIT_S)
    try:
        with pytest.raises(hms.IllegalState):
            consumer.receive(0)
        with pytest.raises(hms.IllegalState):
            consumer.receive_many(5, 0)
    finally:
        may_go.set()
        consumer.close()


@pytest.mark.parametrize("count", [0, -1])
def test_nobody_receives_no_message(connection, count):
    """A typed error instead of an endless wait for nothing."""
    with pytest.raises(hms.InvalidArgument, match="count"):
        connection.session().consumer("orders").receive_many(count)


def test_a_waiting_receiver_gets_the_message_when_it_comes(connection, node):
    """F-E1: receive() blocks."""
    consumer = connection.session().consumer("orders")
    got: queue.Queue[hms.Message] = queue.Queue()
    threading.Thread(target=lambda: got.put(consumer.receive()), daemon=True).start()

    node.deliver((1, b"late"))

    assert got.get(timeout=WAIT_S).body == b"late"


def test_credit_comes_back_in_batches(connection, node):
    """One credit frame per message would double the frames; none at all would stall the node."""
    consumer = connection.session().consumer("orders", prefetch=10)
    for first in range(1, 31, 5):
        node.wait(lambda: node.consumers[consumer._prefetched.number].credit >= 5)
        node.deliver(*((number, b"x") for number in range(first, first + 5)))
        for _ in range(5):
            assert consumer.receive(WAIT_S) is not None
        assert consumer.receive_nowait() is None

    items = [item for one in node.kinds(Kind.SETTLE) for item in one]
    credits_given = [item.credit for item in items if item.action is Action.CREDIT]
    assert credits_given
    assert min(credits_given) >= 5


def test_with_a_prefetch_of_one_the_next_message_waits_at_the_node(connection, node):
    """Others get the next message while this one is worked on."""
    session = connection.session()
    consumer = session.consumer("orders", prefetch=1)
    node.deliver((1, b"x"))
    assert consumer.receive(WAIT_S).body == b"x"

    node.wait(lambda: node.settled(Action.ACKNOWLEDGE) == [1])

    assert node.consumers[consumer._prefetched.number].credit == 0
    assert consumer.receive_nowait() is None
    node.wait(lambda: node.consumers[consumer._prefetched.number].credit == 1)


def test_a_message_that_expired_in_the_buffer_is_released(connection, node):
    """F-D2: past its time it is never handed out; the node counts it as expired."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"old"), expires_at_ms=1)
    node.deliver((2, b"new"))

    assert consumer.receive(WAIT_S).body == b"new"
    node.wait(lambda: node.settled(Action.RELEASE) == [1])
    assert 1 not in node.settled(Action.ACKNOWLEDGE)


def test_acknowledging_one_message_leaves_the_others_open(connection, node):
    """CLIENT: m.ack() is this one, and durable when it returns."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"a"), (2, b"b"), (3, b"c"))
    messages = [consumer.receive(WAIT_S) for _ in range(3)]

    messages[1].ack()
    assert node.settled(Action.ACKNOWLEDGE) == [2]
    session.ack()

    assert sorted(node.settled(Action.ACKNOWLEDGE)) == [1, 2, 3]


def test_recover_gives_back_what_was_seen_and_ignores_what_was_on_its_way(connection, node):
    """F-B8: the epoch tells old deliveries from new ones."""
    session = connection.session(ack=hms.AckMode.CLIENT)
    consumer = session.consumer("orders")
    node.deliver((1, b"a"), (2, b"b"))
    seen = consumer.receive(WAIT_S)

    session.recover()
    node.deliver((9, b"of the old epoch"), epoch=0)
    node.deliver((1, b"again"), count=2)
    again = consumer.receive(WAIT_S)

    assert node.settled(Action.FAIL) == [1]
    assert len(node.requests(Recover)) == 1
    assert (again.body, again.redelivered) == (b"again", True)
    with pytest.raises(hms.IllegalState):
        seen.ack()


def test_what_was_seen_and_not_acknowledged_is_named_when_the_session_closes(connection, node):
    """F-B2: it is redelivered, flagged."""
    with connection.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer("orders")
        node.deliver((1, b"a"), (2, b"b"))
        consumer.receive(WAIT_S)

    assert node.settled(Action.SEEN) == [1]
    assert node.settled(Action.ACKNOWLEDGE) == []


def test_a_listener_gets_one_message_at_a_time_in_order(connection, node):
    """F-E2, F-B1: acknowledged when the function returns, redelivered when it raises."""
    handled: queue.Queue[bytes] = queue.Queue()

    def listener(message: hms.Message) -> None:
        handled.put(message.body)
        if message.body == b"bad":
            raise ValueError("this one fails")

    with connection.session() as session:
        session.consumer("orders").listen(listener)
        node.deliver((1, b"good"), (2, b"bad"), (3, b"fine"))
        bodies = [handled.get(timeout=WAIT_S) for _ in range(3)]
        node.wait(lambda: sorted(node.settled(Action.ACKNOWLEDGE)) == [1, 3])

    assert bodies == [b"good", b"bad", b"fine"]
    assert node.settled(Action.FAIL) == [2]


def test_what_expired_before_a_listener_came_to_it_is_told_at_once(connection, node):
    """There may be no other message with which to say it, and it would count as under way."""
    handled: queue.Queue[bytes] = queue.Queue()

    with connection.session() as session:
        session.consumer("orders").listen(lambda message: handled.put(message.body))
        node.deliver((1, b"old"), (2, b"older"), expires_at_ms=1)

        node.wait(lambda: node.settled(Action.RELEASE) == [1, 2])

    assert handled.empty()
    assert node.settled(Action.ACKNOWLEDGE) == []


def test_iterating_ends_when_the_consumer_is_closed(connection, node):
    """A loop over messages must be able to end without an error."""
    consumer = connection.session().consumer("orders")
    node.deliver((1, b"a"), (2, b"b"))
    bodies = []

    for message in consumer:
        bodies.append(message.body)
        if len(bodies) == 2:
            consumer.close()

    assert bodies == [b"a", b"b"]
    with pytest.raises(hms.ConnectionClosed):
        consumer.receive(0)


def test_a_browser_reads_page_after_page(connection, node):
    """F-G1: a queue may be longer than a frame."""
    pages = {0: browsed((3, b"c"), (2, b"b"), follows=True, position=2)}
    pages[2] = browsed((1, b"a"), follows=False, position=1)
    node.on[Browse] = lambda browse: pages[browse.after]

    with connection.session().browser("orders", selector="A = 1") as browser:
        assert [message.body for message in browser] == [b"c", b"b", b"a"]
        assert next(iter(browser)).message_id == "000000000003"
    assert node.requests(Browse)[0].selector == "A = 1"


def test_the_options_of_a_subscriber_reach_the_node(connection, node):
    """F-E4, F-E7: durable, no-local, selector."""
    connection.session().subscriber(
        hms.Topic("news"), durable="billing", selector="A = 1", no_local=True, name="c"
    )

    opening = node.requests(OpenConsumer)[0]
    assert (opening.kind, opening.destination, opening.durable) == ("topic", "news", "billing")
    assert (opening.selector, opening.is_no_local, opening.name) == ("A = 1", True, "c")


def test_a_consumer_that_the_node_closes_says_why(connection, node):
    """F-E11: an operator's close must not look like an empty queue. What was delivered and was not
    taken is back at the node, for others."""
    from hms.wire import structures

    consumer = connection.session().consumer("orders")
    node.deliver((1, b"before"))
    event = structures.Event(
        "consumer_closed", consumer._prefetched.number, 4001, {"kind": "queue"}
    )
    node.tell(Kind.EVENT, structures.encode(event))
    wait_until(lambda: consumer._prefetched.error is not None)

    with pytest.raises(hms.DestinationNotFound):
        consumer.receive(WAIT_S)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"xa": True, "transacted": True}, hms.IllegalState),
        ({"xa": True, "ack": hms.AckMode.CLIENT}, hms.IllegalState),
        ({"ack": hms.AckMode.CLIENT, "transacted": True}, hms.IllegalState),
        ({"ack": hms.AckMode.CLIENT, "asynchronous": True}, hms.IllegalState),
        ({"transacted": True, "asynchronous": True}, hms.IllegalState),
    ],
)
def test_kinds_of_session_that_do_not_exist_are_refused(connection, options, error):
    """F-B5: a transacted session acknowledges by itself; a silent downgrade would lose messages."""
    with pytest.raises(error):
        connection.session(**options)


def test_calls_that_do_not_fit_the_session_are_illegal(connection, node):
    """A call without effect must not look as if it had one."""
    session = connection.session()
    consumer = session.consumer("orders")
    node.deliver((1, b"a"))
    message = consumer.receive(WAIT_S)

    for call in (session.commit, session.rollback, session.ack, message.ack):
        with pytest.raises(hms.IllegalState):
            call()
    with pytest.raises(hms.IllegalState):
        session.consumer("orders", listener="SVC")
    with pytest.raises(hms.IllegalState):
        connection.session(transacted=True).recover()


@pytest.mark.parametrize("receive", ["receive", "receive_many", "receive_nowait"])
def test_a_silent_node_does_not_hold_a_receive_beyond_its_time(receive):
    """Whoever gives a time wants to go on; previously it waited for up to request_timeout_s, and
    raised RequestTimeout "no answer to Poll"."""
    windows = msgspec.structs.replace(LIMITS, prefetch_bytes_max=1 << 20, prefetch_bytes=1 << 20)
    with fake_node(windows) as node:
        node.on[Poll] = lambda _: None
        with hms.connect(node.address, request_timeout_s=10 * WAIT_S) as connection:
            consumer = connection.session().consumer("orders")
            arguments = {"receive": [0.01], "receive_many": [5, 0.01], "receive_nowait": []}

            ended = in_thread(lambda: getattr(consumer, receive)(*arguments[receive]))

            assert not ended.get(timeout=WAIT_S)
            assert len(node.wait(lambda: node.requests(Poll))) == 1
            node.deliver((1, b"late"))
            assert consumer.receive(WAIT_S).body == b"late"


def test_a_timeout_names_what_was_called(node):
    """OpenSession is a word of the protocol."""
    node.on[OpenSession] = lambda _: None
    with (
        hms.connect(node.address, request_timeout_s=0.01) as connection,
        pytest.raises(hms.RequestTimeout, match=r"no answer to session\(\) within"),
    ):
        connection.session()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lookup()", lambda _, s: s.lookup("orders")),
        ("create_queue()", lambda _, s: s.create_queue("a?max-messages=5")),
        ("create_topic()", lambda _, s: s.create_topic("a?max-messages=5")),
        ("temporary_queue()", lambda _, s: s.temporary_queue()),
        ("delete_temporary()", lambda _, s: s.delete_temporary(hms.Queue("a"))),
        ("schedules()", lambda c, _: c.schedules()),
        ("schedule()", lambda c, _: c.schedule("a")),
        ("cancel_schedule()", lambda c, _: c.cancel_schedule("a")),
        ("administer()", lambda c, _: c.administer("schedule.list")),
    ],
)
def test_a_timeout_names_what_was_called_also_where_another_command_does_it(node, name, call):
    """administer() was named to whoever had called lookup()."""
    for kind in (Administer, CreateTemporary, DeleteTemporary):
        node.on[kind] = lambda _: None
    with hms.connect(node.address, request_timeout_s=0.05) as connection:
        with patient(connection):
            session = connection.session()
        with pytest.raises(hms.RequestTimeout) as late:
            call(connection, session)
    assert late.value.what == name
