"""The link, sans-IO: what goes out, what stays asked, what a lost connection does to it."""

import pytest

from hms.client.core.link import Link, State
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.reconnection import Attempts
from hms.errors.catalogue import ConnectionLost, ProtocolError, TpSecurity
from hms.wire import frames, structures
from hms.wire.frames import Kind
from hms.wire.structures import Browse, Hello, Limits, OpenSession, Welcome

LIMITS = Limits(1 << 20, 1 << 22, 4, 1000, 30.0)
LOST = ConnectionLost(address="a", reason="cut")


def up(link: Link, now: float = 0.0) -> Link:
    """The link, connected."""
    link.greet(now)
    welcome = structures.encode(Welcome(1, "node", 7, LIMITS))
    link.receive(frames.frame(Kind.WELCOME, welcome, 1), now)
    return link


@pytest.fixture
def link() -> Link:
    link = up(Link(Hello(1)))
    link.outbox.clear()
    return link


def correlation_of(frame) -> int:
    return frames.decode_envelope(frame, 1 << 20).correlation


def test_an_answer_finds_its_question(link):
    """Answers may come in any order."""
    first = link.request(OpenSession(1), Pending("a"))
    second = link.request(OpenSession(2), Pending("b"))

    link.receive(frames.frame(Kind.REPLY, b"\x01", correlation_of(link.outbox[1])), 1.0)

    assert (first.is_done, second.is_done) == (False, True)
    assert second.value() == 1
    assert link.woken[-1] is second


def test_nothing_is_sent_before_welcome(link):
    """A frame before WELCOME would be refused and forgotten."""
    link.lose(LOST, is_final=False)
    pending = link.request(OpenSession(1), Pending("a"))
    link.greet(1.0)
    assert [frames.decode_envelope(frame, 1000).kind for frame in link.outbox] == [Kind.HELLO]

    link.receive(frames.frame(Kind.WELCOME, structures.encode(Welcome(1, "n", 7, LIMITS)), 9), 1.0)

    assert link.outbox[1] is pending.frame


def test_what_may_be_asked_twice_is_asked_again_in_the_old_order(link):
    """F-K6: the caller does not see the outage."""
    repeated = [link.request(Browse(name), Pending("b", OnLoss.REPEAT)) for name in "abc"]
    failed = link.request(OpenSession(1), Pending("a", OnLoss.FAIL))
    done = link.request(OpenSession(1), Pending("a", OnLoss.DONE))

    link.lose(LOST, is_final=False)
    up(link)

    assert link.outbox[-3:] == [pending.frame for pending in repeated]
    assert isinstance(failed.error, ConnectionLost)
    assert done.is_done
    assert done.error is None
    assert repeated[0].is_repeated


def test_a_loss_for_good_ends_all_and_what_comes_later(link):
    """Nobody may wait for what cannot come."""
    pending = link.request(Browse("a"), Pending("b", OnLoss.REPEAT))

    link.lose(LOST, is_final=True)
    later = link.request(Browse("a"), Pending("b", OnLoss.REPEAT))

    for one in (pending, later):
        with pytest.raises(ConnectionLost):
            one.value()


def test_a_heartbeat_is_due_after_a_third_of_the_time(link):
    """The node takes a client for lost that says nothing."""
    link.sent_at = 100.0
    link.beat(109.9)
    assert link.outbox == []

    link.beat(110.0)

    assert frames.decode_envelope(link.outbox[0], 0).kind is Kind.HEARTBEAT


def test_a_node_that_says_nothing_is_lost(link):
    """F-M7."""
    assert not link.beat(14.9)
    assert not link.beat(29.8)
    assert link.beat(30.0)

    link.receive(frames.frame(Kind.HEARTBEAT), 30.0)

    assert not link.beat(44.0)
    assert not link.beat(59.0)


def test_after_a_pause_of_the_program_the_node_has_time_to_be_heard(link):
    """A call that holds the interpreter for long keeps everybody from reading."""
    assert not link.beat(1.0)
    assert not link.beat(100.0)

    assert not link.beat(114.9)
    assert link.beat(115.0)


@pytest.mark.parametrize(
    "parts",
    [
        [b"HM"],
        [b"x" * 16, b""],
        frames.frame(Kind.SEND, b""),
        frames.frame(Kind.DELIVER, b"short"),
        frames.frame(Kind.EVENT, b"\xc1"),
        frames.frame(Kind.WELCOME, b""),
    ],
)
def test_nonsense_raises_and_nothing_else(link, parts):
    """A wrong peer must not crash the background thread."""
    with pytest.raises(ProtocolError):
        link.receive(parts, 1.0)


def test_a_refused_hello_is_raised():
    """The one who drives the link has to know why."""
    link = Link(Hello(1))
    link.greet(0.0)
    refusal = structures.encode_error(TpSecurity(detail="no"))

    with pytest.raises(Exception, match="no"):
        link.receive(frames.frame(Kind.ERROR, refusal, correlation_of(link.outbox[0])), 1.0)


def test_a_socket_that_met_itself_is_only_a_lost_attempt():
    """TCP connects a local port to itself when nobody listens there, once in a while."""
    link = Link(Hello(1))
    link.greet(0.0)

    with pytest.raises(ConnectionLost):
        link.receive(link.outbox[0], 1.0)


def test_an_abandoned_request_is_not_sent_after_the_outage(link):
    """Its caller was told that it failed."""
    link.lose(LOST, is_final=False)
    pending = link.request(Browse("a"), Pending("b", OnLoss.REPEAT))
    link.abandon(pending)
    up(link)

    assert pending.frame not in link.outbox
    assert link.state is State.UP


def test_attempts_go_over_all_addresses_more_and_more_slowly():
    """F-K4: a rebooted node is found soon, a dead one is not hammered."""
    attempts = Attempts(["a", "b"], interval_s=5, period_s=0)
    attempts.begin(100.0)
    assert (attempts.address, attempts.due_at) == ("a", 100.0)

    tried, pauses = [], []
    for _ in range(8):
        tried.append(attempts.address)
        attempts.failed(0.0)
        pauses.append(attempts.due_at)

    assert tried == list("abababab")
    assert pauses == [0.1, 0.1, 0.1, 0.2, 0.1, 0.5, 0.1, 1.0]
    assert not attempts.is_over(1e9)


def test_a_round_over_three_replicas_takes_no_longer_than_one_address():
    """The one that leads now was tried after 15 s: each of the others was waited for in turn."""
    attempts = Attempts(["a", "b", "c"], interval_s=5, period_s=0)
    attempts.begin(0.0)
    now, rounds = 0.0, []
    for _ in range(8):
        begun = now
        for _ in range(3):
            attempts.failed(now)
            now = attempts.due_at
        rounds.append(round(now - begun, 1))
    assert rounds == [0.3, 0.4, 0.7, 1.2, 2.2, 5.2, 5.2, 5.2]

    attempts.go_to(["b"], now)

    assert (attempts.address, attempts.due_at) == ("b", now)
    attempts.failed(now)
    attempts.failed(now)
    attempts.failed(now)
    assert attempts.due_at == now + 5
    attempts.go_to(["b"], now)
    assert attempts.due_at == now + 0.1


def test_attempts_end_with_their_period():
    """F-K4: reconnect_period_s."""
    attempts = Attempts(["a"], interval_s=5, period_s=60)
    attempts.begin(100.0)

    assert not attempts.is_over(159.0)
    assert attempts.is_over(160.0)


def test_expiry_is_judged_by_the_nodes_clock():
    """With clocks an hour apart a client gave every message back, again and again."""
    link = Link(Hello(1))
    link.state = State.GREETING
    assert link.node_ms(7.0) is None
    welcome = structures.encode(Welcome(1, "node", 7, LIMITS, now_ms=3_600_000))
    link.receive(frames.frame(Kind.WELCOME, welcome), 5.0)

    assert link.node_ms(5.0) == 3_600_000
    assert link.node_ms(7.5) == 3_602_500
