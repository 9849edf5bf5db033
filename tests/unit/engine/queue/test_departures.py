"""Consumers that closed while their application still has messages (F-B2)."""

import pytest

from tests.support.engine_rig import EngineRig
from tests.support.order_rig import OrderRig


def _saw(rig, name, *bodies):
    def call(connection, handle, epoch, spans, _now_ms, _fx):
        rig.engine.seen(connection, handle, epoch, spans)

    kept = list(rig.held[rig.consumers[name]])
    rig._settle(name, bodies, call)
    rig.held[rig.consumers[name]] = kept


def _closed_with(bodies, seen, queue="plain", **options):
    """A rig whose consumer "a" has closed; its application has seen that much."""
    rig = OrderRig()
    rig.send_all(bodies, queue, **options)
    rig.consume("a", queue)
    _saw(rig, "a", *seen)
    rig.close("a")
    return rig


def test_what_was_seen_is_acknowledged_after_its_consumer_closed():
    """It was acknowledged in vain, and ran again until it was a dead letter."""
    rig = _closed_with("xyz", "xy")
    assert rig.consume("b", connection=2) == ["z"]

    rig.acknowledge("a", "x", "y")

    assert rig.line().out_count == 1
    assert list(rig.engine.state.connections[1].consumers) == []
    assert rig.engine.state.queues["plain"].left == []


def test_it_comes_again_without_an_attempt_when_the_connection_closes():
    """Until then nobody gets it."""
    rig = _closed_with("x", "x")
    assert rig.consume("b", connection=2) == []

    rig.lose(1)

    assert rig.taken("b") == ["x"]
    assert list(rig.line().history.values()) == [(1, 0)]


def test_recover_gives_it_back():
    """Of a closed consumer as of an open one; nothing is left of it then."""
    rig = _closed_with("x", "x")
    rig.consume("b", connection=2)

    rig.recover()

    assert rig.taken("b") == ["x"]
    assert rig.engine.state.queues["plain"].left == []


def test_of_a_list_all_stays_out():
    """Its first message stands for it."""
    rig = OrderRig()
    for number in (1, 2, 3):
        own = {"GROUP_NAME": "g", "GROUP_NUMBERING": number}
        rig.send(f"l{number}", "lists", **own, **({"GROUP_END": True} if number == 3 else {}))
    rig.consume("a", "lists")
    _saw(rig, "a", "l1")

    rig.close("a")

    assert rig.line("lists").out_count == 3
    rig.acknowledge("a", "l1")
    assert rig.line("lists").out_count == 0


def test_a_crash_finds_it_waiting_and_flagged():
    """It was out, as the log has it."""
    rig = _closed_with("x", "x")

    rig.boot()

    assert rig.consume("b") == ["x"]
    assert list(rig.line().history.values()) == [(1, 0)]


@pytest.mark.parametrize("session", [1, 3])
@pytest.mark.parametrize("ends", ["session", "connection"])
def test_it_goes_with_the_last_consumer_of_a_subscription_that_is_not_durable(session, ends):
    """The node stopped when both were of one session, or of one connection that was lost."""
    rig = EngineRig()
    engine = rig.engine
    engine.open_session(1, 3, 2, "")
    shared = {"is_shared": True, "name": "s"}
    rig.consume(1, "news", credit=0, **shared)
    rig.consume(2, "news", session=session, **shared)
    rig.send(producer=2)
    (id_,) = engine.state.connections[1].consumers[2].out
    engine.seen(1, 2, 0, [(id_, id_)])
    rig.run(lambda fx: engine.close_consumer(1, 2, rig.now_ms, fx))
    (subscription,) = engine.state.space.subscriptions.values()
    assert len(subscription.left) == 1

    if ends == "session":
        rig.run(lambda fx: engine.close_session(1, 1, rig.now_ms, fx))
    rig.run(lambda fx: engine.close_connection(1, rig.now_ms, fx))

    assert not engine.state.space.subscriptions
    assert engine.state.waiting_bytes == 0
