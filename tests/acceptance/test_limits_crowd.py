"""Each limit behaviour under twenty producers, on a real node: exactly what is promised (F-C11)."""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import hms
from hms import testing
from hms.history.scan import plan, read_part
from hms.history.scope import Scope

PRODUCERS, EACH, LIMIT = 20, 40, 100
WAIT_S = 60
CROWD_S = 250
"""For all that one producer sends, beside the others."""
BEHAVIORS = ("FLOW_CONTROL", "REMOVE_OLDEST", "REJECT_NEWEST", "REMOVE_LOW_PRIORITY")
CONFIG = {
    "hms": {
        "queue": {name: {"max_messages": LIMIT, "limit_behavior": name} for name in BEHAVIORS},
    }
}
PRIORITIES = (0, 2, 4, 6, 9)


def _produce(address, queue, number):
    """Send one by one; the bodies that were confirmed, with their priorities."""
    taken, patient = [], {"connect_timeout_s": WAIT_S, "request_timeout_s": WAIT_S}
    with hms.connect(address, **patient) as conn, conn.session() as session:
        producer = session.producer(hms.Queue(queue))
        for i in range(EACH):
            body, priority = f"{number}/{i}".encode(), PRIORITIES[(number + i) % len(PRIORITIES)]
            try:
                producer.send(body, priority=priority)
            except hms.QueueFull:
                continue
            taken.append((body, priority))
    return taken


def _crowd(address, queue):
    """What twenty producers at once were told was taken."""
    with ThreadPoolExecutor(PRODUCERS) as pool:
        running = [pool.submit(_produce, address, queue, n) for n in range(PRODUCERS)]
        return [one for each in running for one in each.result(CROWD_S)]


def _waiting(session, queue):
    with session.browser(hms.Queue(queue), oldest_first=True) as browser:
        return [(m.body, m.priority) for m in browser]


def _show(conn, queue):
    return conn.administer("queue.show", {"name": queue})


def _limit_events(node, queue):
    """Bodies are not in the history's discards; their ids are enough to count them."""
    node.stop()
    scope, columns = Scope(), ("event", "destination", "cause")
    parts = [read_part(part, scope, columns) for part in plan(str(node.store), scope)]
    events = [event for part in parts for batch in part for event in batch]
    return [e for e in events if e.event == "discarded" and e.destination == queue]


def _orders_of(bodies):
    numbers = defaultdict(list)
    for body in bodies:
        producer, i = map(int, body.split(b"/"))
        numbers[producer].append(i)
    return numbers


def test_under_flow_control_all_arrive_in_order_and_never_more_than_the_limit_wait(node):
    """Nobody is refused and nothing is lost: producers go at the pace of the consumer."""
    with ThreadPoolExecutor(1) as pool, hms.connect(node.address) as conn:
        sending = pool.submit(_crowd, node.address, "FLOW_CONTROL")
        with conn.session() as session:
            consumer = session.consumer(hms.Queue("FLOW_CONTROL"), prefetch=10)
            got = [consumer.receive(WAIT_S).body for _ in range(PRODUCERS * EACH)]
            assert consumer.receive_nowait() is None
        sent = sending.result(CROWD_S)
        shown = _show(conn, "FLOW_CONTROL")

    assert Counter(got) == Counter(body for body, _ in sent)
    assert len(sent) == PRODUCERS * EACH
    assert shown["remaining_high"] <= LIMIT
    assert (shown["removed"], shown["remaining"]) == (0, 0)


def test_who_is_rejected_is_told_and_what_was_confirmed_is_there(node):
    """Exactly the limit is there, and exactly those that were confirmed."""
    taken = _crowd(node.address, "REJECT_NEWEST")

    with hms.connect(node.address) as conn, conn.session() as session:
        there = _waiting(session, "REJECT_NEWEST")
        assert _show(conn, "REJECT_NEWEST")["removed"] == 0
    assert len(there) == LIMIT
    assert Counter(there) == Counter(taken)


def test_the_oldest_are_removed_counted_and_in_the_history_with_their_cause(node):
    """The newest stay, each producer's last ones in order."""
    taken = _crowd(node.address, "REMOVE_OLDEST")

    with hms.connect(node.address) as conn, conn.session() as session:
        consumer = session.consumer(hms.Queue("REMOVE_OLDEST"), prefetch=1)
        there = [consumer.receive(WAIT_S).body for _ in range(LIMIT)]
        assert consumer.receive_nowait() is None
        shown = _show(conn, "REMOVE_OLDEST")
    assert len(taken) == PRODUCERS * EACH
    assert shown["removed"] == PRODUCERS * EACH - LIMIT
    assert set(there) <= {body for body, _ in taken}
    removed = _limit_events(node, "REMOVE_OLDEST")
    assert len(removed) == PRODUCERS * EACH - LIMIT
    assert {event.cause for event in removed} == {"limit"}


def test_the_least_important_are_removed_first(node):
    """What stays is what has the highest priorities of all that was sent."""
    taken = _crowd(node.address, "REMOVE_LOW_PRIORITY")

    with hms.connect(node.address) as conn, conn.session() as session:
        there = _waiting(session, "REMOVE_LOW_PRIORITY")
        shown = _show(conn, "REMOVE_LOW_PRIORITY")
    highest = sorted((priority for _, priority in taken), reverse=True)[:LIMIT]
    assert sorted((priority for _, priority in there), reverse=True) == highest
    assert shown["removed"] == PRODUCERS * EACH - LIMIT
    assert len(_limit_events(node, "REMOVE_LOW_PRIORITY")) == PRODUCERS * EACH - LIMIT


def test_who_waits_too_long_is_told_why_and_the_others_of_the_connection_go_on():
    """A full queue must not hold up what its senders do elsewhere (P10)."""
    config = CONFIG | {"node": {"n": {"flow_control_s": 4}}}
    with (
        testing.node(config=config) as node,
        hms.connect(node.address) as conn,
        conn.session() as session,
    ):
        full = session.producer(hms.Queue("FLOW_CONTROL"))
        full.send_many([b"x"] * LIMIT)
        blocked = [full.send_async(b"y") for _ in range(500)]

        session.producer(hms.Queue("REMOVE_OLDEST")).send(b"passes")

        with pytest.raises(hms.FlowControlTimeout, match="100 of max_messages 100") as refused:
            blocked[0].result(WAIT_S)
    assert "Add consumers" in str(refused.value)
