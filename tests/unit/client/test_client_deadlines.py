"""By when a receive or a call ends, with a clock of the test's own: each wait is looked at, and the
clock goes on by exactly what was waited."""

from types import SimpleNamespace

import pytest
from client_link import sent
from client_session import deliver, make_prefetch_buffer, make_state

import hms
from hms.client import consumer_steps
from hms.client.consumer_steps import ConsumerSteps
from hms.client.core import calls
from hms.client.core.calls import Calls
from hms.client.core.pending_requests import Pending
from hms.wire.frames import Kind

BEYOND_S = 0.05
"""What is asked of every time-out."""


class Clock:
    """Seconds that pass only by waiting."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (consumer_steps, calls):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


def drive(steps, clock, happens=lambda: None):
    """Run steps to their end: whatever is waited for does not come, unless it `happens`."""
    answer = None
    try:
        while True:
            wait = steps.send(answer)
            happens()
            answer = bool(wait.is_done())
            if not answer:
                clock.now = max(clock.now, wait.deadline)
    except StopIteration as ended:
        return ended.value


@pytest.fixture
def consumer(link):
    link.limits = hms_limits(link)
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state)
    requests = SimpleNamespace(
        link=link,
        driver=SimpleNamespace(
            me=object, flush=lambda: None, loop=SimpleNamespace(lost_at=float("inf"))
        ),
        request_timeout_s=200,
        is_connected=True,
    )
    session = SimpleNamespace(
        requests=requests,
        state=state,
        is_leaving=lambda _: False,
        check_staying=lambda: None,
        is_asynchronous=False,
    )
    return ConsumerSteps(session, prefetched)


def hms_limits(link):
    """Those of a node that can be asked."""
    return type(link.limits)(1 << 20, 1 << 22, 2, 1000, 30.0, prefetch_bytes_max=1 << 20)


@pytest.mark.parametrize("timeout_s", [0.001, 0.05, 0.5, 1, 30])
def test_a_receive_of_a_silent_node_keeps_its_time(consumer, clock, timeout_s):
    """0.5 s took 1.5 s: the question at its end had a second of its own."""
    begin = clock.now

    assert drive(consumer.receiving(timeout_s), clock) is None

    assert timeout_s <= clock.now - begin <= timeout_s + BEYOND_S


def test_a_receive_asks_before_its_end_and_not_again_without_an_answer(consumer, clock, link):
    """A node that answers slowly has had the time until then."""
    drive(consumer.receiving(0.5), clock)

    assert len(sent(link, Kind.REQUEST)) == 1


def test_a_receive_without_time_is_a_question_to_the_node(consumer, clock):
    """None of receive(0) is the node's word, which may take a second."""
    begin = clock.now

    assert drive(consumer.receiving(0), clock) is None

    assert clock.now - begin == consumer_steps.POLL_S


def test_what_comes_while_the_node_is_asked_is_received(consumer, clock, link):
    """The answer to the question follows what the node had."""

    def happens():
        if clock.now > 100.2 and not consumer._prefetched.buffer:
            deliver(link, 7)

    assert drive(consumer.receiving(0.5), clock, happens) is not None


@pytest.fixture
def caller(link):
    """A connection as far as a call sees it."""
    return Calls(SimpleNamespace(link=link, request_timeout_s=200))


@pytest.mark.parametrize("timeout_s", [0.001, 0.3, 20])
def test_a_call_of_a_silent_node_keeps_its_time_and_names_the_node(caller, clock, timeout_s):
    """A dead node looked like a slow service."""
    begin = clock.now

    with pytest.raises(hms.NodeSilent, match="SLOW"):
        drive(caller.ending_call(Pending("SLOW"), timeout_s), clock)

    assert timeout_s <= clock.now - begin <= timeout_s + BEYOND_S


def test_a_call_of_a_slow_service_names_the_service(caller, link, clock):
    """The node was heard meanwhile, as by its heartbeat."""
    link._heard_at = clock.now + 1

    with pytest.raises(hms.ServiceTimeout):
        drive(caller.ending_call(Pending("SLOW"), 2), clock)

    assert clock.now == 102
