"""The window of bytes: empties by receiving alone, and never blocks a willing consumer (F-E8)."""

import random

from client_link import new_link, sent
from client_session import make_prefetch_buffer, make_state

import hms
from hms.client.prefetch_window import Window
from hms.wire import frames
from hms.wire.frames import DELIVER_HEAD, Action, Kind
from hms.wire.packed_messages import DELIVERED_ROW
from tests.support.engine_rig import EngineRig, delivered

WINDOW = 1_000


def consuming(session=1, **options):
    """A consumer of `orders` with a window of WINDOW bytes."""
    rig = EngineRig()
    assert rig.consume(9, session=session, credit_bytes=WINDOW, **options) == []
    return rig, rig.engine.state.connections[1].consumers[9]


def take(rig, messages):
    """The client says that its application took them, and acknowledges none."""
    size_bytes = sum(m.length for m in messages)

    def credit(fx):
        rig.engine.credit(1, 9, 0, 0, rig.now_ms, fx, size_bytes)
        rig.engine.credit(1, 9, 0, len(messages), rig.now_ms, fx)

    return delivered(rig.run(credit))


def test_what_was_taken_makes_room_though_it_is_not_acknowledged():
    """With 64 KiB messages a CLIENT session stopped for ever at 16 MiB."""
    rig, consumer = consuming()
    got = delivered(rig.send(count=20, body=bytes(300)))
    assert 0 < len(got) < 20

    while more := take(rig, got[-1:]):
        got += more

    assert len(got) == 20
    assert len(consumer.out) == 20


def test_one_message_is_always_sent_whatever_its_size():
    """Else a message above the window would never be received."""
    rig, _ = consuming()
    got = delivered(rig.send(count=3, body=bytes(5 * WINDOW)))
    assert len(got) == 1

    assert len(take(rig, got)) == 1


def test_a_window_is_no_larger_than_the_node_allows():
    """A client does not decide what a node sends ahead."""
    rig = EngineRig(prefetch_bytes_max=500)
    rig.consume(9, credit_bytes=1 << 30)

    assert len(delivered(rig.send(count=20, body=bytes(240)))) == 3


def test_rollback_gives_the_whole_window_back():
    """The client forgets what it had; so must the node's count."""
    rig, consumer = consuming(session=2)
    got = delivered(rig.send(count=20, body=bytes(300)))

    again = delivered(rig.run(lambda fx: rig.engine.rollback(1, 2, 1, rig.now_ms, fx)))

    assert [m.id for m in again] == [m.id for m in got]
    assert consumer.room_bytes == WINDOW - sum(m.length for m in again)


def test_every_message_is_counted_once_however_frames_and_takes_fall():
    """What the client gives back must be what the node counted, or the window shrinks for ever."""
    choose = random.Random(7)
    for _ in range(50):
        window, waiting, sizes, given = Window(WINDOW), 0, 0, 0
        for _ in range(200):
            if choose.random() < 0.5:
                count, size_bytes = choose.choice((0, 1, 3, 40)), choose.choice((0, 10, 900, 4_000))
                window.arrived(count, size_bytes)
                waiting, sizes = waiting + count, sizes + size_bytes
            else:
                waiting -= choose.randint(0, min(waiting, window.until_due(waiting, waiting) + 1))
                given += window.give_back() if window.taken(waiting) else 0
            assert given + window._size_bytes + window.taken_bytes == sizes
        window.taken(0)
        assert given + window.give_back() == sizes


def test_bytes_are_due_before_the_buffer_is_empty():
    """Else large messages come in fits and starts."""
    link = new_link()
    state = make_state(link, hms.AckMode.CLIENT)
    prefetched = make_prefetch_buffer(link, state, credit=1_000, credit_bytes=WINDOW)
    deliver(link, *([100] * 8))
    taken = 0

    while not prefetched.is_credit_due:
        assert prefetched.take() is not None
        taken += 1
    state.settle(prefetched)

    assert taken == 5
    items = [item for one in sent(link, Kind.SETTLE) for item in frames.decode_settle(one)]
    assert [(i.action, i.credit) for i in items] == [
        (Action.CREDIT_BYTES, 500),
        (Action.CREDIT, 5),
    ]


def deliver(link, *sizes):
    """A frame for each message."""
    for number, size in enumerate(sizes, 1):
        row = DELIVERED_ROW.pack(number, 1, 0, 1, 0, size, 4, 0, 1, 0)
        link.receive(
            frames.frame(Kind.DELIVER, DELIVER_HEAD.pack(5, 0, 1, 0) + row + bytes(size)), 1.0
        )
