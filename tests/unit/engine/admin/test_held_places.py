"""Places that an operator's command keeps from consumers while it works."""

import pytest

from hms.engine.engine import ConsumerRequest
from hms.errors.catalogue import InvalidArgument
from hms.wire.commands import order
from tests.support.engine_rig import EngineRig


@pytest.fixture
def rig():
    """A consumer of orders with room for more; connection 2 is an operator's."""
    made = EngineRig()
    made.engine.open_connection(2, 88, "", "")
    request = ConsumerRequest(5, 1, "queue", "orders", 10)
    made.run(lambda fx: made.engine.open_consumer(1, request, 1, 1, fx))
    return made


def ask(rig, verb, place="queue:orders", connection=2):
    asked = order(verb, {"place": place})
    return rig.run(lambda fx: rig.engine.operate(asked, 1, fx, connection))


def delivered(fx):
    return sum(len(one.messages) for one in fx.out if hasattr(one, "messages"))


def test_what_is_held_is_delivered_when_it_is_let_go(rig):
    """And not before, whoever sends."""
    ask(rig, "message.hold")
    ask(rig, "message.hold")
    assert delivered(rig.send(1, count=3)) == 0
    assert delivered(ask(rig, "message.release")) == 3
    assert delivered(rig.send(1, count=1)) == 1


def test_a_hold_ends_with_its_connection(rig):
    """An operator's command that is killed leaves nothing paused."""
    ask(rig, "message.hold")
    rig.send(1, count=2)
    fx = rig.run(lambda fx: rig.engine.close_connection(2, 2, fx))
    assert delivered(fx) == 2


def test_two_commands_hold_until_both_are_done(rig):
    """The first to end does not wake the consumers of the other."""
    rig.engine.open_connection(3, 99, "", "")
    ask(rig, "message.hold")
    ask(rig, "message.hold", connection=3)
    rig.send(1, count=2)
    assert delivered(ask(rig, "message.release")) == 0
    assert delivered(ask(rig, "message.release", connection=3)) == 2


def test_a_hold_is_not_in_the_log(rig):
    """A boot finds nothing paused, and no pause of an operator is touched."""
    before = len(rig.log)
    ask(rig, "message.hold")
    assert len(rig.log) == before
    assert not rig.engine.state.queue("orders").control.paused


def test_what_is_retained_is_not_held(rig):
    """Nobody consumes it."""
    with pytest.raises(InvalidArgument):
        ask(rig, "message.hold", "retained:#")
