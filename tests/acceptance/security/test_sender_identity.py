"""sender_identity: a message says which user sent it, and no client says it for another."""

import pytest

import hms
from hms.errors.catalogue import ReservedProperty
from hms.wire.packed_messages import Head, encode_head
from tests.support.secured import PASSWORD, document, secured_node

MAY = ["produce queue:orders", "consume queue:orders", "schedule queue:orders", "call service:*"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    made = tmp_path_factory.mktemp("i")
    with secured_node(made, document(u=MAY, w=MAY), own={"sender_identity": True}) as running:
        yield running


@pytest.fixture
def sessions(node):
    login = {"password": PASSWORD}
    with (
        hms.connect(node.address, user="u", client_id="desk", **login) as one,
        hms.connect(node.address, user="w", **login) as other,
        one.session() as sender,
        other.session() as receiver,
    ):
        yield sender, receiver


def test_at_36_who_sent_is_said_by_the_node_whatever_the_client_says(sessions, monkeypatch):
    """Alone, in a transaction, delayed, by schedule; a forged head is put right."""
    sender, receiver = sessions
    forged = encode_head(Head({"a": 1}, node={"$UserID": "admin", "$Client": "x", "$Topic": "t"}))
    message = hms.Message(b"x")
    with pytest.raises(ReservedProperty):
        message.properties["JMSXUserID"] = "admin"
    with pytest.raises(ReservedProperty):
        message.properties["$UserID"] = "admin"
    out = sender.producer(hms.Queue("orders"))
    out.send(b"plain")
    out.send(hms.Message(b"delayed"), delay_s=0.01)
    out.schedule("once", b"scheduled", every_s=0.1, count=1)
    with monkeypatch.context() as patched:
        patched.setattr("hms.client.properties.encode_head", lambda _: forged)
        out.send(hms.Message(b"forged", properties={"a": 1}))
    with sender.connection.session(transacted=True) as own:
        own.producer(hms.Queue("orders")).send(b"transacted")

    got = {}
    consumer = receiver.consumer(hms.Queue("orders"), selector="JMSXUserID = 'u'")
    while len(got) < 5:
        one = consumer.receive(timeout_s=60)
        said = one.properties
        got[bytes(one.body)] = said.get("JMSXUserID"), said.get("$UserID"), said.get("JMSXAppID")
    assert got == dict.fromkeys(
        [b"plain", b"delayed", b"scheduled", b"forged", b"transacted"], ("u", "u", "desk")
    )


def test_a_head_that_nobody_can_read_is_refused(sessions, monkeypatch):
    """It could not say who sent it."""
    out = sessions[0].producer(hms.Queue("orders"))
    monkeypatch.setattr("hms.client.properties.encode_head", lambda _: b"\xc1")
    with pytest.raises(hms.HmsError, match="head"):
        out.send(hms.Message(b"x", properties={"a": 1}))
