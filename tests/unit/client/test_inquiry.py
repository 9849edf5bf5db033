"""Other replicas are asked while a request waits for a node that is silent. The sockets are real,
the times are given."""

from contextlib import ExitStack
from itertools import pairwise

import pytest
import zmq
from client_link import LIMITS, up

import hms
from hms.client.core.connection_options import Options
from hms.client.core.inquiry import AGAIN_S, ROUND_S, SILENT_S, Inquiry
from hms.client.core.link import Link, State
from hms.client.core.operations import FOREVER
from hms.client.core.pending_requests import Pending
from hms.client.core.transport import Transport
from hms.client.core.transport_loop import TransportLoop
from hms.wire import structures
from hms.wire.frames import Kind, decode_envelope, frame
from hms.wire.structures import Challenge, Hello, OpenSession, Welcome
from tests.support.waiting import wait_until

LOG = b"L" * 16
NODE = "node"


class Replica:
    """Counts who asks it, and answers as it is told."""

    def __init__(self, context):
        self.socket = context.socket(zmq.ROUTER)
        self.socket.bind("tcp://127.0.0.1:*")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.hellos = []
        self._routes = []

    def count(self):
        """Connections that have said HELLO so far."""
        while self.socket.poll(100):
            route, *parts = self.socket.recv_multipart()
            if decode_envelope(parts, 1 << 20).kind is Kind.HELLO:
                self.hellos.append(structures.decode(parts[1], Hello))
                self._routes.append(route)
        return len(self.hellos)

    def answers(self, kind, said):
        """To the last one."""
        wait_until(self.count)
        self.socket.send_multipart([self._routes[-1], *frame(kind, said, 1)])

    def refuses(self, epoch, primary, *addresses):
        told = {"replica": "c", "node": NODE, "primary": primary, "addresses": " ".join(addresses)}
        self.answers(Kind.ERROR, structures.encode_error(hms.NotPrimary(epoch=epoch, **told)))


class Loop:
    """What an inquiry needs, with sockets of its own."""

    def __init__(self, context, link, replicas):
        self._context, self.link, self._replicas = context, link, replicas
        self.left, self.is_unread = [], False

    def has_input(self):
        return self.is_unread

    def open(self, address):
        return Transport(self._context, address)

    def others(self):
        return [one.address for one in self._replicas]

    def leave(self, reason, addresses):
        self.left.append((reason, list(addresses)))


@pytest.fixture
def asked():
    """An inquiry, its loop and two other replicas; a request waits since 100.0."""
    link = Link(Hello(1, "me", "user", secret=b"s" * 16, resume=b"proof"))
    up(link, log=LOG, epoch=3)
    link.request(OpenSession(1), Pending("session()"))
    context = zmq.Context()
    with ExitStack() as stack:
        replicas = [Replica(context), Replica(context)]
        loop = Loop(context, link, replicas)
        inquiry = Inquiry(loop)
        inquiry.waits_since = 100.0
        yield inquiry, loop, replicas
        inquiry.end()
        for one in replicas:
            one.socket.close(0)
        stack.callback(context.term)


def turns(inquiry, begin, end):
    """Whenever one is due from then on."""
    at = begin
    while at <= end:
        at = max(inquiry.turn(at), at + 0.001)


def counts(replicas):
    return [one.count() for one in replicas]


def test_all_are_asked_at_once_after_a_second_again_behind_a_short_lease_and_each_five(asked):
    """Not before, and no more often: a thousand clients may wait."""
    inquiry, loop, replicas = asked
    rounds = [SILENT_S, *AGAIN_S, AGAIN_S[-1] + ROUND_S, AGAIN_S[-1] + 2 * ROUND_S]
    turns(inquiry, 100.0, 100.0 + SILENT_S - 0.01)
    assert counts(replicas) == [0, 0]
    for count, (begin_s, end_s) in enumerate(pairwise(rounds), 1):
        inquiry.turn(100.0 + begin_s)
        wait_until(lambda: counts(replicas) == [count, count])  # noqa: B023 - before the sockets end
        turns(inquiry, 100.01 + begin_s, 99.99 + end_s)
        assert counts(replicas) == [count, count]
    assert loop.left == []


def test_a_node_that_is_slow_again_and_again_has_others_asked_once_in_five_seconds(asked):
    """Each answer of it takes a little longer than a second."""
    inquiry, loop, replicas = asked
    for begin in range(100, 105):
        inquiry.waits_since = float(begin)
        turns(inquiry, begin + SILENT_S, begin + SILENT_S + 0.2)
        inquiry.waits_since = FOREVER
        wait_until(lambda: counts(replicas) == [1, 1])  # before the sockets end
    inquiry.waits_since = 105.0
    inquiry.turn(100.0 + SILENT_S + ROUND_S)
    wait_until(lambda: counts(replicas) == [2, 2])
    assert loop.left == []


def test_whoever_does_not_answer_hello_is_left_for_one_that_leads_by_then(asked):
    """A machine that stands still took the connection: the client was there for five seconds while
    another one led. Nobody leads at first: they are asked again after a second."""
    inquiry, loop, replicas = asked
    loop.link.lose(hms.ConnectionLost(address="a", reason="cut"), is_final=False)
    loop.link.greet(100.0)
    inquiry.turn(100.0 + SILENT_S)
    replicas[0].refuses(3, "")
    turns(inquiry, 100.01 + SILENT_S, 99.99 + 2 * SILENT_S)
    assert loop.left == []

    inquiry.turn(100.0 + 2 * SILENT_S)
    replicas[1].answers(*welcome(4))
    wait_until(lambda: inquiry.turn(100.1 + 2 * SILENT_S) and loop.left)
    assert loop.left[0][1] == [replicas[1].address]


@pytest.mark.parametrize("why", ["heard", "answered", "lost"])
def test_nobody_is_asked_where_nothing_waits_or_something_was_heard(asked, why):
    """The node is there, or there is nothing to be told."""
    inquiry, loop, replicas = asked
    if why == "heard":
        inquiry.waits_since = FOREVER
    elif why == "answered":
        loop.link.asked.clear()
    else:
        loop.link.lose(hms.ConnectionLost(address="a", reason="cut"), is_final=False)
    assert inquiry.turn(200.0) == FOREVER
    assert counts(replicas) == [0, 0]


def test_who_asks_brings_neither_a_name_nor_a_proof(asked):
    """Else it would take its own connection over, or its durable subscriptions."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    wait_until(replicas[0].count)
    (hello,) = replicas[0].hellos
    mine = loop.link.hello
    assert (hello.client_id, hello.user, hello.resume) == ("", "", b"")
    assert hello.uid != mine.uid
    assert hello.secret != mine.secret


def welcome(epoch, log=LOG):
    return Kind.WELCOME, structures.encode(Welcome(1, NODE, 7, LIMITS, log=log, epoch=epoch))


def challenge(epoch):
    return Kind.CHALLENGE, structures.encode(Challenge(["PASSWORD"], NODE, epoch=epoch))


@pytest.mark.parametrize("said", [welcome(4), challenge(4)], ids=["open", "secured"])
def test_one_that_leads_in_a_later_epoch_is_gone_to(asked, said):
    """The node that is silent has been replaced."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    replicas[1].answers(*said)
    take(inquiry, 1)
    ((reason, addresses),) = loop.left
    assert addresses == [replicas[1].address]
    assert "leads in epoch 4" in reason
    assert inquiry.turn(300.0) == FOREVER


@pytest.mark.parametrize("how", ["read", "unread"])
def test_a_node_that_has_said_something_meanwhile_is_not_left(asked, how):
    """As when it moves, and its good-bye is here: the client was told that it was cut off. If that
    was all it is left a round later."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    if how == "read":
        inquiry.waits_since = 101.2
    loop.is_unread = how == "unread"
    replicas[1].answers(*welcome(4))
    take(inquiry, 1)
    assert loop.left == []

    loop.is_unread = False
    again = 101.0 + ROUND_S if how == "read" else 100.0 + AGAIN_S[0]
    turns(inquiry, 102.0, again)
    wait_until(lambda: replicas[1].count() == 2)
    replicas[1].answers(*welcome(4))
    wait_until(lambda: inquiry.turn(again + 0.5) and loop.left)
    ((_, addresses),) = loop.left
    assert addresses == [replicas[1].address]


def take(inquiry, answers):
    """So many answers, which are on their way; the round is not over meanwhile."""
    left = max(len(inquiry._asked) - answers, 0)

    def is_taken():
        inquiry.turn(101.5)
        return len(inquiry._asked) <= left

    wait_until(is_taken)


def test_one_that_follows_names_who_leads(asked):
    """Where it is reached, if that is known there."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    replicas[0].refuses(4, "b", "tcp://b:1", "tcp://b:2")
    take(inquiry, 1)
    ((reason, addresses),) = loop.left
    assert addresses == ["tcp://b:1", "tcp://b:2"]
    assert "b leads in epoch 4" in reason


def test_one_that_does_not_say_where_has_the_next_address_tried(asked):
    """At the end of the round: another one may still say that it leads itself."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    replicas[0].refuses(4, "b")
    take(inquiry, 1)
    assert loop.left == []
    inquiry.turn(102.1)
    assert [addresses for _, addresses in loop.left] == [[]]


@pytest.mark.parametrize("epoch", [2, 3])
def test_the_same_epoch_is_no_reason_to_leave(asked, epoch):
    """Only this client is cut off, or the node is slow (40): it has not been replaced."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    replicas[0].refuses(epoch, "a", "tcp://a:1")
    replicas[1].answers(*welcome(epoch))
    take(inquiry, 2)
    turns(inquiry, 102.0, 103.0)
    assert loop.left == []
    assert loop.link.state is State.UP


@pytest.mark.parametrize(
    "said",
    [
        welcome(9, b"M" * 16),
        (Kind.ERROR, structures.encode_error(hms.NodeStopping())),
        (Kind.WELCOME, b"nonsense"),
        (Kind.REPLY, b""),
    ],
    ids=["another log", "stopping", "nonsense", "another frame"],
)
def test_what_is_no_answer_of_this_log_is_none(asked, said):
    """An address may be anybody's."""
    inquiry, loop, replicas = asked
    inquiry.turn(101.0)
    replicas[0].answers(*said)
    take(inquiry, 1)
    turns(inquiry, 102.0, 103.0)
    assert loop.left == []


class Shell:
    """Of a loop that nobody drives: when a turn is wanted."""

    is_polled = False

    def __init__(self):
        self.wanted = []

    def come_by(self, at):
        self.wanted.append(at)

    def __getattr__(self, _name):
        return lambda *_: None


@pytest.mark.parametrize(
    ("addresses", "told", "is_server", "is_asked"),
    [
        (["tcp://a:1"], {"epoch": 3, "replicas": ["tcp://a:1", "tcp://b:1"]}, False, True),
        (["tcp://a:1", "tcp://b:1"], {"epoch": 3}, False, True),
        (["tcp://a:1"], {"epoch": 3}, False, False),
        (["tcp://a:1", "tcp://b:1"], {}, False, False),
        (["tcp://a:1", "tcp://b:1"], {"epoch": 3}, True, False),
    ],
    ids=["told", "given", "no other", "no copies", "server"],
)
def test_only_clients_of_a_log_with_other_replicas_watch_it(addresses, told, is_server, is_asked):
    """One turn for each second in which something waits; without copies nothing is done at all."""
    link, shell = Link(Hello(1)), Shell()
    loop = TransportLoop(link, addresses, Options(is_server=is_server), shell)
    link.address = "tcp://a:1"
    up(link, log=LOG, **told)
    loop._connected()
    shell.wanted.clear()
    for _ in range(3):
        pending = Pending("session()")
        link.request(OpenSession(1), pending)
        loop.flush()
        loop.flush()
    assert len(shell.wanted) == int(is_asked)
    assert (loop.inquiry.waits_since < FOREVER) == is_asked
