"""Copies of a log lead one after the other, each in an epoch of its own: what a client makes of it
(H10, H19)."""

from types import SimpleNamespace

import pytest
from client_link import LOST, sent, up

import hms
from hms.client.core.connection_options import Options
from hms.client.core.link import Link, State
from hms.client.core.reconnection import Attempts
from hms.client.core.requests import Requests
from hms.client.core.transport_loop import TransportLoop
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.send_buffer import Sender
from hms.wire.frames import Kind
from hms.wire.structures import Hello

LOG = b"L" * 16


@pytest.fixture
def led():
    """A link to the primary of epoch 3."""
    link = Link(Hello(1))
    up(link, log=LOG, epoch=3)
    return link


def send(link, *, is_persistent):
    sender = Sender(link, 9, hms.Queue("q"), lambda: 0.0, is_transacted=False)
    pending = PendingSend(1, [], SendOptions(is_persistent))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=is_persistent)
    sender.push()
    link.lose(LOST, is_final=False)
    return pending


def test_what_is_not_persistent_is_in_doubt_when_a_later_epoch_answers(led):
    """The primary before may have delivered it, and no log says so: at most once (18)."""
    pending = send(led, is_persistent=False)

    up(led, log=LOG, epoch=4)

    assert isinstance(pending.error, hms.SendInDoubt)
    assert "another replica leads" in str(pending.error)
    assert sent(led, Kind.SEND) == []


@pytest.mark.parametrize(("is_persistent", "epoch"), [(False, 3), (True, 3), (True, 4)])
def test_it_is_repeated_in_the_same_epoch_and_what_is_persistent_in_each(led, is_persistent, epoch):
    """The node has not ended (17), or the log knows the numbers of what it has (1, 3)."""
    pending = send(led, is_persistent=is_persistent)

    up(led, log=LOG, epoch=epoch)

    assert not pending.is_done
    assert len(sent(led, Kind.SEND)) == 1


def test_what_was_never_written_is_sent_in_a_later_epoch(led):
    """No node may have it."""
    led.lose(LOST, is_final=False)
    pending = send(led, is_persistent=False)

    up(led, log=LOG, epoch=4)

    assert not pending.is_done
    assert len(sent(led, Kind.SEND)) == 1


def test_a_primary_that_was_replaced_is_turned_away(led):
    """It goes on after a pause and does not know it yet (38, 39)."""
    led.lose(LOST, is_final=False)
    up(led, log=LOG, epoch=5)
    led.lose(LOST, is_final=False)

    with pytest.raises(hms.ConnectionLost, match="epoch 4 of its log, and epoch 5 has begun"):
        up(led, log=LOG, epoch=4)

    assert led.state is State.GREETING
    led.lose(LOST, is_final=False)
    up(led, log=b"M" * 16, epoch=1)
    assert led.state is State.UP


def test_replicas_that_were_told_are_tried_in_turn_and_the_next_address_stays_the_next():
    """One address of a node suffices (15, 16)."""
    attempts = Attempts(["a", "x"], interval_s=1, period_s=0)
    attempts.begin(0.0)
    attempts.failed(0.0)
    assert attempts.address == "x"

    attempts.learn_replicas(["a", "b", "c"])

    tried = [attempts.address]
    for at in range(3):
        attempts.failed(float(at))
        tried.append(attempts.address)
    assert tried == ["x", "b", "c", "a"]


def test_a_replica_that_names_a_dead_primary_keeps_nobody_from_the_third():
    """It is gone there once in a round; a replica that is not known, never."""
    attempts = Attempts(["a", "b", "c"], interval_s=1, period_s=0)
    attempts.begin(0.0)
    tried = [attempts.address]
    for at in range(5):
        attempts.failed(float(at))
        if tried[-1] == "b":
            attempts.go_to(["elsewhere", "a"], float(at))
        tried.append(attempts.address)

    assert tried == ["a", "b", "a", "b", "c", "a"]


def test_a_replica_that_is_to_lead_is_tried_again_before_the_others():
    """With three copies each other attempt went elsewhere; yet it has an end."""
    attempts = Attempts(["a", "b", "c"], interval_s=1, period_s=0)
    attempts.begin(0.0)
    attempts.failed(0.0)
    tried, at = [], 0.0
    while len(set(tried)) < 2:
        tried.append(attempts.address)
        attempts.started()
        attempts.failed(at)
        if attempts.address != tried[-1]:
            attempts.stay(at)
        assert attempts.due_at <= at + 1
        at = attempts.due_at

    assert tried[0] == "b"
    assert 10 < len(tried) < 100


class Shell:
    """Of a loop that nobody drives."""

    is_polled = False

    def __getattr__(self, _name):
        return lambda *_: None


@pytest.mark.parametrize("is_first", [True, False])
def test_who_was_connected_goes_to_replicas_that_the_node_told_only(is_first):
    """A standby that was given at the start is believed; later any address may be anybody's."""
    link = Link(Hello(1))
    if not is_first:
        up(link, log=LOG, epoch=3, replicas=["tcp://b:1"])
        link.lose(LOST, is_final=False)
    loop = TransportLoop(link, ["tcp://a:1"], Options(), Shell())
    loop.attempts.learn_replicas(link.replicas)
    told = {"replica": "a", "node": "N", "primary": "b", "epoch": 3}

    loop.lost(hms.NotPrimary(**told, addresses="tcp://c:1"))

    assert loop.attempts.address == ("tcp://c:1" if is_first else "tcp://b:1")


def test_a_replica_that_waits_for_another_one_is_told_when_no_one_leads():
    """It said "no answer within 10 s. Boot the node" of a machine that runs and had answered."""
    link = Link(Hello(1))
    loop = TransportLoop(link, ["tcp://b:1"], Options(), Shell())
    quiet = SimpleNamespace(begin=lambda: None, stop=lambda *_: None)
    opening = Requests(SimpleNamespace(link=link, loop=loop, **vars(quiet)), Options()).opening()
    next(opening)
    told = {"replica": "b", "node": "N", "primary": "a", "epoch": 3}

    loop.lost(hms.NotPrimary(**told, addresses="tcp://a:1"))
    loop.lost("nothing listens at a")

    with pytest.raises(hms.ConnectionRefused, match="replica b of node N follows: a leads"):
        next(opening)


def test_a_replica_that_is_about_to_lead_is_not_said_to_follow_itself():
    """It had taken over and read its log: "b follows: b leads in epoch 3"."""
    loop = SimpleNamespace(
        followed=hms.NotPrimary(replica="b", node="N", primary="b", epoch=3, addresses=""),
        is_refused=False,
        addresses=["tcp://b:1"],
    )
    requests = Requests(SimpleNamespace(link=Link(Hello(1)), loop=loop), Options())

    assert "replica b of node N is to lead in epoch 3, and does not yet" in str(requests._no_node())


@pytest.mark.parametrize(("epoch", "where"), [(2, "tcp://b:1"), (3, "tcp://c:1")])
def test_who_tells_of_an_epoch_that_is_over_is_not_followed(epoch, where):
    """A replica that was cut off knows a primary that leads no more."""
    link = Link(Hello(1))
    up(link, log=LOG, epoch=3, replicas=["tcp://b:1", "tcp://c:1"])
    link.lose(LOST, is_final=False)
    loop = TransportLoop(link, ["tcp://a:1"], Options(), Shell())
    loop.attempts.learn_replicas(link.replicas)
    told = {"replica": "a", "node": "N", "primary": "c", "epoch": epoch}

    loop.lost(hms.NotPrimary(**told, addresses="tcp://c:1"))

    assert loop.attempts.address == where


def test_an_address_that_says_nothing_is_left_sooner_where_there_are_others():
    """A machine that stands still kept a client for five seconds from the one that leads."""
    attempts, alone = (Attempts(given, 1, 0) for given in (["a", "b"], ["a"]))
    waited = []
    for at in range(6):
        waited.append(attempts.patience_s)
        attempts.failed(float(at))
    assert waited == [1, 1, 2, 2, 5, 5]
    assert alone.patience_s == 5

    attempts.begin(9.0)
    assert attempts.patience_s == 1


def test_who_is_left_is_not_tried_again_and_the_next_one_is_not_passed_over():
    """Whether it was connected, or has not answered HELLO."""
    link = Link(Hello(1))
    loop = TransportLoop(link, ["tcp://a:1", "tcp://b:1", "tcp://c:1"], Options(), Shell())
    up(link, log=LOG, epoch=3)
    loop.leave("it was silent", ())
    assert loop.attempts.address == "tcp://b:1"

    link.greet(100.0)
    loop.leave("it was silent", ())
    assert loop.attempts.address == "tcp://c:1"


def test_who_has_answered_hello_has_its_time_until_welcome(monkeypatch):
    """Passwords are hashed meanwhile: a login takes longer than a look."""
    link = Link(Hello(1))
    loop = TransportLoop(link, ["tcp://a:1", "tcp://b:1"], Options(), Shell())
    said = SimpleNamespace(receive=lambda: ["CHALLENGE"], send=lambda _: None)
    monkeypatch.setattr(loop, "open", lambda _: said)
    monkeypatch.setattr(link, "receive", lambda *_: None)

    loop.dial(100.0)
    assert loop.greeting_until == 101.0

    loop.read(said)
    assert loop.greeting_until == 105.0
