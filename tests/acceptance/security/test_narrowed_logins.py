"""A login with fewer roles than its user has, by a token or by its listener, gets no more by a
subscription than by asking."""

import hashlib
from datetime import UTC, datetime

import msgspec
import pytest

import hms
from hms.server.logins.security_document import RoleEntry, TokenEntry
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.secured import document

REPLACE = msgspec.structs.replace
TOKEN = "t" * 32


@pytest.fixture
def node():
    """The user may have every topic, and its token those below news."""
    held = document(u=["subscribe topic:#", "subscribe-durable topic:#", "publish topic:#"])
    few = RoleEntry(permissions=("connect listener:*", "subscribe topic:news"))
    user = REPLACE(held.user["u"], roles=("u", "few"))
    ends_at = datetime(2100, 1, 1, tzinfo=UTC)
    token = TokenEntry("u", hashlib.sha256(TOKEN.encode()).hexdigest(), ends_at, roles=("few",))
    held = REPLACE(
        held,
        user={**held.user, "u": user},
        role={**held.role, "few": few},
        token={"t": token},
    )
    made = GatedNode(held)
    made.login("p", "u", 1)
    made.ask("p", wire.OpenSession(1))
    made.ask("p", wire.OpenProducer(1, 1, "topic", "", topic="secret"))
    made.hello("q", 2, mechanisms=("TOKEN",))
    ((welcome, _),) = made.auth("q", "u", TOKEN, mechanism="TOKEN")
    assert welcome.kind is Kind.WELCOME
    made.ask("q", wire.OpenSession(1))
    return made


def opened(node, peer, pattern):
    return node.ask(peer, wire.OpenConsumer(1, 1, "topic", "", 10, topic=pattern))


@pytest.mark.parametrize("pattern", ["#", "+", "secret"])
def test_a_token_of_fewer_roles_gets_no_topic_of_its_users_others(node, pattern):
    """It was let in for the one topic that it may have, and got all that its user may have."""
    assert isinstance(opened(node, "q", pattern), hms.NotAuthorized)
    node.send("p", *send(1, 1, 1, pack(1)))
    assert node.outlet.take("q") == []


@pytest.mark.parametrize("pattern", ["news", "news/#", "news/+/x"])
def test_it_gets_what_its_roles_cover(node, pattern):
    """With wildcards too."""
    assert not isinstance(opened(node, "q", pattern), hms.HmsError)


def test_a_login_with_all_roles_of_its_user_subscribes_to_everything(node):
    """What it may not have is withheld one by one."""
    assert not isinstance(opened(node, "p", "#"), hms.HmsError)
