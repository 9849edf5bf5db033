"""Cleaning: the log's oldest segments go, what is live in them stays."""

from dataclasses import replace

import pytest

from hms.engine.queue.settlement import Return
from hms.engine.session import transactions
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.history.events import EventDecoder
from hms.store.journal.reader import list_segments, read_store
from hms.store.journal.segment_manager import LogLimits
from tests.support.journal_node import JournalNode

SEGMENT = 1 << 16
BODY = bytes(500)
SETTINGS = EngineSettings(
    message_bytes_max=10_000,
    transaction_bytes_max=16_000,
    frames_in_flight_max=4,
    destinations=(
        DestinationSettings("queue", "orders"),
        DestinationSettings("queue", "busy"),
        DestinationSettings("topic", "news"),
    ),
)


BUSY = 90


def life(path, **options):
    node = JournalNode(path, SETTINGS, SEGMENT, **options)
    node.open_client()
    node.engine.open_producer(1, BUSY, 1, "queue", "busy")
    node.consume(BUSY, 8, name="busy")
    return node


def churn(node, count, first=1000):
    """Batches of eight messages that come and go."""
    for i in range(count):
        node.publish(first + i * 8, [BODY] * 8, producer=BUSY)
        while out := node.credit(0, BUSY):
            node.acknowledge(out, BUSY)
            node.credit(len(out), BUSY)


def live_numbers(path):
    return [info.number for info in list_segments(path) if info.file.suffix == ".log"]


def test_the_log_of_a_busy_queue_does_not_grow_and_what_waits_elsewhere_stays(tmp_path):
    """Recovery must cost what is live, not what ever was (P9: and lose none of it)."""
    node = life(tmp_path)
    node.publish(1, [b"first %d" % i for i in range(20)])
    churn(node, 160)
    before = node.waiting()
    segments = live_numbers(tmp_path)
    node.close()

    assert len(segments) <= 7
    assert segments[0] > 3
    again = life(tmp_path)
    assert again.waiting() == before
    assert [body for _, body, _, _ in before] == [b"first %d" % i for i in range(20)]
    assert again.records_read < 500
    again.close()


def test_a_message_keeps_its_counts_and_its_turn_when_it_is_moved(tmp_path):
    """A redelivered message that lost its count would never reach the dead letters."""
    node = life(tmp_path)
    node.publish(1, [b"a", b"b", b"c", b"d"])
    node.consume(1, 3)
    spans = [(m.id, m.id) for m in node.engine.state.connections[1].consumers[1].out.values()]
    node.run(lambda fx, now: node.engine.give_back(1, 1, 0, spans[:1], Return.FAILED, now, fx))
    churn(node, 120)
    expected = node.waiting()
    out = [m.id for m in node.engine.state.connections[1].consumers[1].out.values()]
    node.close()

    again = life(tmp_path)
    found = again.waiting()
    assert [body for _, body, _, _ in found] == [b"a", b"b", b"c", b"d"]
    counts = {id_: (deliveries, attempts) for id_, _, deliveries, attempts in found}
    for id_, _, deliveries, attempts in expected:
        assert counts[id_] == (deliveries, attempts)
    assert all(counts[id_][0] >= 1 for id_ in out)
    again.close()


def test_what_a_transaction_gives_back_in_slices_counts_although_it_is_moved(tmp_path, monkeypatch):
    """Moved between two slices it was told of as waiting: after a boot it was no redelivery."""
    monkeypatch.setattr(transactions, "SLICE", 8)
    node = JournalNode(tmp_path, replace(SETTINGS, transaction_idle_ms=1000), SEGMENT)
    node.open_client()
    node.publish(1, [b"%d" % i for i in range(20)])
    node.acknowledge(node.consume(1, 20, session=2))
    node.now_ms += 2000
    node.run(lambda fx, now: node.engine.tick(now, fx, None))
    assert node.engine.state.unfinished

    node.run(lambda fx, now: node.engine.close_consumer(1, 1, now, fx))
    node.broker._housekeeping._move_all(1)
    while node.engine.state.unfinished:
        node.tick()
    before = node.waiting()
    assert [deliveries for _, _, deliveries, _ in before] == [1] * 20
    node.close()

    again = life(tmp_path)
    assert again.waiting() == before
    again.close()


def test_a_durable_subscribers_messages_are_moved_for_those_that_still_want_them(tmp_path):
    """A message of eight subscribers is in the log once, for whoever has not taken it."""
    node = life(tmp_path)
    for handle, name in ((1, "slow"), (2, "fast")):
        node.consume(handle, 0, "topic", "news", durable=name)
    node.publish(1, [b"n%d" % i for i in range(5)], producer=2)
    node.acknowledge(node.credit(3, 2), 2)
    churn(node, 120)
    node.close()

    again = life(tmp_path)
    lines = {p.name: p.line for p in again.engine.state.places.values()}
    assert [bytes(m.payload) for m in lines["slow"].in_order()] == [b"n%d" % i for i in range(5)]
    assert [bytes(m.payload) for m in lines["fast"].in_order()] == [b"n3", b"n4"]
    again.close()


def test_a_repeated_send_is_recognised_after_its_segment_is_gone(tmp_path):
    """F-D9 must not depend on how busy other queues are."""
    node = life(tmp_path)
    node.publish(1, [b"once"])
    node.run(lambda fx, now: node.engine.commit(1, 2, 9, 5, now, fx))
    churn(node, 120)
    node.close()

    again = life(tmp_path)
    assert live_numbers(tmp_path)[0] > 1
    again.publish(1, [b"once"])
    assert [body for _, body, _, _ in again.waiting()] == [b"once"]
    assert again.engine.state.memories.last_commit(77, 2) == 5
    again.close()


def test_ids_and_definitions_survive_the_segments_that_told_of_them(tmp_path):
    """An id that is given twice names two messages for ever."""
    node = life(tmp_path)
    node.consume(1, 0, "topic", "news", durable="quiet")
    churn(node, 120)
    highest = node.engine.state.ids.next_id
    node.close()

    again = life(tmp_path)
    assert again.engine.state.ids.next_id >= highest
    assert again.engine.state.topics["news"].durable("quiet") is not None
    again.close()


def test_the_history_has_every_event_once_although_messages_were_moved(tmp_path):
    """Spark must count a message once, however often the log told of it."""
    node = life(tmp_path)
    node.publish(1, [b"kept %d" % i for i in range(20)])
    churn(node, 120)
    node.close()

    decoder = EventDecoder()
    records = read_store(tmp_path)
    events = [e for lsn, kind, _, data, _ in records for e in decoder.decode(lsn, kind, data)]
    sent = [e for e in events if e.event == "sent"]
    assert len(sent) == 20 + 120 * 8
    assert len({e.offset for e in events}) == len(events)
    assert sum(e.event == "acknowledged" for e in events) == 120 * 8


@pytest.mark.parametrize("history_bytes", [0, 4 * SEGMENT])
def test_the_disk_is_used_within_its_limits(tmp_path, history_bytes):
    """A node that runs for a year must not fill the disk with what nobody needs."""
    limits = LogLimits(log_bytes_max=10 * SEGMENT, history_bytes_max=history_bytes)
    node = life(tmp_path, limits=limits)
    node.publish(1, [b"stays"])
    most = 0
    for i in range(6):
        churn(node, 50, first=10_000 * (i + 1))
        most = max(most, sum(f.stat().st_size for f in tmp_path.iterdir()))
    assert most <= 10 * SEGMENT + history_bytes + 2 * SEGMENT
    assert [body for _, body, _, _ in node.waiting()] == [b"stays"]
    node.close()


def test_a_log_that_is_full_of_waiting_messages_refuses_sends_and_takes_acknowledgements(tmp_path):
    """P10: what makes room again must always get through."""
    node = life(tmp_path, limits=LogLimits(log_bytes_max=10 * SEGMENT))
    sequence = 1
    while node.store.sends_refused() is None:
        node.publish(sequence, [BODY] * 8)
        sequence += 8
    assert "max_log_bytes" in node.store.sends_refused()

    out = node.consume(1, 8)
    while out:
        node.acknowledge(out)
        out = node.credit(len(out))
    assert node.waiting() == []
    churn(node, 40, first=sequence)
    assert node.store.sends_refused() is None
    node.close()


def test_cleaning_a_log_that_is_mostly_live_ends(tmp_path):
    """It fed on what it had written itself, and filled the history with it for ever."""
    node = life(tmp_path, limits=LogLimits(log_bytes_max=8 * SEGMENT))
    sequence = 1
    while node.engine.live_bytes() < 3.6 * SEGMENT:
        node.publish(sequence, [bytes(9_300)])  # six fit into a segment, and leave a seventh empty
        sequence += 1
    churn(node, 40, first=sequence)
    newest = node.store.newest_segment
    for _ in range(200):
        node.run(lambda fx, _now: node.engine.restate(node.engine.remembered()[:1], fx))
    assert node.store.newest_segment - newest < 20
    node.close()
