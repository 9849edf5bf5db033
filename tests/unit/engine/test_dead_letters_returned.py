"""Dead letters are listed, counted and sent back to where they came from (§6.1 of operations)."""

import pytest

from hms.engine.admin.destination_figures import FiguresPass
from hms.engine.engine import Return, Said
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import DestinationNotFound, InvalidArgument
from tests.support.engine_rig import EngineRig

PLACE = "queue:HMS.DLQ"
DESTINATIONS = (
    DestinationSettings("queue", "orders", redelivery_limit=1),
    DestinationSettings("queue", "slow", expired_to="late"),
    DestinationSettings("queue", "late"),
    DestinationSettings("topic", "news", redelivery_limit=1),
)
AUDIT = [("audit", "news"), ("copy", "news")]


@pytest.fixture
def rig():
    return EngineRig(subscriptions=AUDIT, destinations=DESTINATIONS)


def ask(rig, verb, **arguments):
    answers = []
    rig.run(lambda fx: answers.append(rig.engine.administer(verb, arguments, rig.now_ms, fx)))
    return answers[0]


def send_back(rig, place=PLACE, **arguments):
    return ask(rig, "dlq.return", place=place, is_all=True, **arguments)


def reject(rig, handle, destination, how=Return.REJECTED, **options):
    """Give up all that a consumer gets."""
    messages = rig.consume(handle, destination, **options)
    spans = [(m.id, m.id) for m in messages]
    rig.run(lambda fx: rig.engine.give_back(1, handle, 0, spans, how, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.close_consumer(1, handle, rig.now_ms, fx))
    return [m.id for m in messages]


def line(rig, name):
    return rig.engine.state.queues[name].line


def test_every_queue_that_keeps_letters_of_others_is_known(rig):
    """An operator need not know who was configured to send where."""
    assert [one["name"] for one in ask(rig, "dlq.queues")] == ["HMS.DLQ", "late"]


def test_letters_are_counted_by_their_reason_and_when_they_come_back(rig):
    """At the place that gave them up; what is moved elsewhere did not come back."""
    rig.send(count=2)
    reject(rig, 1, "orders")
    rig.send()
    reject(rig, 2, "orders", Return.FAILED)
    send_back(rig)
    figures = FiguresPass(rig.engine.state, "orders", 10)
    while figures.go_on():
        pass
    said = figures.answer()
    reasons = {reason: count for reason, count in said["durable"]["letters"].items() if count}
    assert reasons == {"REJECTED": 2, "REDELIVERY_LIMIT": 1}
    assert sum(reasons.values()) == said["durable"]["counters"]["dead_lettered"]
    assert said["durable"]["counters"]["returned"] == 3
    row = dict(zip(said["columns"], said["rows"][0], strict=True))
    assert (row["dead_lettered"], row["returned"]) == (3, 3)
    assert row["delivered_ms"] == rig.now_ms
    reject(rig, 3, "orders")
    send_back(rig, is_dry=True)
    assert line(rig, "orders").counters.returned == 3


def test_a_letter_goes_back_to_its_queue_as_the_message_that_it_was(rig):
    """With its id and properties, as if it had never failed; and a crash changes nothing."""
    rig.send(properties={"Table": 5})
    (id_,) = reject(rig, 1, "orders")

    answer = send_back(rig)

    assert (answer["count"], answer["left"]) == (1, {})
    for _ in range(2):
        (message,) = line(rig, "orders").everything()
        head = message.head()
        assert (message.id, dict(head.properties)) == (id_, {"Table": 5})
        assert dict(head.node) == {"$ReturnCount": 1}
        assert line(rig, "orders").attempts(message) == 0
        assert line(rig, "HMS.DLQ").everything() == []
        rig.start(AUDIT)


def test_a_letter_of_a_topic_goes_to_the_one_subscription_that_gave_it_up(rig):
    """Never to all of them again."""
    rig.send(producer=2)
    reject(rig, 1, "news", durable="audit")
    places = {s.name: s.line for s in rig.engine.state.space.subscriptions.values()}
    before = len(places["copy"].everything())

    assert send_back(rig)["count"] == 1
    assert len(places["audit"].everything()) == 1
    assert len(places["copy"].everything()) == before == 1


def test_a_letter_says_what_its_consumer_said(rig):
    """Who finds it need not look for the log of the day: rejected, or failed for the last time."""
    rig.send(count=2)
    first, second = rig.consume(1, "orders")
    give_back = rig.engine.give_back
    for message, how, said in (
        (first, Return.REJECTED, Said("DECODE_ERROR", "no JSON at byte 3")),
        (second, Return.FAILED, Said("", "KeyError: 'Table'")),
    ):
        spans = [(message.id, message.id)]
        rig.run(
            lambda fx, s=spans, h=how, w=said: give_back(1, 1, 0, s, h, rig.now_ms, fx, None, w)
        )

    for _ in range(2):
        said = [letter.head().node for letter in line(rig, "HMS.DLQ").everything()]
        assert [(one["$DeadReason"], one["$DeadText"]) for one in said] == [
            ("DECODE_ERROR", "no JSON at byte 3"),
            ("REDELIVERY_LIMIT", "KeyError: 'Table'"),
        ]
        rig.start(AUDIT)


def test_a_reason_that_there_is_not_counts_as_rejected(rig):
    """A client may say anything; a long text is cut."""
    rig.send()
    (message,) = rig.consume(1, "orders")
    spans, said = [(message.id, message.id)], Said("BAD_MOOD", "x" * 5000)
    give_back = rig.engine.give_back
    how = Return.REJECTED
    rig.run(lambda fx: give_back(1, 1, 0, spans, how, rig.now_ms, fx, None, said))

    (letter,) = line(rig, "HMS.DLQ").everything()
    story = letter.head().node
    assert (story["$DeadReason"], len(story["$DeadText"])) == ("REJECTED", 500)


def test_a_loop_is_counted_and_ends(rig):
    """A message that fails for ever comes back a number of times, and then stays."""
    rig.send()
    for _ in range(2):
        reject(rig, 1, "orders")
        assert send_back(rig, returns_max=2)["count"] == 1
    reject(rig, 1, "orders")

    answer = send_back(rig, returns_max=2)

    assert (answer["count"], answer["left"]) == (0, {"returned_too_often": 1})
    (letter,) = line(rig, "HMS.DLQ").everything()
    assert letter.head().node["$ReturnCount"] == 2


def test_a_letter_whose_origin_is_gone_or_full_stays(rig):
    """With the reason; it may go to another queue."""
    ask(rig, "queue.create", name="brief", redelivery_limit=1)
    rig.engine.open_producer(1, 50, 1, "queue", "brief")
    rig.send(producer=50)
    rig.send(count=2)
    reject(rig, 1, "brief")
    reject(rig, 2, "orders")
    rig.engine.close_producer(1, 50)
    ask(rig, "queue.delete", name="brief")
    ask(rig, "queue.alter", name="orders", max_messages=1)

    answer = send_back(rig)

    assert (answer["count"], answer["left"]) == (1, {"origin_gone": 1, "origin_full": 1})
    assert send_back(rig, to="late")["count"] == 2
    assert line(rig, "HMS.DLQ").everything() == []


def test_what_is_no_letter_is_not_sent_anywhere(rig):
    """Applications may use the queue for messages of their own."""
    rig.send()

    assert send_back(rig, "queue:orders")["left"] == {"no_letter": 1}


def test_an_expired_letter_may_expire_again_if_asked_to(rig):
    """Else it waits for whoever comes."""
    rig.send(producer=3)
    ask(rig, "message.expire", place="queue:slow", is_all=True)

    assert send_back(rig, "queue:late", ttl_ms=500, is_dry=True)["count"] == 1
    assert send_back(rig, "queue:late", ttl_ms=500)["count"] == 1
    (message,) = line(rig, "slow").everything()
    assert message.expires_at_ms == rig.now_ms + 500


def test_nothing_goes_back_by_a_slip(rig):
    """Something has to be chosen, and a target has to exist."""
    rig.send()
    reject(rig, 1, "orders")
    before = len(rig.log)

    with pytest.raises(InvalidArgument):
        ask(rig, "dlq.return", place=PLACE)
    with pytest.raises(DestinationNotFound):
        send_back(rig, to="nowhere")
    with pytest.raises(InvalidArgument):
        send_back(rig, to="HMS.DLQ")
    assert len(rig.log) == before
