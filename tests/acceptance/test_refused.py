"""What a session refuses: each case has an error of its own, and changes nothing."""

import pytest

import hms
from hms.testing import node

CONNECT = {"reconnect": False}

CONFIG = "[hms.queue.orders]\n[hms.topic.news]\n"
WAIT_S = 60


@pytest.fixture(scope="module")
def running():
    with node(config=CONFIG) as started:
        with hms.connect(started.address) as connection, connection.session() as session:
            session.producer(hms.Queue("orders")).send(b"waits")
            session.subscriber(hms.Topic("news"), durable="taken")
        yield started


def _bad_selector(conn):
    conn.session().consumer(hms.Queue("orders"), selector="price >")


def _durable_name_in_use(conn):
    conn.session().subscriber(hms.Topic("news"), durable="taken")
    conn.session().subscriber(hms.Topic("news"), durable="taken")


def _commit_on_a_general_session(conn):
    conn.session().commit()


def _receive_on_a_closed_consumer(conn):
    consumer = conn.session().consumer(hms.Queue("orders"), selector="no = 1")
    consumer.close()
    consumer.receive(timeout_s=WAIT_S)


def _browser_on_a_topic(conn):
    list(conn.session().browser(hms.Topic("news")))


def _property_out_of_range(conn):
    message = hms.Message(b"x")
    message.properties.set_typed("n", hms.HMS_SHORT, 40_000)
    conn.session().producer(hms.Queue("orders")).send(message)


def _reserved_name(conn):
    message = hms.Message(b"x")
    message.properties["$MessageID"] = "1"
    conn.session().producer(hms.Queue("orders")).send(message)


def _unknown_destination(conn):
    conn.session().producer(hms.Queue("nowhere")).send(b"x")


def _state(conn):
    """What the node has, without what changes by looking."""
    queues = conn.administer("queue.list", {})
    durable = [s for s in conn.administer("subscription.list", {}) if s["is_durable"]]
    return (
        [(q["name"], q["waiting"], q["in_flight"], q["sent"]) for q in queues],
        sorted((s["name"], s["waiting"], s["selector"]) for s in durable),
    )


CASES = [
    (_bad_selector, hms.SelectorSyntaxError, "position"),
    (_durable_name_in_use, hms.DurableNameInUse, "taken"),
    (_commit_on_a_general_session, hms.IllegalState, "commit"),
    (_receive_on_a_closed_consumer, hms.ConnectionClosed, "consumer"),
    (_browser_on_a_topic, hms.InvalidArgument, "not a queue"),
    (_property_out_of_range, hms.HmsError, "32767"),
    (_reserved_name, hms.HmsError, "MessageID"),
    (_unknown_destination, hms.DestinationNotFound, "nowhere"),
]


@pytest.mark.parametrize(("case", "error", "word"), CASES, ids=[c[0].__name__[1:] for c in CASES])
def test_a_refused_case_has_its_own_error_and_changes_nothing(conn, case, error, word):
    """Who is refused must be able to tell why, and find everything as it was."""
    before = _state(conn)

    with pytest.raises(error) as caught:
        case(conn)

    assert word.lower() in str(caught.value).lower()
    assert caught.value.cure
    assert _state(conn) == before


def test_after_all_refusals_the_session_still_works(conn):
    """An error is an answer, not the end."""
    session = conn.session()
    for case, error, _ in CASES:
        with pytest.raises(error):
            case(conn)
    consumer = session.consumer(hms.Queue("orders"))
    message = consumer.receive(timeout_s=WAIT_S)
    assert message.body == b"waits"
    session.producer(hms.Queue("orders")).send(message.body)
