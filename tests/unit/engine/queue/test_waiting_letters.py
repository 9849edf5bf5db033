"""Dead letters that wait until their queue knows the ids of what it has."""

import pytest

from hms.engine.effects import FileDropped
from hms.engine.engine import Return
from hms.engine.queue import pending_list
from hms.engine.settings import DestinationSettings
from hms.wire.packed_messages import KIND_FILE, ROW, Head, encode_head, pack_messages
from tests.support.engine_rig import EngineRig, delivered

DESTINATIONS = (
    DestinationSettings("queue", "orders", redelivery_limit=1, dead_letter="kept"),
    DestinationSettings("queue", "kept"),
    DestinationSettings("queue", "slow"),
    DestinationSettings("topic", "news", redelivery_limit=1, dead_letter="kept"),
)
STANDING = 30
FILE = "0" * 32


@pytest.fixture
def rig(monkeypatch):
    """30 messages wait where dead letters go; ten ids are learned at once."""
    monkeypatch.setattr(pending_list, "INDEXED_AT_ONCE", 10)
    made = EngineRig(destinations=DESTINATIONS)
    made.engine.open_producer(1, 40, 1, "queue", "kept")
    made.send(producer=40, count=STANDING)
    return made


def fail(rig, handle, message, how=Return.FAILED):
    spans = [(message.id, message.id)]
    return rig.run(lambda fx: rig.engine.give_back(1, handle, 0, spans, how, rig.now_ms, fx))


def ticked(rig):
    """What ticks deliver until nothing is left to do."""
    found = []
    while rig.engine.is_behind:
        found += delivered(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx)))
    return found


def ids(rig):
    return [message.id for message in rig.engine.state.queues["kept"].line.in_order()]


def test_a_letter_comes_with_its_id_once_all_ids_are_known(rig):
    """It keeps its id (decision 0007), and somebody may wait for it."""
    rig.send()
    (message,) = rig.consume(1)
    got = rig.consume(2, "kept", credit=STANDING + 1)
    assert len(got) == STANDING
    rig.send(producer=40, count=STANDING)
    rig.run(lambda fx: rig.engine.close_consumer(1, 2, rig.now_ms, fx))

    fail(rig, 1, message)

    assert message.id not in ids(rig)
    ticked(rig)
    assert ids(rig)[-1] == message.id
    assert rig.engine.state.queues["orders"].line.counters.dead_lettered == 1


def test_letters_of_two_subscriptions_have_two_ids(rig):
    """Both waited, and had the same one."""
    for handle in (1, 2):
        rig.consume(handle, "news", durable=f"d{handle}")
    (first, second) = delivered(rig.send(producer=2))
    assert first.id == second.id
    for handle in (1, 2):
        fail(rig, handle, first)

    ticked(rig)

    assert len(set(ids(rig))) == STANDING + 2


@pytest.mark.parametrize("how", [Return.FAILED, Return.REJECTED])
@pytest.mark.parametrize("ticks", range(5))
def test_after_a_crash_the_message_is_in_one_place(rig, how, ticks):
    """Whatever was learned until then."""
    rig.send()
    (message,) = rig.consume(1)
    fail(rig, 1, message, how)
    for _ in range(ticks):
        rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    rig.start()
    ticked(rig)

    waiting = [one.id for one in rig.engine.state.queues["orders"].line.everything()]
    assert [*waiting, *ids(rig)].count(message.id) == 1
    assert len(ids(rig)) + len(waiting) == STANDING + 1
    assert not waiting or how is Return.REJECTED


def test_a_letter_whose_queue_is_deleted_meanwhile_goes_where_others_go(rig):
    """It is lost to nobody."""
    rig.run(lambda fx: rig.engine.administer("queue.create", {"name": "brief"}, rig.now_ms, fx))
    order = {"name": "slow", "dead_letter": "brief", "redelivery_limit": 1}
    rig.run(lambda fx: rig.engine.administer("queue.alter", order, rig.now_ms, fx))
    rig.engine.open_producer(1, 41, 1, "queue", "brief")
    rig.send(producer=41, count=STANDING)
    rig.send(producer=3)
    (message,) = rig.consume(1, "slow")
    fail(rig, 1, message)
    gone = {"name": "brief", "force": True, "discard": True}

    rig.run(lambda fx: rig.engine.administer("queue.delete", gone, rig.now_ms, fx))
    ticked(rig)

    letters = rig.engine.state.queues["HMS.DLQ"].line
    assert [one.id for one in letters.in_order()] == [message.id]
    assert not rig.engine.state.awaiting_ids


def test_what_expired_waits_too(rig):
    """And it is said to be expired, once."""
    order = {"name": "orders", "expired_to": "kept"}
    rig.run(lambda fx: rig.engine.administer("queue.alter", order, rig.now_ms, fx))
    row = ROW.pack(0, 1, 5, 0, 4, 0, 0, 0)
    pack = memoryview(pack_messages([(row, b"", b"x")]))
    given = 1, 5, 1, 1, 1, True
    rig.run(lambda fx: rig.engine.send(*given, pack, rig.now_ms, fx))
    (waiting,) = rig.engine.state.queues["orders"].line.in_order()
    rig.now_ms += 10
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert waiting.id not in ids(rig)

    ticked(rig)

    assert ids(rig)[-1] == waiting.id
    assert rig.engine.state.queues["orders"].line.counters.expired == 1


def test_a_file_stays_while_the_letter_that_names_it_waits(rig):
    """Nothing else names it meanwhile: it was dropped as one whose last message has left."""
    rig.engine.file_stored(FILE, rig.now_ms)
    head = encode_head(Head({}, node={"$File": FILE}))
    row = ROW.pack(len(head), 1, 0, 0, 4, KIND_FILE, 0, 0)
    given = 1, 5, 1, 1, 1, True, memoryview(row + head + b"x")
    rig.run(lambda fx: rig.engine.send(*given, rig.now_ms, fx))
    (message,) = rig.consume(1)

    fail(rig, 1, message)
    dropped = rig.run(rig.engine.count_files).out
    ticked(rig)
    dropped += rig.run(rig.engine.count_files).out

    assert not [effect for effect in dropped if isinstance(effect, FileDropped)]
    assert rig.engine.state.files.since_ms == {FILE: 0}
    assert ids(rig)[-1] == message.id
