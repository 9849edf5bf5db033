"""Logins at a real node: who is let in, and what the others are told."""

import asyncio

import pytest

import hms
import hms.aio
from tests.support.secured import PASSWORD, document, secured_node

BILLING = ["produce queue:orders", "consume queue:orders", "publish topic:news"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with secured_node(tmp_path_factory.mktemp("s"), document(billing=BILLING)) as running:
        yield running


def test_a_user_with_its_password_sends_and_receives(node):
    """The whole way, over a local socket."""
    login = {"user": "billing", "password": PASSWORD}
    with hms.connect(node.address, **login) as connection, connection.session() as session:
        session.producer(hms.Queue("orders")).send(b"x")
        assert session.consumer(hms.Queue("orders")).receive(timeout_s=60).body == b"x"


@pytest.mark.parametrize(
    "given",
    [
        {"user": "billing", "password": "wrong"},
        {"user": "billing", "password": "\0"},
        {"user": "nobody", "password": PASSWORD},
        {"user": "root", "password": PASSWORD},
        {"token": "x" * 43},
        {"user": "billing", "token": PASSWORD},
        {"user": "../billing", "password": PASSWORD},
    ],
)
def test_each_failure_is_the_same_refusal(node, given):
    """Nobody learns which users there are, or what was wrong."""
    with pytest.raises(hms.LoginRefused) as caught:
        hms.connect(node.address, **given)

    assert caught.value.fields == {"address": node.address}


def test_the_same_in_asyncio(node):
    """One client, two shells."""

    async def main():
        async with hms.aio.connect(node.address, user="billing", password=PASSWORD) as connection:
            assert connection.is_connected
        with pytest.raises(hms.LoginRefused):
            await hms.aio.connect(node.address, user="billing", password="wrong")

    asyncio.run(main())


def test_the_process_of_a_known_user_needs_no_password(node):
    """The command line of the administrator works at once."""
    with hms.connect(node.address) as connection:
        assert connection.administer("status")["security"].startswith("secured: 2 users")


def test_what_is_not_granted_is_refused_by_the_call_itself(node):
    """Not in a log, and not later."""
    with hms.connect(node.address, user="billing", password=PASSWORD) as connection:
        with connection.session() as session:
            with pytest.raises(hms.NotAuthorized) as caught:
                session.producer(hms.Queue("payments"))
            with pytest.raises(hms.NotAuthorized):
                session.consumer(hms.Queue("nowhere"))
        with pytest.raises(hms.NotAuthorized):
            connection.administer("queue.purge", {"name": "orders"})

    said = {"user": "billing", "action": "produce", "resource": "queue:payments"}
    assert caught.value.fields == said


def test_a_password_is_not_lost_on_an_open_node():
    """Who gives a password believes that it is checked."""
    with hms.testing.node() as open_node:
        with pytest.raises(hms.LoginNotChecked):
            hms.connect(open_node.address, user="billing", password=PASSWORD)
        with hms.connect(
            open_node.address, user="billing", password=PASSWORD, allow_unsecured=True
        ) as connection:
            assert connection.is_connected


def test_a_file_is_read_by_who_has_received_its_message(tmp_path):
    """Its name grants nothing: see the matrix."""
    (tmp_path / "big").write_bytes(b"0123456789" * 50_000)
    held = document(u=["produce queue:orders"], v=["consume queue:orders"])
    with secured_node(tmp_path, held) as node:
        sender, reader = ({"user": name, "password": PASSWORD} for name in ("u", "v"))
        with hms.connect(node.address, **sender) as theirs, theirs.session() as session:
            session.producer(hms.Queue("orders")).send(hms.Message.file(tmp_path / "big"))
        with hms.connect(node.address, **reader) as mine, mine.session() as session:
            session.consumer(hms.Queue("orders")).receive(timeout_s=60).save(tmp_path / "got")

    assert (tmp_path / "got").read_bytes() == (tmp_path / "big").read_bytes()
