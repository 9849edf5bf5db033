"""What a node remembers of clients: exact for who is connected, exact or unknown for the others."""

import tracemalloc

import pytest

import hms
from hms.engine.effects import Effects
from hms.engine.session import deduplication
from hms.engine.session.deduplication import DeduplicationState, ProducerMemory, Taken
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.engine_rig import EngineRig

OTHERS = 100_000
KEPT = 1000


def _remember(memories, uid, handle, sequence):
    memories.remember(uid, handle, sequence, Taken(sequence, 0, 1), 4)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_producer_is_known_exactly_or_its_past_is_in_doubt(is_connected):
    """After 10,000 others were opened, an active producer's send was stored twice silently."""
    memories = DeduplicationState(KEPT)
    mine = memories.open_producer(7, 1, 0)
    mine.remember(1, Taken(1, 0, 1), 4)
    if not is_connected:
        memories.close_producer(7, 1)

    for uid in range(100, 100 + OTHERS):
        _remember(memories, uid, 1, 1)

    memories.close_producer(7, 1)
    again = memories.open_producer(7, 1, 1)
    is_known = again.recent.get(1) is not None
    assert is_known is is_connected
    assert is_known or again.forgotten == 1
    assert len(memories.keys()) <= KEPT + 1


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_commit_is_known_exactly_or_said_to_be_forgotten(is_connected):
    """After 10,000 other sessions committed, a true commit was reported as rolled back."""
    memories = DeduplicationState(KEPT)
    assert memories.open_session(7, 1)
    memories.committed(7, 1, 3)
    if not is_connected:
        memories.close_session(7, 1)

    for uid in range(100, 100 + OTHERS):
        memories.open_session(uid, 1)
        memories.committed(uid, 1, 1)
        memories.close_session(uid, 1)

    memories.close_session(7, 1)
    is_certain = memories.open_session(7, 1)
    assert (is_certain, memories.last_commit(7, 1)) == ((True, 3) if is_connected else (False, 0))


def test_who_is_used_is_kept_and_producers_that_send_nothing_cost_no_place():
    """Order by use, not by opening."""
    memories = DeduplicationState(2)
    _remember(memories, 1, 1, 1)
    _remember(memories, 2, 1, 1)
    for uid in range(10, 20):
        memories.open_producer(uid, 1, 0)
        memories.close_producer(uid, 1)
    assert not memories.has_forgotten
    _remember(memories, 1, 1, 2)
    _remember(memories, 3, 1, 1)

    assert memories.producer(1, 1).recent.get(1) is not None
    assert memories.has_forgotten
    assert (2, 1) not in memories.keys()  # noqa: SIM118 - no dict


def test_recent_batches_are_those_with_the_highest_numbers_in_their_order():
    """A late one stands before later ones, is found, and is the first to be forgotten."""
    memory = ProducerMemory()
    for first in (1, 5, 9, 3, 5):
        memory.remember(first, Taken(first + 1000, first, 2), 3)

    assert memory.recent.rows() == [(3, 1003, 3, 2), (5, 1005, 5, 2), (9, 1009, 9, 2)]
    assert memory.recent.get(5) == Taken(1005, 5, 2)
    assert [memory.recent.get(one) for one in (0, 1, 4, 10)] == [None] * 4
    assert (memory.forgotten, memory.last_sequence) == (1, 10)


def _held(count):
    """Bytes of so many producers that may come back, with 64 batches each; what is remembered."""
    tracemalloc.start()
    try:
        memories = DeduplicationState(10_000)
        before = tracemalloc.get_traced_memory()[0]
        for uid in range(count):
            for n in range(64):
                taken = Taken((1 << 40) + uid * 64 + n, (1 << 40) + n, 1)
                memories.remember((1 << 62) + uid, 1, n + 1, taken, 64)
        return tracemalloc.get_traced_memory()[0] - before, memories
    finally:
        tracemalloc.stop()


def test_what_is_counted_for_producers_is_what_they_take():
    """64 batches of one took 12.8 KB, and 10,000 producers, as many as are remembered, 128 MB."""
    size, memories = _held(200)

    counted = 200 * (deduplication.IDLE_BYTES + 64 * deduplication.TAKEN_BYTES)
    assert memories._idle_bytes == counted
    assert 0.5 * counted <= size <= counted


def test_producers_that_may_come_back_have_a_limit_of_bytes_too(monkeypatch):
    """max_requests may be 4,096: then 10,000 of them would take 1.6 GB."""
    each = deduplication.IDLE_BYTES + 64 * deduplication.TAKEN_BYTES
    monkeypatch.setattr(deduplication, "IDLE_BYTES_MAX", 50 * each)
    _, memories = _held(200)

    assert len(memories.keys()) == 50
    assert memories._idle_bytes == 50 * each
    assert memories.has_forgotten
    for uid, handle in memories.keys():  # noqa: SIM118 - no dict
        memories.open_producer(uid, handle, 64)
    assert memories._idle_bytes == 0


def _send(rig, handle, first_sequence, connection=1):
    pack = memoryview(pack_messages([(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0), b"", b"x")]))
    what = (handle, first_sequence, 1, True, pack, 1000)
    rig.run(lambda fx: rig.engine.send(connection, 5, *what, fx))


def _crowd(rig, count):
    """Clients that come, send, commit and go."""
    for number in range(count):
        rig.engine.open_connection(9, 1000 + number, "", "")
        rig.engine.open_session(9, 1, 0, "transacted")
        rig.engine.open_session(9, 2, 0, "")
        rig.engine.open_producer(9, 3, 2, "queue", "orders")
        rig.engine.open_producer(9, 4, 1, "queue", "orders")
        _send(rig, 3, 1, connection=9)
        _send(rig, 4, 1, connection=9)
        rig.run(lambda fx: rig.engine.commit(9, 1, 6, 1, 1000, fx))
        rig.run(lambda fx: rig.engine.close_connection(9, 1000, fx))


def _lose(rig):
    rig.run(lambda fx: rig.engine.close_connection(1, 1000, fx))


def _come_back(rig, sent_before):
    rig.engine.open_connection(1, 77, "", "")
    rig.engine.open_session(1, 1, 2, "")
    rig.engine.open_session(1, 2, 0, "transacted")
    rig.engine.open_producer(1, 1, 1, "queue", "orders", sent_before=sent_before)


@pytest.mark.parametrize("boots", [False, True])
def test_what_a_lost_client_repeats_is_in_doubt_when_it_was_forgotten(boots):
    """Stored twice, or reported as rolled back, would both be lies."""
    rig = EngineRig(producers_remembered=5)
    _send(rig, 1, 1)
    _lose(rig)
    _crowd(rig, 8)
    if boots:
        rig.start()
        _lose(rig)

    _come_back(rig, sent_before=1)

    with pytest.raises(hms.SendInDoubt):
        _send(rig, 1, 1)
    _send(rig, 1, 2)
    assert not rig.engine.is_remembered(1, 2)


@pytest.mark.parametrize("boots", [False, True])
def test_what_a_lost_client_repeats_is_recognised_while_it_is_remembered(boots):
    """The usual case: exactly once."""
    rig = EngineRig(producers_remembered=50)
    _send(rig, 1, 1)
    _lose(rig)
    _crowd(rig, 8)
    if boots:
        rig.start()
        _lose(rig)
    waiting = rig.engine.administer("queue.show", {"name": "orders"}, 1000, Effects())["waiting"]

    _come_back(rig, sent_before=1)
    _send(rig, 1, 1)

    shown = rig.engine.administer("queue.show", {"name": "orders"}, 1000, Effects())
    assert shown["waiting"] == waiting
    assert rig.engine.is_remembered(1, 2)


def _waiting(rig):
    return rig.engine.administer("queue.show", {"name": "orders"}, 1000, Effects())["waiting"]


def test_what_a_boot_pushed_out_between_two_sends_of_one_producer_is_in_doubt():
    """All count as away while a log is read, also those that were connected: the second send made
    a producer known again that was new to all appearance, and the first one was stored twice."""
    rig = EngineRig(producers_remembered=5)
    _send(rig, 1, 1)
    _crowd(rig, 8)
    _send(rig, 1, 2)
    rig.start()
    _lose(rig)
    waiting = _waiting(rig)

    _come_back(rig, sent_before=2)

    with pytest.raises(hms.SendInDoubt):
        _send(rig, 1, 1)
    _send(rig, 1, 2)
    _send(rig, 1, 3)
    assert _waiting(rig) == waiting + 1


def test_that_some_were_forgotten_is_known_after_a_boot_too():
    """Those that had pushed it out came back and closed; the log that told of it was cleaned. After
    a boot nothing told that somebody is missing, and what it repeated was stored twice."""
    rig = EngineRig(producers_remembered=5)
    _send(rig, 1, 1)
    _lose(rig)
    _crowd(rig, 8)
    rig.log.clear()
    rig.run(lambda fx: rig.engine.restate(rig.engine.remembered()[-2:], fx))
    rig.start()
    _lose(rig)
    assert len(rig.engine.remembered()) < 5

    _come_back(rig, sent_before=1)

    with pytest.raises(hms.SendInDoubt):
        _send(rig, 1, 1)
    assert _waiting(rig) == 0
