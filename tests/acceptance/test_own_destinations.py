"""Destinations that clients make, and operators pause, on a real node (F-C4 to F-C7, F-C14)."""

import asyncio
import json

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from tests.support.waiting import wait_until

WAIT_S = 60
CONFIG = {
    "node": {"node1": {"auto_destinations": True}},
    "hms": {
        "queue": {
            "orders": {"export_name": "jms/Orders"},
            "backed": {"max_active_consumers": 1, "max_backup_consumers": 1},
        },
        "topic": {"news": {}},
    },
}


@pytest.fixture
def session(node):
    with hms.connect(node.address, request_timeout_s=WAIT_S) as conn, conn.session() as session:
        yield session


@pytest.fixture
def hms_command(node):
    def run(*words, code=0):
        said = CliRunner().invoke(main, [*words, "--connect", node.address])
        assert said.exit_code == code, said.output + said.stderr
        return said

    return run


def test_a_request_is_answered_into_a_temporary_queue(node, session):
    """F-C6: what temporary queues are for."""
    answers = session.temporary_queue()
    inbox = session.consumer(answers)
    session.producer(hms.Queue("orders")).send(hms.Message.text("ping", reply_to=answers))

    with hms.connect(node.address) as other, other.session() as serving:
        request = serving.consumer(hms.Queue("orders")).receive(WAIT_S)
        serving.producer(request.reply_to).send("pong")
        with pytest.raises(hms.TemporaryDestination):
            serving.consumer(request.reply_to)

    assert inbox.receive(WAIT_S).body == "pong"
    inbox.close()
    session.delete_temporary(answers)
    with pytest.raises(hms.DestinationNotFound):
        session.producer(answers)


def test_a_temporary_topic_and_queue_end_with_their_connection(node, session):
    """Nobody has to clean up after a client."""
    with hms.connect(node.address) as other, other.session() as own:
        queue, topic = own.temporary_queue(), own.temporary_topic()
        heard = own.subscriber(topic)
        session.producer(topic).send("hello")
        assert heard.receive(WAIT_S).body == "hello"
        session.producer(queue).send("left behind")

    assert wait_until(lambda: _is_gone(session, queue) and _is_gone(session, topic))


def _is_gone(session, destination):
    """The end of one connection and the requests of another one are on lanes of their own."""
    try:
        session.producer(destination).close()
    except hms.DestinationNotFound:
        return True
    return False


def test_a_queue_that_a_client_creates_is_found_by_its_export_name(session):
    """F-C4, F-C7: create_queue("Name?export-name=…")."""
    made = session.create_queue("mine?export-name=jms/Mine&max-messages=1")

    assert session.lookup("jms/Mine") == made == hms.Queue("mine")
    assert session.lookup("jms/Orders") == hms.Queue("orders")
    session.producer(made).send("one")
    with pytest.raises(hms.QueueFull):
        session.producer(made).send("two")
    with pytest.raises(hms.DestinationExists):
        session.create_queue("mine?")
    with pytest.raises(hms.ExportNameNotFound):
        session.lookup("jms/Nothing")


def test_a_number_below_zero_can_be_said_of_a_queue_that_a_client_creates(session):
    """-1 attempts are as many as it takes (F-C9)."""
    poison = session.create_queue("poison?redelivery-limit=-1")
    session.producer(poison).send("x")

    counts = []
    with session.connection.session(transacted=True) as work:
        consumer = work.consumer(poison)
        for _ in range(6):
            message = consumer.receive(timeout_s=60)
            counts.append(message.delivery_count)
            work.rollback()

    assert counts == [1, 2, 3, 4, 5, 6]


def test_what_a_client_created_is_gone_when_the_node_has_stopped(node, session):
    """Until then it is as good as a configured one."""
    session.create_topic("gossip?")
    session.create_queue("mine?")
    session.producer(hms.Queue("mine")).send("x")
    session.connection.close()
    node.stop()
    node.boot(warm=True)

    with hms.connect(node.address) as conn:
        names = {one["name"] for one in conn.administer("queue.list")}
        assert "mine" not in names
        assert "gossip" not in {one["name"] for one in conn.administer("topic.list")}


def test_a_queue_is_made_by_its_first_use_where_the_node_says_so(session):
    """F-C5."""
    session.producer(hms.Queue("new")).send("x")

    assert session.consumer(hms.Queue("new")).receive(WAIT_S).body == "x"


def test_a_backup_takes_over_when_the_active_consumer_is_lost(node, session):
    """F-C13: with the messages that it had not acknowledged."""
    other = hms.connect(node.address)
    active = other.session(ack=hms.AckMode.CLIENT).consumer(hms.Queue("backed"))
    backup = session.consumer(hms.Queue("backed"))
    session.producer(hms.Queue("backed")).send("x")
    assert active.receive(WAIT_S).body == "x"
    assert backup.receive_nowait() is None
    with pytest.raises(hms.ConsumerLimit):
        session.consumer(hms.Queue("backed"))

    other.close()

    assert backup.receive(WAIT_S).redelivered


def test_an_operator_creates_alters_pauses_and_deletes_a_queue(session, hms_command):
    """F-M2, F-M4: from the shell, and it holds at once."""
    hms_command("queue", "create", "desk", "--set", "max_messages=1")
    sender = session.producer(hms.Queue("desk"))
    sender.send("one")
    with pytest.raises(hms.QueueFull):
        sender.send("two")
    hms_command("queue", "alter", "desk", "--set", "max_messages=5")
    hms_command("queue", "pause", "desk", "--production")
    pending = sender.send_async("two")
    shown = json.loads(hms_command("queue", "show", "desk", "--json").output)
    assert (shown["paused"], shown["remaining"]) == ("PRODUCTION", 1)

    hms_command("queue", "resume", "desk")
    assert pending.result(WAIT_S).message_id
    sender.close()
    assert "2 messages wait" in hms_command("queue", "delete", "desk", "--yes", code=1).stderr
    hms_command("queue", "delete", "desk", "--yes", "--force")

    assert "no queue desk" in hms_command("queue", "show", "desk", code=1).stderr


def test_what_cannot_be_deleted_is_refused_before_a_question(session, hms_command):
    """An operator said yes to what was refused then."""

    def refused(*words):
        said = hms_command(*words, code=1).stderr
        assert "[y/N]" not in said
        return said

    hms_command("queue", "create", "desk")
    session.producer(hms.Queue("desk")).send("one")
    assert "1 messages wait" in refused("queue", "delete", "desk")
    consumer = session.consumer(hms.Queue("desk"))
    assert "1 consumers" in refused("queue", "delete", "desk", "--force")
    consumer.close()
    for words in (("queue", "orders"), ("queue", "HMS.DLQ"), ("topic", "news")):
        assert "it stands in hms.conf" in refused(words[0], "delete", words[1])
    assert "there is no queue gone" in refused("queue", "delete", "gone")

    forced = "queue", "delete", "desk", "--force"
    assert "End desk and dead-letter 1 message?" in hms_command(*forced, code=1).stderr
    assert "and discard 1 message?" in hms_command(*forced, "--discard", code=1).stderr


def test_an_operator_does_the_same_to_topics(session, hms_command):
    """Each of the commands of `hms topic`."""
    hms_command("topic", "create", "sport", "--topic-string", "World/Sport")
    hms_command("topic", "alter", "sport", "--set", "limit_behavior=REMOVE_OLDEST")
    durable = session.subscriber(hms.Topic("sport"), durable="mine")
    hms_command("topic", "pause", "sport", "--consumption")
    session.producer(hms.Topic("sport")).send("x")
    assert durable.receive_nowait() is None
    shown = json.loads(hms_command("topic", "show", "sport", "--json").output)
    assert (shown["paused"], shown["remaining"], shown["object"]) == ("CONSUMPTION", 1, "sport")
    hms_command("topic", "purge", "sport", "--yes")
    assert "subscriptions" in hms_command("topic", "delete", "sport", "--yes", code=1).stderr
    durable.close()
    session.unsubscribe(hms.Topic("sport"), "mine")

    hms_command("topic", "delete", "sport", "--yes")


def test_a_send_to_a_paused_queue_fails_after_the_request_timeout(node, hms_command):
    """F-C14: and says what to do."""
    hms_command("queue", "pause", "orders")
    with hms.connect(node.address, request_timeout_s=5) as conn, conn.session() as session:
        producer = session.producer(hms.Queue("orders"))
        wait_until(lambda: _is_told_to_resume(producer))
        hms_command("queue", "resume", "orders")


def _is_told_to_resume(producer):
    """The node answers a second before the client's time is over: where it has no processor for
    that long, the send is in doubt."""
    with pytest.raises((hms.InvalidDestinationState, hms.SendInDoubt)) as refused:
        producer.send("x")
    return "hms queue resume orders" in str(refused.value)


def test_asyncio_has_the_same_calls(node):
    """One client, two shells."""

    async def run():
        async with hms.aio.connect(node.address) as conn, conn.session() as session:
            answers = await session.temporary_queue()
            await session.producer(answers).send("x")
            async with session.consumer(answers) as inbox:
                assert (await inbox.receive(WAIT_S)).body == "x"
            await session.delete_temporary(answers)
            made = await session.create_queue("mine?export-name=jms/Mine")
            assert await session.lookup("jms/Mine") == made
            await session.create_topic("gossip")
            await session.temporary_topic()

    asyncio.run(run())
