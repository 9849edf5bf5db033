"""Producers over a real socket, against a scripted node."""

import threading

import msgspec
import pytest
from client_rig import LIMITS, WAIT_S, FakeNode, fake_node, in_thread, patient

import hms
from hms.wire import frames
from hms.wire.frames import Kind
from tests.support.waiting import wait_until


@pytest.fixture
def session(node: FakeNode):
    connection = hms.connect(node.address, request_timeout_s=WAIT_S)
    with connection, connection.session() as session:
        yield session


def test_a_sent_message_gets_its_id_and_header(session):
    """F-D5: the id is known as soon as the send succeeded."""
    message = hms.Message(b"body", {"Type": "News"})

    receipt = session.producer("orders", ttl_s=60, priority=7).send(message)

    assert receipt.message_id == message.message_id == "000000000001"
    assert message.destination == hms.Queue("orders")
    assert message.priority == 7
    assert receipt.elapsed_s > 0


def test_many_messages_travel_in_few_frames(session, node):
    """One frame per message costs five times as much as packed ones."""
    receipts = session.producer("orders").send_many(b"x" * 100 for _ in range(2_000))

    assert [int(receipt.message_id, 16) for receipt in receipts] == list(range(1, 2_001))
    assert len(node.kinds(Kind.SEND)) < 20


def test_pipelined_sends_keep_their_order_and_number_without_gaps(session, node):
    """F-D6: the node recognises repeated frames by these numbers."""
    producer = session.producer("orders")

    futures = [producer.send_async(str(number)) for number in range(500)]
    ids = [int(future.result(WAIT_S).message_id, 16) for future in futures]

    assert ids == list(range(1, 501))
    heads = [frames.decode_send(payload) for payload in node.kinds(Kind.SEND)]
    firsts = [head.first_sequence for head in heads]
    assert firsts == [1 + sum(head.message_count for head in heads[:n]) for n in range(len(heads))]


def _sent_before_it_waits(node: FakeNode, body: bytes, count: int, expected: int) -> int:
    """How many frames a node has got that confirms none of them."""
    in_flight: list[bytes] = []
    node.on[Kind.SEND] = in_flight.append
    with hms.connect(node.address, request_timeout_s=WAIT_S, reconnect=False) as connection:
        producer = connection.session().producer("orders")
        sending = in_thread(lambda: producer.send_many(body for _ in range(count)))
        node.wait(lambda: len(in_flight) >= expected)
        connection.session()  # whatever was sent before that has arrived with it
        node.drop()
        ended = sending.get(timeout=WAIT_S)
        assert isinstance(ended, hms.SendInDoubt)  # and no ConnectionLost: what left may be stored
        assert isinstance(ended.__cause__, hms.ConnectionLost)
        assert ended.receipts.count(None) == len(ended.receipts) > 0
    return len(in_flight)


def test_no_more_frames_are_in_flight_than_the_node_allows(node):
    """P8: the window slows the sender down instead of filling the node."""
    assert _sent_before_it_waits(node, b"x" * 100_000, 100, 16) == LIMITS.frames_in_flight_max == 16


@pytest.mark.parametrize(("size", "expected"), [(100_000, 3), (900_000, 1)])
def test_no_more_bytes_are_in_flight_than_the_node_allows(size, expected):
    """P8: of large messages far fewer frames fill the node; one is always allowed."""
    limits = msgspec.structs.replace(LIMITS, bytes_in_flight_max=500_000)
    with fake_node(limits) as node:
        assert _sent_before_it_waits(node, b"x" * size, 20, expected) == expected


def test_a_message_above_the_limit_is_refused_before_it_is_sent(session, node):
    """A frame the node refuses would cost all that is in it."""
    producer = session.producer("orders")

    with pytest.raises(hms.MessageTooLarge) as refused:
        producer.send_many([b"small", b"x" * (LIMITS.message_bytes_max + 1), b"never"])

    assert len(node.kinds(Kind.SEND)) == 1
    assert [receipt.message_id for receipt in refused.value.receipts] == ["000000000001"]


def test_the_first_refusal_is_raised_with_what_became_of_each(session, node):
    """A sender must know what to repeat and what not."""
    calls: list[bytes] = []

    def refuse_the_second(payload: bytes):
        calls.append(payload)
        if len(calls) == 2:
            raise hms.QueueFull(kind="queue", destination="orders", count=1, key="max", limit=1)
        return node._usual(Kind.SEND, None, payload)

    node.on[Kind.SEND] = refuse_the_second

    with pytest.raises(hms.QueueFull) as refused:
        session.producer("orders").send_many([b"x"] * 100)

    receipts = refused.value.receipts
    assert [receipt is None for receipt in receipts] == [False] * 32 + [True] * 64 + [False] * 4


def test_persistent_and_other_messages_never_share_a_frame(session, node):
    """The flag belongs to the frame; a mixed one would lose or slow half of it."""
    producer = session.producer("orders")
    futures = [producer.send_async(b"x", persistent=number % 2 == 0) for number in range(20)]
    for future in futures:
        future.result(WAIT_S)

    heads = [frames.decode_send(payload) for payload in node.kinds(Kind.SEND)]
    assert sum(head.message_count for head in heads if head.is_persistent) == 10


def test_several_threads_send_on_one_connection(node):
    """The socket is shared; answers must reach the thread that asked."""
    ids: list[str] = []
    with hms.connect(node.address, request_timeout_s=WAIT_S) as connection:

        def send() -> None:
            with connection.session() as session:
                producer = session.producer("orders")
                ids.extend(producer.send(b"x").message_id for _ in range(100))

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    assert sorted(ids) == [f"{number:012x}" for number in range(1, 601)]


def test_closing_waits_for_what_is_still_unconfirmed(node):
    """Only what was confirmed counts as sent, so closing must not cut it off."""
    connection = hms.connect(node.address, request_timeout_s=WAIT_S)
    futures = [connection.session().producer("orders").send_async(b"x") for _ in range(50)]

    connection.close()

    assert all(future.result(WAIT_S) for future in futures)
    node.wait(lambda: Kind.GOODBYE in [kind for kind, _ in node.heard])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"delay_s": -1}, hms.InvalidArgument),
        ({"priority": 10}, hms.InvalidArgument),
        ({"ttl_s": -1}, hms.InvalidArgument),
    ],
)
def test_wrong_options_are_refused_when_the_producer_is_made(session, arguments, error):
    """A mistake is cheapest where it is made."""
    with pytest.raises(error):
        session.producer("orders", **arguments)


def test_a_refused_producer_raises_the_nodes_own_error(session, node):
    """F-C1: a name that does not exist is told at once, not at the first send."""

    def refuse(opening):
        raise hms.DestinationNotFound(kind=opening.kind, destination=opening.destination)

    node.on[hms_request("OpenProducer")] = refuse

    with pytest.raises(hms.DestinationNotFound, match="nowhere"):
        session.producer("nowhere")


def hms_request(name: str) -> type:
    """The wire's request of that name."""
    from hms.wire import structures

    return getattr(structures, name)


def test_a_schedule_that_a_silent_node_was_asked_for_is_in_doubt(node):
    """It may be there, and send for years (P11); RequestTimeout was told."""
    node.on[Kind.SCHEDULE] = lambda _: None
    with hms.connect(node.address, request_timeout_s=0.2) as connection:
        with patient(connection):
            producer = connection.session().producer("orders")

        with pytest.raises(hms.SendInDoubt, match=r"queue:orders .* no answer within 0\.2 s"):
            producer.schedule("daily", b"report", every_s=60)


@pytest.mark.parametrize("has_left", [True, False])
def test_a_schedule_whose_node_is_lost_is_in_doubt_if_it_has_left(has_left):
    """What was asked while there was no connection is known not to be there."""
    with fake_node() as node:
        node.on[Kind.SCHEDULE] = lambda _: None
        with hms.connect(node.address, request_timeout_s=0.5) as connection:
            with patient(connection):
                producer = connection.session().producer("orders")
            if not has_left:
                node.drop()
                wait_until(lambda: not connection.is_connected)
            ended = in_thread(lambda: producer.schedule("daily", b"report", every_s=60))
            if has_left:
                node.wait(lambda: node.kinds(Kind.SCHEDULE))
                node.drop()

            error = ended.get(timeout=WAIT_S)

    assert type(error) is (hms.SendInDoubt if has_left else hms.ConnectionLost)
