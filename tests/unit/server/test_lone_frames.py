"""A frame that comes alone is applied by the thread that read it, if that waits for nobody."""

from types import SimpleNamespace

import pytest

from hms.server.lone_frames import BYTES_MAX, SYNC_S_MAX, LoneFrames
from hms.wire.frames import Action, Envelope, Kind, Settlement, encode_settle
from hms.workers.lanes import LanePool

PEER = 7


def _frame(kind, payload=b"x", count=1):
    return Envelope(kind, 1, count, len(payload)), payload


def _settle(action):
    return encode_settle([Settlement(action, 1, 0, 5, [(1, 1)])])


class _Broker(SimpleNamespace):
    """What a lone frame asks of the broker."""

    def __init__(self, **state):
        quiet = {"is_held": False, "is_led": False, "commit_s": 0.0, "must_wait": False}
        state = {**quiet, "is_draining": False, **state}
        self.draining = SimpleNamespace(is_on=state["is_draining"])
        self.is_held, self.commit_s = lambda: state["is_held"], state["commit_s"]
        self.must_wait = lambda _peer, _items: state["must_wait"]
        self.around = SimpleNamespace(storage=SimpleNamespace(is_led=state["is_led"]))
        self.slowed = {PEER: 1.0} if state.get("is_slowed") else {}


@pytest.fixture
def lanes():
    pool = LanePool(1, pytest.fail, on_fault=pytest.fail)
    yield pool
    assert pool.close(drain=False, timeout_s=60)


def _applied(lanes, frame, *, may_sync=True, **state):
    """Whether it is, and what came to be applied."""
    seen = []

    def turn(peer, items):
        seen.extend((peer, item) for item in items)
        items.clear()

    is_applied = LoneFrames(_Broker(**state), lanes, turn, may_sync=may_sync).apply(PEER, frame)
    assert seen == ([(PEER, frame)] if is_applied else [])
    return is_applied


@pytest.mark.parametrize(
    "frame",
    [
        _frame(Kind.SEND),
        _frame(Kind.SETTLE, _settle(Action.ACKNOWLEDGE)),
        _frame(Kind.CALL),
        _frame(Kind.RESULT),
    ],
)
def test_one_message_acknowledgement_or_call_is_applied_here(lanes, frame):
    """A hand-over to a worker and back takes as long as all that is done for it."""
    assert _applied(lanes, frame)
    assert not _applied(lanes, frame, is_held=True)
    assert not _applied(lanes, frame, is_led=True)
    assert not _applied(lanes, frame, is_draining=True)
    assert not _applied(lanes, frame, is_slowed=True)
    assert not _applied(lanes, (frame[0], bytes(BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "frame",
    [
        _frame(Kind.SEND, count=2),
        _frame(Kind.SETTLE, _settle(Action.CREDIT)),
        _frame(Kind.SETTLE, _settle(Action.FAIL)),
        _frame(Kind.SETTLE, b""),
        _frame(Kind.REQUEST),
        _frame(Kind.HELLO),
        _frame(Kind.GOODBYE),
        _frame(Kind.FILE),
    ],
)
def test_what_may_take_long_is_a_workers(lanes, frame):
    """Nobody else is heard while the main thread is at it: credit may ask for megabytes."""
    assert not _applied(lanes, frame)


@pytest.mark.parametrize(
    "state", [{"commit_s": SYNC_S_MAX}, {"may_sync": False}], ids=["slow disk", "elsewhere"]
)
def test_no_peer_waits_for_the_sync_of_another_that_takes_long(lanes, state):
    """A call needs no sync, so it is applied here on any disk."""
    assert not _applied(lanes, _frame(Kind.SEND), **state)
    assert not _applied(lanes, _frame(Kind.SETTLE, _settle(Action.ACKNOWLEDGE)), **state)
    assert _applied(lanes, _frame(Kind.CALL), **state)


def test_a_message_for_which_the_log_has_no_room_waits_on_its_lane(lanes):
    """Only there it is parked, and what comes behind it too."""
    assert not _applied(lanes, _frame(Kind.SEND), must_wait=True)
    assert _applied(lanes, _frame(Kind.SETTLE, _settle(Action.ACKNOWLEDGE)), must_wait=True)


def test_nothing_is_asked_about_a_peer_whose_lane_has_something():
    """What waits for room on its lane would not be known to wait any more."""
    lanes = SimpleNamespace(busy={PEER: object()}, run_here=pytest.fail)
    broker = _Broker()
    broker.must_wait = pytest.fail

    assert not LoneFrames(broker, lanes, pytest.fail, may_sync=True).apply(PEER, _frame(Kind.SEND))
