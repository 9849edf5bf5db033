"""The client's side of watching a destination, sans-IO."""

import pytest
from client_link import LOST, answer, new_link, sent, up

import hms
from hms.client.core.destination_watch import DestinationWatch
from hms.wire import frames
from hms.wire.frames import Kind
from hms.wire.structures import Event, Watch, decode_request, encode, encode_error

UNKNOWN = hms.DestinationNotFound(kind="queue", destination="q")


class Rig:
    """A link that is up, what it watches, and what its listeners were told."""

    def __init__(self):
        self.link = new_link()
        self.watching = DestinationWatch(self.link)
        self.events, self.errors = [], []
        self.link.on_event, self.link.on_error = self.events.append, self.errors.append

    def reply(self, *, is_ready):
        """The node answers the last thing that was asked."""
        answer(self.link, self.link.outbox[-1], Kind.REPLY, encode({"is_ready": is_ready}))

    def refuse(self):
        """The node does not know it."""
        answer(self.link, self.link.outbox[-1], Kind.ERROR, encode_error(UNKNOWN))

    def hear(self, what, name="q"):
        """The node tells something unasked."""
        event = Event(what, kind="queue", destination=name)
        self.link.receive(frames.frame(Kind.EVENT, encode(event)), 1.0)

    def told(self):
        """What the event listener was told since the last time."""
        for call in self.link.calls:
            call()
        self.link.calls.clear()
        told = [(event.kind.value, event.destination) for event in self.events]
        self.events.clear()
        return told

    def reconnect(self):
        """The connection is lost, and there is another; what it asks for."""
        self.link.lose(LOST, is_final=False)
        up(self.link)
        return [decode_request(payload) for payload in sent(self.link, Kind.REQUEST)]


@pytest.fixture
def rig():
    return Rig()


def test_the_answer_is_told_and_then_every_change(rig):
    """F-E11: now, and as it happens."""
    rig.watching.add("queue", "q")
    rig.reply(is_ready=False)
    assert rig.told() == [("consumer_not_ready", "queue:q")]

    rig.hear("consumer_ready")
    rig.hear("consumer_not_ready")

    assert rig.told() == [("consumer_ready", "queue:q"), ("consumer_not_ready", "queue:q")]


def test_what_is_watched_is_asked_again_on_a_new_connection(rig):
    """The node forgets it with the connection; only what changed meanwhile is told."""
    rig.watching.add("queue", "q")
    rig.reply(is_ready=True)
    rig.told()

    assert rig.reconnect() == [Watch("queue", "q")]
    rig.reply(is_ready=True)
    assert rig.told() == []

    assert rig.reconnect() == [Watch("queue", "q")]
    rig.reply(is_ready=False)
    assert rig.told() == [("consumer_not_ready", "queue:q")]


def test_a_watch_without_an_answer_is_asked_once_again_after_a_loss(rig):
    """Its caller still waits; twice would be once too often."""
    pending = rig.watching.add("queue", "q")

    assert rig.reconnect() == [Watch("queue", "q")]
    rig.reply(is_ready=True)

    assert pending.is_done
    assert rig.told() == [("consumer_ready", "queue:q")]


def test_a_refused_watch_leaves_nothing_behind(rig):
    """Its caller has the error; nothing is asked for it again, and nothing told."""
    pending = rig.watching.add("queue", "q")
    rig.refuse()
    assert isinstance(pending.error, hms.DestinationNotFound)

    rig.hear("consumer_ready")

    assert rig.told() == []
    assert rig.reconnect() == []


def test_a_node_that_does_not_know_it_any_more_is_reported(rig):
    """It was booted with another configuration: silence would look as if nobody came."""
    rig.watching.add("queue", "q")
    rig.reply(is_ready=True)
    rig.reconnect()

    rig.refuse()

    rig.told()
    assert isinstance(rig.errors[0], hms.DestinationNotFound)
    assert rig.reconnect() == []
