"""Figures of destinations: sums that never fall, rows for the names that are asked for."""

import time

import pytest

from hms.engine.admin.destination_figures import COLUMNS, FIGURED_AT_ONCE, FiguresPass, matches
from hms.engine.effects import Effects
from hms.engine.session.temporary_destinations import OWNER_GRACE_MS
from hms.engine.settings import DestinationSettings
from hms.wire.commands import order
from tests.support.engine_rig import DESTINATIONS, EngineRig


@pytest.mark.parametrize(
    ("pattern", "name", "is_so"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders2", True),
        ("*ers*", "orders", True),
        ("o*s", "os", True),
        ("os*s", "os", False),
        ("*", "", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "acb", False),
        ("*a" * 3 + "*", "aa", False),
    ],
)
def test_a_star_stands_for_anything(pattern, name, is_so):
    """A pattern of an operator, not an expression."""
    assert matches(pattern.split("*"), name) is is_so


def test_no_pattern_takes_long():
    """It is looked at under the engine's lock: an expression would take hours for this one."""
    begun = time.thread_time()
    assert not matches(("*a" * 5000).split("*"), "a" * 250 + "b")
    assert time.thread_time() - begun < 60


def _sent(rig, names=""):
    figures = FiguresPass(rig.engine.state, names, 1000)
    while figures.go_on():
        pass
    return figures.answer()


def test_sums_do_not_fall_when_a_queue_goes():
    """Who draws the rate of a counter that fell draws a spike."""
    rig = EngineRig()
    rig.run(lambda fx: rig.engine.operate(order("queue.create", {"name": "gone"}), 1, fx))
    rig.engine.open_producer(1, 9, 1, "queue", "gone")
    rig.send(9, count=2)
    rig.engine.close_producer(1, 9, Effects())
    before = _sent(rig)
    assert before["durable"]["counters"]["sent"] == 2
    delete = order("queue.delete", {"name": "gone", "force": True, "discard": True})
    rig.run(lambda fx: rig.engine.operate(delete, 1, fx))
    after = _sent(rig, "*")
    assert after["durable"]["counters"]["sent"] == 2
    assert after["durable"]["messages"] == 0
    assert "gone" not in [row[0] for row in after["rows"]]


def test_temporary_destinations_are_one_series_of_their_kind():
    """A client may create a thousand a minute, each with a name that nobody saw before."""
    rig = EngineRig()
    names = []
    for kind in ("queue", "queue", "topic"):
        rig.run(lambda fx, kind=kind: names.append(rig.engine.create_temporary(1, kind, fx)))
    for handle, name in enumerate(names[:2], 30):
        rig.engine.open_producer(1, handle, 1, "queue", name)
        rig.send(handle, count=handle)
    rig.now_ms += 5000
    rig.consume(50, names[0], credit=2)
    found = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in _sent(rig, "*")["rows"]}
    assert not set(names) & set(found)
    told = found["HMS.TEMP.*"]
    assert told["kind"] == "queue"
    assert (told["messages"], told["in_flight"], told["consumers"]) == (59, 2, 1)
    assert (told["sent"], told["delivered"], told["producers"]) == (61, 2, 2)
    assert (told["oldest_ms"], told["delivered_ms"]) == (1000, rig.now_ms)
    assert "HMS.TEMP.*" not in [row[0] for row in _sent(rig, "orders*")["rows"]]

    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    for _ in range(3):
        rig.now_ms += OWNER_GRACE_MS
        rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert not rig.engine.state.temporaries
    found = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in _sent(rig, "*")["rows"]}
    told = found["HMS.TEMP.*"]
    assert (told["messages"], told["sent"], told["delivered"]) == (0, 61, 2)


class _Unwalked(dict):
    """Places that nobody may go through."""

    def _refused(self, *_):
        raise AssertionError("a place was looked at")

    __iter__ = __getitem__ = get = keys = values = items = _refused


def test_totals_are_there_without_a_look_at_any_place():
    """A scrape of a hundred thousand queues costs what one of ten does."""
    many = tuple(DestinationSettings("queue", f"q{n:04}") for n in range(FIGURED_AT_ONCE + 10))
    rig = EngineRig(destinations=(*DESTINATIONS, *many))
    rig.engine.open_producer(1, 9, 1, "queue", "q0007")
    rig.send(9, count=3)
    rig.engine.state.places = _Unwalked(rig.engine.state.places)
    figures = FiguresPass(rig.engine.state)
    assert not figures.go_on()  # the first slice is the last one
    durable = figures.answer()["durable"]
    assert (durable["messages"], durable["counters"]["sent"]) == (3, 3)
    assert durable["places"] == len(rig.engine.state.places)
    with pytest.raises(AssertionError, match="a place was looked at"):
        FiguresPass(rig.engine.state, "*")


def test_a_pass_goes_on_slice_after_slice_and_leaves_out_what_is_too_much():
    """Ten thousand queues under one hold of the lock would stop everybody for 20 ms."""
    many = tuple(DestinationSettings("queue", f"q{n:04}") for n in range(FIGURED_AT_ONCE + 10))
    rig = EngineRig(destinations=(*DESTINATIONS, *many))
    figures = FiguresPass(rig.engine.state, "q*", 20)
    turns = 0
    while figures.go_on():
        turns += 1
    answer = figures.answer()
    assert turns == 1
    assert len(answer["rows"]) == 20
    assert answer["left_out"] == FIGURED_AT_ONCE + 10 - 20
    assert {len(row) for row in answer["rows"]} == {len(COLUMNS)}
