"""Operators list, view, move, copy, delete, expire and alter messages that wait (F-M3)."""

import pytest

from hms.engine.admin import message_selection
from hms.engine.admin.message_selection import subscription_name
from hms.engine.engine import Return
from hms.engine.queue import pending_list, ready_queue
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import (
    DestinationNotFound,
    InvalidArgument,
    InvalidDestinationState,
    MessageNotFound,
    NotSupported,
    QueueFull,
    SelectorSyntaxError,
    SubscriptionNotFound,
    TransactionTooLarge,
)
from hms.history.runs import RunDecoder
from hms.wire.packed_messages import FLAG_RETAIN, ROW, Head, encode_head, pack_messages
from tests.support.engine_rig import EngineRig, delivered

PLACE = "queue:orders"
PERSISTENT = (True,)
DESTINATIONS = (
    DestinationSettings("queue", "orders"),
    DestinationSettings("queue", "slow", redelivery_delay_ms=1000),
    DestinationSettings("queue", "other"),
    DestinationSettings("queue", "late"),
    DestinationSettings("topic", "news", redelivery_limit=1),
)


@pytest.fixture
def rig():
    return EngineRig(destinations=DESTINATIONS)


def operate(rig, verb, place=PLACE, **arguments):
    """One request, which is one chunk."""
    answers = []
    asked = {"place": place} | arguments

    def run(fx):
        answers.append(rig.engine.administer(f"message.{verb}", asked, rig.now_ms, fx))

    rig.fx = rig.run(run)
    return answers[0]


def every(rig, verb, **arguments):
    """The whole of an operation, chunk by chunk; the answers."""
    answers = [operate(rig, verb, **arguments)]
    while answers[-1]["has_more"]:
        last = answers[-1]
        answers.append(operate(rig, verb, **arguments, after=last["after"], end=last["end"]))
    return answers


def waiting(rig, name):
    return rig.engine.state.queues[name].line.everything()


def bodies(rig, name):
    """Of a queue, what would be received, in order."""
    return [m.payload[m.head_bytes :] for m in waiting(rig, name)]


def restart(rig):
    rig.start()


def send(rig, body, *, ttl_ms=0, delay_ms=0, priority=4, type_=None, **properties):
    head = encode_head(Head(properties, type=type_))
    row = ROW.pack(len(head), len(body), ttl_ms, delay_ms, priority, 0, 0, 0)
    pack = memoryview(pack_messages([(row, head, body)]))
    rig.sequence += 1
    first = rig.sequence
    rig.run(lambda fx: rig.engine.send(1, 5, 1, first, 1, *PERSISTENT, pack, rig.now_ms, fx))


def test_a_list_says_of_each_message_what_it_is(rig):
    """Who is called at night looks before touching anything."""
    send(rig, b"one", type_="drinks", Table=5)
    send(rig, b"three", delay_ms=5000)
    rig.consume(1, credit=0)

    first, second = operate(rig, "list", properties="Table Missing")["messages"]

    assert (first["type"], first["bytes"], first["state"]) == ("drinks", 3, "waiting")
    assert first["properties"] == {"Table": 5}
    assert (second["state"], second["due_ms"]) == ("delayed", 6000)


def test_what_is_in_flight_is_listed_and_not_touched(rig):
    """A consumer's message is its own until it is settled."""
    rig.send(count=3)
    rig.consume(1, credit=1)

    states = [row["state"] for row in operate(rig, "list")["messages"]]
    moved = operate(rig, "move", to="other", is_all=True)

    assert states == ["in_flight", "waiting", "waiting"]
    assert (moved["count"], moved["skipped_in_flight"]) == (2, 1)
    assert len(operate(rig, "list", state="in_flight")["messages"]) == 1
    assert rig.engine.state.queues["orders"].line.out_count == 1


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_list_goes_on_where_it_ended_whatever_came_and_went(rig, monkeypatch, is_newest):
    """A cursor is a place in the order of arrival; no message is shown twice or left out."""
    monkeypatch.setattr(message_selection, "MESSAGES_AT_ONCE", 4)
    for priority in (9, 0, 4):
        rig.send(count=5, priority=priority)
    seen, after, end = [], 0, 0
    while True:
        page = operate(rig, "list", after=after, end=end, is_newest=is_newest)
        seen += [row["id"] for row in page["messages"]]
        rig.send(priority=9)
        if not page["has_more"]:
            break
        after, end = page["after"], page["end"]

    assert len(seen) == len(set(seen)) == 15
    assert seen == sorted(seen, reverse=is_newest)


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_page_costs_what_it_shows_however_deep_it_begins(rig, monkeypatch, is_newest):
    """Its place in the order of arrival is found by halving: no message before it is touched."""
    for number in range(2000):
        send(rig, b"%d" % number)
    touched = []

    def seq(message):
        touched.append(message)
        return message.seq

    monkeypatch.setattr(ready_queue, "_seq", seq)
    monkeypatch.setattr(pending_list, "_seq", seq)
    counts, at = [], {}
    for _ in range(3):
        touched.clear()
        said = operate(rig, "list", limit=10, is_newest=is_newest, **at)
        assert len(said["messages"]) == 10
        counts.append(len(touched))
        middle = (said["after"] + 900) if not is_newest else said["after"] - 900
        at = {"after": middle, "end": said["end"]}
    assert max(counts) <= 2 * 10 + 11, "ten messages, and the halvings of 2,000"


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_page_of_delayed_messages_costs_what_it_shows(rig, monkeypatch, is_newest):
    """All that was delayed was sorted for each page."""
    rig.send(count=1000)
    rig.send(count=1000)
    later = {"deliver_at_ms": rig.engine.state.now_ms + 60_000}
    assert sum(said["count"] for said in every(rig, "alter", is_all=True, **later)) == 2000
    touched, seq = [], pending_list._seq

    def counted(message):
        touched.append(message)
        return seq(message)

    monkeypatch.setattr(pending_list, "_seq", counted)
    ids, at = [], {}
    while True:
        touched.clear()
        said = operate(rig, "list", limit=100, state="delayed", is_newest=is_newest, **at)
        assert len(touched) <= 101
        ids += [row["id"] for row in said["messages"]]
        at = {"after": said["after"], "end": said["end"]}
        if not said["has_more"]:
            break
    assert ids == sorted(ids, reverse=is_newest)
    assert len(set(ids)) == 2000


def test_a_page_looks_at_no_more_than_it_may(rig):
    """A selector that fits nothing must not hold everybody up."""
    for _ in range(6):
        rig.send(count=1000, properties={"Month": 3})

    page = operate(rig, "list", selector="Month = 7 AND Day > 3")

    assert page["messages"] == []
    assert page["has_more"]
    assert page["after"] < rig.engine.state.next_seq - 1000
    assert sum(len(p["messages"]) for p in every(rig, "list", selector="Month = 7")) == 0


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        ({"selector": "Table > 4"}, [b"b", b"c"]),
        ({"type": "drinks"}, [b"a", b"c"]),
        ({"from_ms": 1100, "until_ms": 1200}, [b"b"]),
        ({"older_than_ms": 150}, [b"a"]),
        ({"state": "delayed"}, [b"d"]),
        ({"state": "waiting"}, [b"a", b"b", b"c"]),
        ({"limit": 2}, [b"a", b"b"]),
        ({"limit": 1, "is_newest": True}, [b"d"]),
        ({"min_count": 1}, []),
        ({"is_all": True}, [b"a", b"b", b"c", b"d"]),
    ],
)
def test_what_is_chosen_goes_and_the_rest_stays(rig, selection, chosen):
    """By selector, type, time, state, count and number."""
    for n, (body, kind) in enumerate([(b"a", "drinks"), (b"b", "food"), (b"c", "drinks")]):
        rig.now_ms = 1000 + 100 * n
        send(rig, body, type_=kind, Table=4 + n)
    send(rig, b"d", delay_ms=60_000)

    answer = operate(rig, "move", to="other", **selection)

    assert answer["count"] == len(chosen)
    assert sorted(bodies(rig, "other")) == chosen
    restart(rig)
    assert sorted(bodies(rig, "other")) == chosen
    assert sorted(bodies(rig, "orders")) == sorted({b"a", b"b", b"c", b"d"} - {*chosen})


def test_a_moved_message_keeps_its_id_its_times_and_how_often_it_came(rig):
    """It is the same message, elsewhere; after a crash too."""
    send(rig, b"x", ttl_ms=90_000, priority=7, type_="t", Table=5)
    send(rig, b"later", delay_ms=60_000)
    (message,) = rig.consume(1, credit=1)
    spans = [(message.id, message.id)]
    how = Return.FAILED
    rig.run(lambda fx: rig.engine.give_back(1, 1, 0, spans, how, rig.now_ms, fx, 0))
    rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))
    before = operate(rig, "list")["messages"]

    operate(rig, "move", to="queue:other", is_all=True)

    for _ in range(2):
        after = operate(rig, "list", "queue:other")["messages"]
        assert after == before
        assert after[0]["count"] == 1
        restart(rig)
    assert waiting(rig, "orders") == []


def test_counts_are_reset_on_request(rig):
    """So that a healed consumer gets all of its tries."""
    rig.send()
    (message,) = rig.consume(1, credit=1)
    spans, how = [(message.id, message.id)], Return.FAILED
    rig.run(lambda fx: rig.engine.give_back(1, 1, 0, spans, how, rig.now_ms, fx, 60_000))

    operate(rig, "move", to="other", is_all=True, is_count_reset=True)

    assert operate(rig, "list", "queue:other")["messages"][0]["count"] == 0


def test_a_chunk_is_one_record_and_a_crash_before_it_leaves_everything(rig):
    """Each message is in exactly one place, whatever the log has of the command (P6)."""
    rig.send(count=200)
    rig.send(count=200, priority=9)
    before = len(rig.log)
    answers = every(rig, "move", to="other", is_all=True)

    assert [a["count"] for a in answers] == [250, 150]
    assert len(rig.log) - before == len(answers)
    log = rig.log
    for kept in range(before, len(log) + 1):
        rig.log = log[:kept]
        restart(rig)
        here, there = len(waiting(rig, "orders")), len(waiting(rig, "other"))
        assert (here, there) in ((400, 0), (150, 250), (0, 400))


def test_copies_have_ids_of_their_own_and_say_whose_they_are(rig):
    """The message stays, and nothing has its id twice."""
    rig.send(count=2)
    ids = [row["id"] for row in operate(rig, "list")["messages"]]

    operate(rig, "copy", to="other", is_all=True)

    copies = operate(rig, "list", "queue:other", properties="$OriginalMessageID")["messages"]
    assert [c["properties"]["$OriginalMessageID"] for c in copies] == ids
    assert not {c["id"] for c in copies} & {*ids}
    restart(rig)
    assert (len(waiting(rig, "orders")), len(waiting(rig, "other"))) == (2, 2)


def test_a_deleted_message_is_gone_and_counted(rig):
    """Nothing leaves in silence (P9)."""
    send(rig, b"a")
    send(rig, b"b", delay_ms=1000)

    assert operate(rig, "delete", is_all=True)["count"] == 2
    assert rig.engine.state.queues["orders"].line.counters.purged == 2
    restart(rig)
    assert waiting(rig, "orders") == []


def test_an_expired_message_goes_where_the_queue_sends_what_expires():
    """As if its time had come."""
    own = (DestinationSettings("queue", "orders", expired_to="other"), *DESTINATIONS[1:])
    rig = EngineRig(destinations=own)
    rig.send(count=2)
    first = operate(rig, "list")["messages"][0]["id"]

    assert operate(rig, "expire", ids=first)["count"] == 1

    (letter,) = waiting(rig, "other")
    assert letter.head().node["$DeadReason"] == "EXPIRED"
    assert len(waiting(rig, "orders")) == 1
    assert rig.engine.state.queues["orders"].line.counters.expired == 1


def test_an_altered_message_has_its_new_priority_and_times_after_a_crash_too(rig):
    """It is the same message: its id stays."""
    send(rig, b"a")
    send(rig, b"b")
    a, b = (row["id"] for row in operate(rig, "list")["messages"])

    operate(rig, "alter", ids=b, priority=9, ttl_ms=5000)
    operate(rig, "alter", ids=a, deliver_at_ms=9000)

    for _ in range(2):
        rows = {row["id"]: row for row in operate(rig, "list")["messages"]}
        assert (rows[b]["priority"], rows[b]["expires_ms"]) == (9, 6000)
        assert (rows[a]["state"], rows[a]["due_ms"]) == ("delayed", 9000)
        restart(rig)
    operate(rig, "alter", ids=a, deliver_at_ms=0)
    assert [m.payload[m.head_bytes :] for m in rig.consume(1)] == [b"b", b"a"]


def test_consumers_get_at_once_what_comes_to_their_queue(rig):
    """With a selector too."""
    rig.consume(1, "other", selector="Table = 5")
    rig.consume(2, "late")
    send(rig, b"a", Table=5)
    send(rig, b"b")

    operate(rig, "move", to="other", is_all=True)
    assert [m.payload[m.head_bytes :] for m in delivered(rig.fx)] == [b"a"]
    operate(rig, "move", "queue:other", to="late", is_all=True)
    assert [m.payload[m.head_bytes :] for m in delivered(rig.fx)] == [b"b"]


def test_a_full_target_takes_what_fits_and_then_says_that_it_is_full(rig):
    """Whole chunks are done, and the rest stays."""
    rig.run(
        lambda fx: rig.engine.administer(
            "queue.alter", {"name": "other", "max_messages": 3}, rig.now_ms, fx
        )
    )
    rig.send(count=5)

    answer = operate(rig, "move", to="other", is_all=True)

    assert (answer["count"], answer["has_more"]) == (3, True)
    with pytest.raises(QueueFull):
        operate(rig, "move", to="other", is_all=True, after=answer["after"], end=answer["end"])
    assert (len(waiting(rig, "orders")), len(waiting(rig, "other"))) == (2, 3)


def test_a_dry_run_counts_and_changes_nothing(rig):
    """What would be done is known before it is."""
    rig.send(count=3)
    before = len(rig.log)

    for verb, more in (("move", {"to": "other"}), ("delete", {}), ("alter", {"priority": 1})):
        assert operate(rig, verb, is_all=True, is_dry=True, **more)["count"] == 3

    assert len(rig.log) == before
    assert len(waiting(rig, "orders")) == 3


@pytest.mark.parametrize(
    ("verb", "place", "arguments", "error"),
    [
        ("list", "orders", {}, InvalidArgument),
        ("list", "queue:", {}, InvalidArgument),
        ("list", "queue:nowhere", {}, DestinationNotFound),
        ("list", "subscription:nobody", {}, SubscriptionNotFound),
        ("list", PLACE, {"selector": "Month >"}, SelectorSyntaxError),
        ("list", PLACE, {"selector": "$Nothing = 1"}, SelectorSyntaxError),
        ("list", PLACE, {"ids": "xyz"}, InvalidArgument),
        ("list", PLACE, {"state": "asleep"}, InvalidArgument),
        ("view", PLACE, {"id": "0" * 12}, MessageNotFound),
        ("view", PLACE, {"id": "0" * 11}, InvalidArgument),
        ("delete", PLACE, {"ids": "0x0000000001"}, InvalidArgument),
        ("delete", PLACE, {"ids": "0_0000000001"}, InvalidArgument),
        ("move", PLACE, {"is_all": True}, InvalidArgument),
        ("move", PLACE, {"is_all": True, "to": "nowhere"}, DestinationNotFound),
        ("move", PLACE, {"is_all": True, "to": "orders"}, InvalidArgument),
        ("move", PLACE, {"is_all": True, "to": "paused"}, InvalidDestinationState),
        ("move", PLACE, {"to": "other"}, InvalidArgument),
        ("move", PLACE, {"to": "other", "state": "in_flight"}, InvalidArgument),
        ("move", "retained:#", {"is_all": True, "to": "other"}, NotSupported),
        ("delete", PLACE, {}, InvalidArgument),
        ("expire", PLACE, {}, InvalidArgument),
        ("alter", PLACE, {"is_all": True}, InvalidArgument),
        ("alter", PLACE, {"is_all": True, "priority": 10}, InvalidArgument),
        ("alter", PLACE, {"is_all": True, "ttl_ms": 1 << 62}, InvalidArgument),
        ("alter", PLACE, {"is_all": True, "deliver_at_ms": 1 << 62}, InvalidArgument),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(rig, verb, place, arguments, error):
    """A slip at night must not cost a message."""
    rig.send(count=2)
    for name, what in (("paused", "create"), ("paused", "pause")):
        rig.run(
            lambda fx, name=name, what=what: rig.engine.administer(
                f"queue.{what}", {"name": name}, rig.now_ms, fx
            )
        )
    before = len(rig.log)

    with pytest.raises(error):
        operate(rig, verb, place, **arguments)

    assert len(rig.log) == before
    assert len(waiting(rig, "orders")) == 2


@pytest.mark.parametrize(
    ("place", "where"),
    [("subscription:nobody", "any topic"), ("subscription:nobody@news/eu", "news/eu")],
)
def test_a_subscription_that_is_not_there_is_named_with_where_it_was_sought(rig, place, where):
    """The words "on topic any topic" read like a topic of that name."""
    with pytest.raises(SubscriptionNotFound) as caught:
        operate(rig, "list", place)

    assert f"there is no durable subscription nobody on {where}" in str(caught.value)


def test_a_view_has_the_head_and_the_body(rig):
    """Of a large one as much as was asked for."""
    send(rig, b"0123456789", Table=5)
    (row,) = operate(rig, "list")["messages"]

    shown = operate(rig, "view", id=row["id"], bytes_max=4)

    assert shown["body"] == b"0123"
    assert shown["id"] == row["id"]
    assert shown["bytes"] == 10


def test_what_waits_for_a_durable_subscription_is_managed_like_a_queue():
    """It is found by its name, and by its topic where names are alike."""
    rig = EngineRig(subscriptions=[("audit", "news")], destinations=DESTINATIONS)
    rig.send(producer=2, count=3)

    assert len(operate(rig, "list", "subscription:audit@news")["messages"]) == 3
    operate(rig, "alter", "subscription:audit", limit=1, priority=9)
    operate(rig, "move", "subscription:audit", to="other", limit=1)
    operate(rig, "delete", "subscription:audit", limit=1)

    assert len(operate(rig, "list", "subscription:audit")["messages"]) == 1
    rig.start([("audit", "news")])
    (left,) = operate(rig, "list", "subscription:audit")["messages"]
    assert (left["priority"], len(waiting(rig, "other"))) == (9, 1)


@pytest.mark.parametrize(
    ("name", "topic"), [("me@home", "news"), ("me", "home@news"), ("a@b", "c@d"), ("@x", "y@")]
)
def test_a_name_and_a_topic_may_have_an_at_sign_of_their_own(name, topic):
    """It was taken for what stands before a topic, so nobody could name such a subscription."""
    destinations = (*DESTINATIONS, DestinationSettings("topic", topic))
    rig = EngineRig(subscriptions=[(name, topic)], destinations=destinations)

    for place in (f"subscription:{name}", f"subscription:{name}@{topic}"):
        assert operate(rig, "list", place)["messages"] == []
        assert subscription_name(rig.engine.state, place.partition(":")[2]) == name


def test_what_is_retained_is_listed_copied_and_deleted(rig):
    """By a pattern of topics."""
    head = encode_head(Head({"Table": 5}))
    row = ROW.pack(len(head), 1, 0, 0, 4, 0, FLAG_RETAIN, 0)
    pack = memoryview(pack_messages([(row, head, b"r")]))
    rig.run(lambda fx: rig.engine.send(1, 5, 2, 900, 1, *PERSISTENT, pack, rig.now_ms, fx))

    (shown,) = operate(rig, "list", "retained:news", properties="$Topic")["messages"]
    assert shown["bytes"] == 1
    assert operate(rig, "list", "retained:other")["messages"] == []
    operate(rig, "copy", "retained:#", is_all=True, to="other")
    assert bodies(rig, "other") == [b"r"]
    assert operate(rig, "delete", "retained:#", is_all=True)["count"] == 1
    assert rig.engine.state.space.retained.count == 0


def test_what_others_wait_for_stays():
    """A part of a gathered group would leave the rest waiting for ever."""
    own = (DestinationSettings("queue", "orders", is_gathering=True), *DESTINATIONS[1:])
    rig = EngineRig(destinations=own)
    rig.send(properties={"GROUP_NAME": "g", "GROUP_NUMBERING": 1})

    answer = operate(rig, "move", to="other", is_all=True)

    assert (answer["count"], answer["skipped_ordered"]) == (0, 1)
    with pytest.raises(InvalidArgument):
        operate(rig, "move", "queue:other", to="orders", is_all=True)


def test_messages_of_an_ordinary_group_move_and_are_a_group_again(rig):
    """Groups are kept by their name wherever they wait."""
    rig.send(count=3, properties={"JMSXGroupID": "g"})

    assert operate(rig, "move", to="other", is_all=True)["count"] == 3
    assert len(rig.consume(1, "other")) == 3
    assert rig.engine.state.queues["orders"].line.waiting_count == 0


def test_the_history_tells_what_an_operator_did_to_a_message(rig):
    """Where it left, where it came, and why (P9)."""
    rig.send(count=3)
    ids = [row["id"] for row in operate(rig, "list")["messages"]]
    before = len(rig.log)

    operate(rig, "move", to="other", ids=ids[0])
    operate(rig, "delete", ids=ids[1])
    operate(rig, "expire", ids=ids[2])

    decoder = RunDecoder()
    told = [
        (run.event, run.place.destination, f"{run.first_id:012x}")
        for at, (kind, payload) in enumerate(rig.log)
        for run in decoder.runs(at, kind, payload)
        if at >= before
    ]
    assert told == [
        ("moved", "orders", ids[0]),
        ("forwarded", "other", ids[0]),
        ("purged", "orders", ids[1]),
        ("expired", "orders", ids[2]),
    ]


def test_what_is_done_as_one_is_one_record(rig):
    """More than a chunk: a crash leaves all of it, or none."""
    for n in range(600):
        send(rig, b"%d" % n, N=n)

    before = len(rig.log)
    answer = operate(rig, "move", to="other", is_all=True, is_atomic=True)

    assert (answer["count"], answer["has_more"]) == (600, False)
    assert len(rig.log) == before + 1
    restart(rig)
    assert (len(waiting(rig, "orders")), len(waiting(rig, "other"))) == (0, 600)
    assert operate(rig, "delete", "queue:other", selector="N < 300", is_atomic=True)["count"] == 300
    assert operate(rig, "copy", "queue:other", to="late", limit=7, is_atomic=True)["count"] == 7


def test_what_cannot_be_done_as_one_is_not_begun(rig, monkeypatch):
    """Too many bytes, too many messages, a target without room: nothing has changed."""
    for n in range(30):
        send(rig, b"x" * 1000, N=n)
    rig.run(
        lambda fx: rig.engine.administer("queue.alter", {"name": "late", "max_messages": 9}, 1, fx)
    )
    before = len(rig.log)

    with pytest.raises(InvalidArgument, match="room for 9 of 30"):
        operate(rig, "move", to="late", is_all=True, is_atomic=True)
    settings = rig.engine.state.settings
    object.__setattr__(settings, "transaction_bytes_max", 20_000)
    with pytest.raises(TransactionTooLarge):
        operate(rig, "move", to="other", is_all=True, is_atomic=True)
    object.__setattr__(settings, "transaction_bytes_max", 32 << 20)
    monkeypatch.setattr(message_selection, "ATOMIC_MAX", 10)
    with pytest.raises(InvalidArgument, match="more than 10 messages"):
        operate(rig, "delete", is_all=True, is_atomic=True)

    assert len(rig.log) == before
    assert len(waiting(rig, "orders")) == 30


@pytest.mark.parametrize("is_kept", [False, True])
def test_messages_of_a_temporary_queue_are_altered(is_kept):
    """The log knows no such queue, and the node stopped."""
    rig = EngineRig(destinations=DESTINATIONS, keeps_temporary=is_kept)
    names = []
    rig.run(lambda fx: names.append(rig.engine.create_temporary(1, "queue", fx)))
    rig.run(lambda fx: rig.engine.open_producer(1, 9, 1, "queue", names[0], fx=fx))
    rig.send(producer=9, count=2)
    before = len(rig.log)

    answer = operate(rig, "alter", f"queue:{names[0]}", is_all=True, priority=9)

    assert answer["count"] == 2
    assert [m.priority for m in waiting(rig, names[0])] == [9, 9]
    assert rig.engine.state.blocks.held_count == (2 if is_kept else 0)
    assert (len(rig.log) > before) is is_kept


@pytest.mark.parametrize("what", [{"ttl_ms": 60_000}, {"deliver_at_ms": 90_000}])
def test_a_message_of_a_node_whose_clock_is_ahead_is_altered(rig, what):
    """Its end came before the time at which it was sent there: no record can say so."""
    rig.send()
    (message,) = waiting(rig, "orders")
    message.timestamp_ms = 3_600_000

    answer = operate(rig, "alter", is_all=True, **what)

    assert answer["count"] == 1
    for _ in range(2):
        (message,) = waiting(rig, "orders")
        line = rig.engine.state.queues["orders"].line
        assert message.expires_at_ms == (61_000 if "ttl_ms" in what else 0)
        assert line.due_ms(message) == what.get("deliver_at_ms", 0)
        restart(rig)
