"""Order and groups as an application sees them: a real node, killed and booted again."""

import asyncio
import json

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main

CONFIG = {
    "hms": {
        "queue": {
            "plain": {},
            "rising": {"sort_key": "n", "sort_type": "INTEGER"},
            "lists": {"message_group": "GATHER"},
            "late": {"message_group": "GATHER", "group_expiry_s": 0.3},
        }
    }
}
WAIT_S = 60


@pytest.fixture
def node(emptied):
    """One for all tests."""
    return emptied


@pytest.fixture
def session(node):
    with hms.connect(node.address) as connection, connection.session() as session:
        yield session


def _send_list(producer, name, count=3):
    for number in range(1, count + 1):
        own = {"GROUP_NAME": name, "GROUP_NUMBERING": number, "GROUP_END": number == count}
        producer.send(f"{name}{number}", own)


def test_a_sorted_queue_hands_out_by_its_key_also_after_a_kill(node):
    """F-C15: the order is the operator's wish, whatever happens to the node."""
    with hms.connect(node.address) as connection, connection.session() as session:
        out = session.producer("rising")
        for number in (3, 1, None, 2):
            out.send(str(number), {} if number is None else {"n": number})
        with pytest.raises(hms.SortKeyMismatch):
            out.send("x", {"n": "two"})
        node.kill()
        node.boot(warm=True)
        consumer = session.consumer("rising")
        assert [consumer.receive(WAIT_S).body for _ in range(4)] == ["1", "2", "3", "None"]


def test_groups_are_spread_and_stay_where_they_are(node):
    """F-C17: each consumer sees all of its groups, in order, and nothing of the others'."""
    with hms.connect(node.address) as connection, connection.session() as session:
        consumers = [session.consumer("plain", prefetch=5) for _ in range(3)]
        out = session.producer("plain")
        for number in range(20):
            for group in "abcdef":
                out.send_async(str(number), {"JMSXGroupID": group})
        got = {}
        while sum(map(len, got.values())) < 120:
            for at, consumer in enumerate(consumers):
                message = consumer.receive(0.05)
                if message is not None:
                    group = message.properties["JMSXGroupID"]
                    got.setdefault((at, group), []).append(int(message.body))
        assert sorted(group for _, group in got) == list("abcdef")
        assert all(numbers == list(range(20)) for numbers in got.values())
        assert len({at for at, _ in got}) == 3


def test_a_gathered_group_comes_as_one_message_with_a_list(node):
    """F-C17: the documents hand out an object message whose value is the list."""
    with (
        hms.connect(node.address) as connection,
        connection.session(ack=hms.AckMode.CLIENT) as session,
    ):
        _send_list(session.producer("lists"), "g")
        with session.consumer("lists", prefetch=1) as consumer:
            whole = consumer.receive(WAIT_S)
            assert [m.body for m in whole.body] == ["g1", "g2", "g3"]
            assert [m.properties["GROUP_NUMBERING"] for m in whole.body] == [1, 2, 3]
            session.recover()
            again = consumer.receive(WAIT_S)
            assert [m.delivery_count for m in again.body] == [2, 2, 2]
            again.body[1].ack()
        with session.consumer("lists") as consumer:
            assert consumer.receive(0.2) is None


def test_a_gathered_group_comes_alone_when_many_are_received(session):
    """It is a list already; a batch never mixes it with others."""
    producer, consumer = session.producer("lists"), session.consumer("lists")
    _send_list(producer, "g")
    _send_list(producer, "h")
    got = [consumer.receive_many(10, WAIT_S) for _ in range(2)]
    assert [[[m.body for m in one.body] for one in some] for some in got] == [
        [["g1", "g2", "g3"]],
        [["h1", "h2", "h3"]],
    ]


def test_a_list_of_many_frames_comes_whole(session):
    """Two megabytes do not fit into one frame of a delivery."""
    out, consumer = session.producer("lists"), session.consumer("lists")
    bodies = [bytes([number % 256]) * 7_000 for number in range(1, 301)]
    for number, body in enumerate(bodies, 1):
        own = {"GROUP_NAME": "big", "GROUP_NUMBERING": number, "GROUP_END": number == 300}
        out.send_async(body, own)
    whole = consumer.receive(WAIT_S)
    assert [m.body for m in whole.body] == bodies


def test_a_list_that_never_completes_is_among_the_dead_letters(session):
    """The operator sees what was missing, and the queue is not filled for ever."""
    session.producer("late").send("1", {"GROUP_NAME": "g", "GROUP_NUMBERING": 1})
    letter = session.consumer(hms.Queue("HMS.DLQ")).receive(WAIT_S)
    assert letter.property("$DeadReason") == "GROUP_INCOMPLETE"


def test_a_listener_in_the_process_gets_lists_and_a_service_is_refused(node):
    """A service is called with one message; half a list would be worse than an error."""
    with hms.connect(node.address) as connection:
        with connection.session(asynchronous=True) as session, pytest.raises(hms.NotSupported):
            session.consumer("lists", listener="WORK")
        with connection.session() as session:
            got = []
            consumer = session.consumer("lists")
            consumer.listen(lambda whole: got.append([m.body for m in whole.body]))
            _send_list(session.producer("lists"), "g")
            _send_list(session.producer("lists"), "h", 1)
            with connection.session() as other:
                probe = other.consumer("plain")
                for _ in range(600):
                    if len(got) == 2 or probe.receive(0.1) is not None:
                        break
            assert got == [["g1", "g2", "g3"], ["h1"]]


def test_a_global_order_is_kept_over_consumers_that_work_side_by_side(node):
    """F-C16: the next message is out only when the one before is done, also over a kill."""
    with (
        hms.connect(node.address) as connection,
        connection.session() as sending,
        connection.session(ack=hms.AckMode.CLIENT) as session,
    ):
        out = sending.producer("plain")
        name = out.start_global_order()
        out.send_many([str(number) for number in range(6)])
        assert out.global_order == name
        consumers = [session.consumer("plain") for _ in range(2)]
        seen = []
        while len(seen) < 6:
            found = [m for m in [c.receive(0.1) for c in consumers] if m is not None]
            assert len(found) < 2, "two of one order are out"
            for message in found:
                seen.append(message.body)
                assert message.properties["JMS_HMS_GlobalOrder"] == name
                message.ack()
            if found and len(seen) == 3:
                node.kill()
                node.boot(warm=True)
        assert seen == [str(number) for number in range(6)]


def test_an_order_ends_and_its_names_are_checked(session):
    """What is sent after its end is as free as before it began."""
    out, consumer = session.producer("plain"), session.consumer("plain")
    for name in ("", 5, "x" * 256):
        with pytest.raises(hms.InvalidArgument, match="name"):
            out.start_global_order(name)
    assert out.start_global_order("o") == "o"
    out.end_global_order()
    out.send_many(["1", "2"])
    assert [consumer.receive(WAIT_S).properties for _ in range(2)] == [{}, {}]


def test_the_applications_own_message_is_not_changed_by_an_order(session):
    """It may be sent again elsewhere, to a queue that knows no such order."""
    message = hms.Message.text("x", {"k": 1})
    out = session.producer("plain")
    out.start_global_order("o")
    out.send(message)
    assert dict(message.properties) == {"k": 1}
    assert session.consumer("plain").receive(WAIT_S).properties == {
        "k": 1,
        "JMS_HMS_GlobalOrder": "o",
    }


def test_asyncio_has_orders_and_lists_too(node):
    """The same names, awaited."""

    async def run():
        async with hms.aio.connect(node.address) as connection, connection.session() as session:
            out = session.producer("lists")
            for number in (2, 1):
                own = {"GROUP_NAME": "g", "GROUP_NUMBERING": number, "GROUP_END": number == 2}
                await out.send(str(number), own)
            whole = await session.consumer("lists").receive(WAIT_S)
            ordered = session.producer("plain")
            ordered.start_global_order("o")
            await ordered.send("x")
            message = await session.consumer("plain").receive(WAIT_S)
            return [m.body for m in whole.body], message.properties["JMS_HMS_GlobalOrder"]

    assert asyncio.run(run()) == (["1", "2"], "o")


def test_a_list_can_be_received_from_the_shell(node):
    """Each of its messages is shown whole, and the list is acknowledged."""
    with hms.connect(node.address) as connection, connection.session() as session:
        _send_list(session.producer("lists"), "g")
        command = ["receive", "lists", "--json", "--connect", node.address]
        shown = CliRunner().invoke(main, command)
        assert shown.exit_code == 0, shown.output
        assert [m["body"] for m in json.loads(shown.output)["body"]] == ["g1", "g2", "g3"]
        assert connection.administer("queue.show", {"name": "lists"})["waiting"] == 0


def test_the_operator_sees_sort_groups_and_lists(node):
    """What is held up, and by what, must be seen from outside."""
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer("lists").send("1", {"GROUP_NAME": "g", "GROUP_NUMBERING": 1})
        shown = connection.administer("queue.show", {"name": "lists"})
        assert (shown["message_group"], shown["held"], shown["lists_open"]) == ("GATHER", 1, 1)
        assert connection.administer("queue.show", {"name": "rising"})["sort"] == (
            "n INTEGER ASCENDING"
        )
