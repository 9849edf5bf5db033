"""A place is judged by the name of what the engine finds under its text (AT-26, AT-32)."""

import pytest

import hms
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.secured import document

READING = ("browse", "purge", "manage")


@pytest.fixture
def node():
    """The subscriptions a, a@b and c have a message each; u may read a alone, w a@b alone."""
    made = GatedNode(
        document(
            owner=["subscribe topic:news", "subscribe-durable topic:news", "publish topic:news"],
            u=[*(f"{one} subscription:a" for one in READING), "produce queue:orders"],
            w=[*(f"{one} subscription:a@b" for one in READING), "produce queue:orders"],
        )
    )
    made.login("owner", "owner", 1)
    made.ask("owner", wire.OpenSession(1))
    for handle, name in enumerate(("a", "a@b", "c"), 1):
        made.ask("owner", wire.OpenConsumer(handle, 1, "topic", "news", 0, durable=name))
    made.ask("owner", wire.OpenProducer(1, 1, "topic", "news"))
    made.send("owner", *send(1, 1, 1, pack(1)))
    made.login("u", "u", 2)
    made.login("w", "w", 3)
    return made


def asked(node, user, place):
    """The kinds of what answers a browser and three orders of operators."""
    found = []
    for request in (
        wire.Browse("", place=place),
        wire.Administer("message.list", {"place": place}),
        wire.Administer("message.move", {"place": place, "to": "queue:orders", "is_all": True}),
        wire.Administer("message.delete", {"place": place, "is_all": True}),
    ):
        ((envelope, data),) = node.send(user, Kind.REQUEST, wire.encode(request))
        is_refused = envelope.kind is Kind.ERROR
        found.append(type(wire.decode_error(data)) if is_refused else envelope.kind)
    return found


@pytest.mark.parametrize("place", ["subscription:a@b", "subscription:a@b@news", "subscription:c"])
def test_a_name_with_an_at_sign_is_not_the_name_before_it(node, place):
    """Whoever might read a could read, move and delete what waited in a@b."""
    assert asked(node, "u", place) == [hms.NotAuthorized] * 4
    waiting = [s.line.waiting_count for s in node.engine.state.space.subscriptions.values()]
    assert waiting == [1, 1, 1]


@pytest.mark.parametrize(
    ("user", "place"),
    [
        ("u", "subscription:a"),
        ("u", "subscription:a@news"),
        ("w", "subscription:a@b"),
        ("w", "subscription:a@b@news"),
    ],
)
def test_what_is_granted_is_found_with_and_without_its_topic(node, user, place):
    """The owner of the right names it as the engine does."""
    assert asked(node, user, place) == [Kind.BROWSED, *[Kind.REPLY] * 3]
