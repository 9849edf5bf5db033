"""What a node remembers of clients: exact for who is connected, exact or unknown for the others."""

import pytest

import hms
from hms.engine.effects import Effects
from hms.engine.session.deduplication import DeduplicationState, Taken
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.engine_rig import EngineRig

OTHERS = 100_000
KEPT = 1000


def _remember(memories, uid, handle, sequence):
    memories.producer(uid, handle).remember(sequence, Taken(sequence, 0, 1), 4)


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

    assert 1 in memories.producer(1, 1).recent
    assert memories.has_forgotten
    assert (2, 1) not in memories.keys()  # noqa: SIM118 - no dict


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
