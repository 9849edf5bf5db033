"""Replay from a running node's history into the same node, with a real Spark."""

import importlib

import pytest
from replay_rig import COUNT, Rig, rig_config

import hms
import hms.testing
from hms.errors.catalogue import (
    DestinationNotFound,
    HistoryError,
    QueueFull,
    ReplayConflict,
    StoreCorrupt,
)
from hms.history import count_events, preview, replay
from hms.history.ledger import forget_run, known_runs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rig():
    """A node that took orders of all priorities; the consumer is done with them."""
    with hms.testing.node(config=rig_config()) as node:
        made = Rig(node)
        made.send_and_handle()
        yield made


def again(spark, rig, into="again", **more):
    given = {"address": rig.node.address, "destination": "queue:orders", "into": into}
    return replay(spark, rig.node.store, **{**given, **more})


def test_replayed_messages_arrive_as_they_were_and_in_their_order(spark, rig):
    """Body, kind, priority, properties and header are the same, and the order is that of the
    log; what is added is where each comes from."""
    report = again(spark, rig, selector="n >= 100 AND odd = TRUE")
    before = [m for m in rig.sent_to("orders") if m.properties["n"] >= 100]
    before = [m for m in before if m.properties["odd"]]
    after = rig.sent_to("again")

    assert (report.sent, report.before, report.copies, report.unmarked) == (100, 0, 0, 0)
    assert [m.content for m in after] == [m.content for m in before]
    assert [m.node["$ReplayMessageID"] for m in after] == [m.message_id for m in before]
    assert [m.node["$ReplayOffset"] for m in after] == [m.offset for m in before]
    assert {m.node["$ReplayRun"] for m in after} == {report.run}
    assert not {m.message_id for m in after} & {m.message_id for m in before}
    assert (report.first_offset, report.last_offset) == (before[0].offset, before[-1].offset)


def test_without_a_session_the_log_is_read_here_and_the_same_is_sent(rig, monkeypatch):
    """A replay of one log waited for the start of Spark, and then at its hand-overs; a run goes on
    where it was, in smaller parts too."""
    module = importlib.import_module("hms.history.replay")
    monkeypatch.setattr(module, "is_spark_there", lambda: False)  # whichever test came before
    monkeypatch.setattr(module, "borrowed_session", None)
    report = again(None, rig, "here", selector="n >= 100 AND odd = TRUE")
    before = [m for m in rig.sent_to("orders") if m.properties["n"] >= 100]
    before = [m for m in before if m.properties["odd"]]
    after = rig.sent_to("here")

    assert (report.sent, report.before, report.copies, report.unmarked) == (100, 0, 0, 0)
    assert [m.content for m in after] == [m.content for m in before]
    assert [m.node["$ReplayMessageID"] for m in after] == [m.message_id for m in before]
    assert [m.node["$ReplayOffset"] for m in after] == [m.offset for m in before]
    assert again(None, rig, "here", selector="n >= 100 AND odd = TRUE").sent == 0
    given = {"run_id": "parts-here", "selector": "n < 200"}
    with pytest.raises(QueueFull):
        again(None, rig, "small", **given)
    assert {m.properties["n"] for m in rig.drain("small")} == set(range(120))
    assert again(None, rig, "small", **given).sent == 80
    assert {m.properties["n"] for m in rig.drain("small")} == set(range(120, 200))


def test_what_replays_note_of_themselves_is_never_replayed(spark, rig):
    """An old entry of a ledger that came again would set its run back: all of it would be sent
    twice."""
    again(spark, rig, "other", selector="n = 9", run_id="n9")
    assert rig.receive("other").body == "order 9"
    found = preview(spark, rig.node.store, into="queue:{destination}")

    assert {one.destination for one in found} >= {"queue:orders", "queue:loop"}
    assert "queue:HMS.REPLAY" not in {one.destination for one in found}


def test_a_consumer_receives_what_was_replayed_and_can_tell(spark, rig):
    """To an application a replayed message is a message, with a mark of its origin."""
    again(spark, rig, "queue:other", destination="orders", selector="n = 7", rate=50, run_id="n7")
    message = rig.receive("other")

    assert message.body == "order 7"
    assert dict(message.properties) == {"n": 7, "half": 3.5, "odd": True}
    assert (message.correlation_id, message.priority, message.redelivered) == ("c7", 7, False)
    assert message.property("$ReplayRun") == "n7"
    assert message.property("$ReplayOrigin") == "queue:orders"


def test_a_run_that_is_repeated_sends_nothing_twice(spark, rig):
    """Nightly jobs are started again by people who do not know that they ran (F-Q3)."""
    first = again(spark, rig, "twice", selector="n < 20")
    second = again(spark, rig, "twice", selector="n < 20")

    assert (first.sent, second.sent, second.before) == (20, 0, 20)
    assert first.run == second.run
    assert rig.waiting("twice") == 20


def test_a_run_keeps_the_end_that_it_had_at_its_beginning(spark, rig):
    """What comes while a run is interrupted belongs to another run."""
    again(spark, rig, "ended", selector="n = 1", run_id="ended")
    (entry,) = [e for e in known_runs(rig.node.address) if e.run == "ended"]

    assert entry.is_done
    assert entry.next_offset == entry.until_offset > entry.last_offset


def test_another_command_under_the_name_of_a_run_is_refused(spark, rig):
    """It would be half of this and half of that."""
    again(spark, rig, "mine", selector="n = 2", run_id="mine")

    with pytest.raises(ReplayConflict):
        again(spark, rig, "mine", selector="n = 3", run_id="mine")


def test_a_run_that_is_forgotten_sends_anew(spark, rig):
    """When it is meant, it must be possible."""
    again(spark, rig, "anew", selector="n = 2", run_id="anew")
    forgotten = forget_run(rig.node.address, "anew")
    again(spark, rig, "anew", selector="n = 2", run_id="anew")

    assert forgotten.sent == 1
    assert rig.waiting("anew") == 2
    assert forget_run(rig.node.address, "unknown") is None


def test_patterns_and_a_template_replay_many_destinations_at_once(spark, rig):
    """Each goes into one of its own, in its own order."""
    report = again(spark, rig, "re.{destination}", destination="queue:flights.*")

    assert report.sent == 2 * 30
    for name in ("flights.a", "flights.b"):
        assert [m.content for m in rig.sent_to(f"re.{name}")] == [
            m.content for m in rig.sent_to(name)
        ]


def test_copies_are_left_out_unless_they_are_asked_for(spark, rig):
    """A queue that is replayed into itself must not double with every run."""
    one = again(spark, rig, "loop", destination="loop")
    two = again(spark, rig, "loop", destination="loop", run_id="second")
    three = again(spark, rig, "loop", destination="loop", run_id="third", takes_copies=True)

    assert (one.sent, one.copies) == (5, 0)
    assert (two.sent, two.copies) == (5, 5)
    assert (three.sent, three.copies) == (15, 0)


def test_a_preview_counts_what_a_run_would_send_and_sends_nothing(spark, rig):
    """By destination, with the target of each."""
    given = {"destination": "queue:flights.*", "into": "{destination}.x", "selector": "n < 10"}
    rows = preview(spark, rig.node.store, **given)

    assert [(row.destination, row.into, row.messages, row.copies) for row in rows] == [
        ("queue:flights.a", "queue:flights.a.x", 10, 0),
        ("queue:flights.b", "queue:flights.b.x", 10, 0),
    ]


def test_file_messages_are_left_out_and_the_others_of_their_queue_are_sent(spark, rig, tmp_path):
    """Their content is gone with the last message that named it; the run must go on, and say so."""
    (tmp_path / "f.bin").write_bytes(bytes(1000))
    with hms.connect(rig.node.address) as connection, connection.session() as own:
        for message in (b"1", hms.Message.file(tmp_path / "f.bin"), b"2"):
            own.producer(hms.Queue("files")).send(message)
    given = {"destination": "queue:files", "into": "re.{destination}"}
    (row,) = preview(spark, rig.node.store, **given)
    report = again(spark, rig, **given)
    (entry,) = [one for one in known_runs(rig.node.address) if one.run == report.run]

    assert (row.messages, row.files) == (2, 1)
    assert (report.sent, report.files) == (2, 1)
    assert (entry.sent, entry.files, entry.is_done) == (2, 1, True)
    assert [m.content[1] for m in rig.sent_to("re.files")] == [b"1", b"2"]


def test_a_destination_that_is_not_there_is_told_and_no_run_is_begun(spark, rig):
    """The node refuses, and the error is one that applications catch."""
    with pytest.raises(DestinationNotFound):
        again(spark, rig, "queue:nowhere.here", run_id="nowhere")

    assert "nowhere" not in {entry.run for entry in known_runs(rig.node.address)}


def test_a_target_that_is_full_stops_a_run_which_goes_on_when_there_is_room(spark, rig):
    """What was sent stays, the rest is not lost, and nothing of it is there twice."""
    given = {"rate": 1000, "run_id": "small", "selector": "n < 200"}
    with pytest.raises(QueueFull) as caught:
        again(spark, rig, "small", **given)
    sent = rig.waiting("small")
    taken = rig.drain("small")
    rest = again(spark, rig, "small", **{**given, "rate": None})

    assert f"{sent} messages up to offset" in caught.value.__notes__[0]
    assert 0 < sent <= 120
    assert {m.properties["n"] for m in taken} == set(range(sent))
    assert (rest.before, rest.sent) == (sent, 200 - sent)
    assert {m.properties["n"] for m in rig.drain("small")} == set(range(sent, 200))


def test_a_target_that_holds_less_than_a_part_is_filled_and_the_run_goes_on(spark, rig):
    """No part of 200 would ever fit into a queue of 120, however empty it is."""
    given = {"run_id": "parts", "selector": "n < 200"}
    with pytest.raises(QueueFull):
        again(spark, rig, "small", **given)
    taken = rig.drain("small")
    rest = again(spark, rig, "small", **given)

    assert [m.properties["n"] for m in taken if m.properties["n"] >= 120] == []
    assert (len(taken), rest.before, rest.sent) == (120, 120, 80)
    assert {m.properties["n"] for m in rig.drain("small")} == set(range(120, 200))


def test_a_damaged_segment_stops_a_run_as_our_own_error(spark, rig, tmp_path):
    """Applications catch HmsError and nothing of Spark's; what is damaged is never passed over."""
    store = rig.copy_of_the_store(tmp_path)
    (first, *_) = sorted(store.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[content.index(b"order 150")] ^= 0xFF
    first.write_bytes(content)

    with pytest.raises((HistoryError, StoreCorrupt)):
        replay(spark, store, address=rig.node.address, destination="orders", into="other")


def test_the_whole_life_of_the_orders_is_in_the_history(rig):
    """Every message is sent, delivered and acknowledged once: nothing is lost or doubled."""
    counts = {c.event: c.count for c in count_events(rig.node.store) if c.destination == "orders"}

    assert counts["sent"] == counts["acknowledged"] == COUNT
    assert counts["delivered"] >= COUNT
