"""Feeding: messages are taken out of their queue only for servers that are free."""

import pytest
from monitor_rig import CLIENT, S1, S2, Rig, invoke_of

from hms.server.service_monitor import Listener, Verdict
from tpmon.scheduling.monitor import Answer, Invoke


class Queues:
    """Plays the engine: how many messages wait for each consumer, and its credit."""

    def __init__(self, **waiting):
        self.waiting = {int(name[1:]): count for name, count in waiting.items()}
        self.credit, self.given = {}, []

    def grant(self, _, consumer, credit):
        if consumer not in self.waiting:
            return None
        self.credit[consumer] = credit
        if not credit or not self.waiting[consumer]:
            return 0
        self.waiting[consumer] -= 1
        self.credit[consumer] = 0
        self.given.append(consumer)
        return 1


@pytest.fixture
def rig():
    rig = Rig()
    for consumer in (1, 2, 3):
        rig.monitor.listen_at(Listener(CLIENT, consumer, consumer, "L", f"queue:q{consumer}"))
    return rig


def test_there_are_no_messages_for_a_service_that_nobody_offers(rig):
    """They stay where they can be seen; the operator is told which service is missing."""
    queues = Queues(c1=5, c2=5, c3=5)

    rig.monitor.feed(queues.grant)

    assert queues.given == []
    missing = rig.monitor.listeners_missing()
    assert [one["destination"] for one in missing] == ["queue:q1", "queue:q2", "queue:q3"]


def test_as_many_messages_come_as_there_are_free_servers_and_listeners_take_turns(rig):
    """Never hoarding, and nobody starves."""
    queues = Queues(c1=5, c2=5, c3=5)
    rig.serve(S1, "L")
    rig.serve(S2, "L")
    rig.monitor.feed(queues.grant)
    assert queues.given == [1, 2]

    rig.listen("L", b"m1", session=1, consumer=1)
    rig.finish(invoke_of(rig.effects()))
    rig.monitor.settled(CLIENT, 1)
    rig.monitor.feed(queues.grant)

    assert queues.given == [1, 2, 3]


def test_a_listener_with_an_empty_queue_keeps_its_credit_until_the_service_leaves(rig):
    """What arrives goes to it at once; when nobody offers the service, it stays in the queue."""
    queues = Queues(c1=0, c2=0, c3=0)
    rig.serve(S1, "L")
    rig.monitor.feed(queues.grant)
    assert queues.credit == {1: 1, 2: 1, 3: 1}

    rig.monitor.unadvertise(S1, "L")
    rig.monitor.feed(queues.grant)

    assert queues.credit == {1: 0, 2: 0, 3: 0}


def test_a_consumer_that_the_engine_closed_is_forgotten(rig):
    """A promise to it would keep a server idle for ever."""
    queues = Queues(c3=1)
    rig.serve(S1, "L")

    rig.monitor.feed(queues.grant)

    assert queues.given == [3]
    assert [one.consumer for one in rig.monitor._listeners._demand.listeners.values()] == [3]


def test_a_message_that_was_promised_to_who_has_left_frees_its_place(rig):
    """It was on its way when its client was lost."""
    queues = Queues(c1=1, c2=1, c3=1)
    rig.serve(S1, "L")
    rig.monitor.feed(queues.grant)

    rig.monitor.closed(CLIENT, 1, 1)
    rig.monitor.changed.add("L")
    rig.monitor.feed(queues.grant)

    assert queues.given == [1, 2]


def test_a_message_that_expires_while_it_waits_for_its_turn_is_given_back_unseen(rig):
    """F-D2: its session's other message may take long, and a long line of them no recursion."""
    rig.serve(S1, "L")
    rig.serve(S2, "L")
    rig.listen("L", b"long")
    (running,) = rig.effects()
    late = [b"%d" % number for number in range(2_000)]
    for data in late:
        rig.listen("L", data, expires_at_ms=500)
    rig.listen("L", b"last", expires_at_ms=5_000)
    rig.monitor.tick(1_000)

    rig.finish(running)

    answers = [e for e in rig.monitor.effects if isinstance(e, Answer)]
    unseen = [a.origin.token for a in answers if a.head.verdict == Verdict.RELEASED]
    assert unseen == late
    assert [e.data for e in rig.effects() if isinstance(e, Invoke)] == [b"last"]
