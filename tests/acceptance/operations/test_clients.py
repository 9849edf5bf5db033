"""hms client against a real node: who is connected, and what becomes of one that is closed."""

import queue

import pytest

import hms
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}}}}
WAIT_S = 60


def test_an_operator_finds_who_holds_a_message_and_closes_it(node, command):
    """The client hears why, its message goes back as if it had not failed, and it may come back."""
    told = queue.Queue()
    options = {"client_name": "barista", "client_id": "bar", "reconnect_interval_s": 0.05}
    with hms.connect(node.address, exception_listener=told.put, **options) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        receipt = session.producer("orders").send(b"coffee")
        consumer = session.consumer("orders", selector="N IS NULL")
        assert consumer.receive(WAIT_S).body == b"coffee"

        (row,) = command("client", "list", "--client-name", "barista")
        assert (row["client_id"], row["consumers"], row["producers"]) == ("bar", 1, 1)
        assert row["in_flight"] == 1
        assert row["since_ms"] > 0
        shown = command("client", "show", str(row["id"]))
        (held,) = shown["consumers_open"]
        assert (held["destination"], held["selector"]) == ("queue:orders", "N IS NULL")
        assert held["oldest_in_flight"] == receipt.message_id
        command("client", "close", str(row["id"]), "--reason", "maintenance of the bar")

        error = told.get(timeout=WAIT_S)
        assert isinstance(error, hms.errors.ClosedByOperator)
        assert "maintenance of the bar" in str(error)
        again = consumer.receive(WAIT_S)
        assert (again.body, again.redelivered) == (b"coffee", True)
        again.ack()
        (row_again,) = command("client", "list", "--client-name", "barista")
        assert row_again["id"] != row["id"]
    assert "HMS-3016" in command("client", "show", str(row["id"]), code=1)
    assert "HMS-3016" in command("client", "close", "999", code=1)


def test_clients_are_closed_by_name_and_address_and_others_stay(node, command):
    """An operator had to list them and close each by its id."""
    told = queue.Queue()
    options = {"reconnect": False, "exception_listener": told.put}
    with (
        hms.connect(node.address, client_name="flood", **options),
        hms.connect(node.address, client_name="flood", **options),
        hms.connect(node.address, client_name="barista") as other,
    ):
        away = "--client-name", "flood", "--address", "10.0.0.0/8"
        assert command("client", "close", *away)["closed"] == 0
        words = "--client-name", "flood", "--address", "127.0.0.0/8", "--reason", "it floods"
        assert command("client", "close", *words)["closed"] == 2
        assert all("it floods" in str(told.get(timeout=WAIT_S)) for _ in range(2))
        other.session().producer("orders").send(b"y")
        assert command("client", "close", "--address", "127.0.0.1")["closed"] == 1  # not itself
    assert "say which" in command("client", "close", code=2)
    assert "say which" in command("client", "close", "1", "--user", "ann", code=2)


def test_a_client_is_banned_until_it_is_let_in_again_also_over_a_restart(node, command):
    """It is closed, hears why, and hears it again when it comes back; others are not disturbed."""
    told = queue.Queue()
    options = {"client_name": "flood", "reconnect": False, "exception_listener": told.put}
    with hms.connect(node.address, **options) as connection:
        connection.session().producer("orders").send(b"x")
        with hms.connect(node.address, client_name="barista") as other:
            said = command("client", "ban", "--client-name", "flood", "--reason", "it floods")
            assert said["closed"] == 1
            error = told.get(timeout=WAIT_S)
            assert isinstance(error, hms.errors.ClientBanned)
            assert "it floods" in str(error)
            other.session().producer("orders").send(b"y")
    with pytest.raises(hms.errors.ClientBanned, match=r"client name flood until 20.*it floods"):
        hms.connect(node.address, client_name="flood")
    (row,) = command("client", "bans")
    assert (row["by"], row["value"], row["reason"]) == ("client_name", "flood", "it floods")
    assert row["until_ms"] - row["since_ms"] == 3_600_000

    node.stop()
    node.boot()
    with pytest.raises(hms.errors.ClientBanned):
        hms.connect(node.address, client_name="flood")
    command("client", "unban", "--client-name", "flood")
    assert command("client", "bans") == []
    hms.connect(node.address, client_name="flood").close()
    assert "HMS-3017" in command("client", "unban", "--client-name", "flood", code=1)


def test_a_ban_ends_by_itself_and_is_never_of_who_orders_it(node, command):
    """An operator who bans the network that he sits in would have nobody to end it."""
    command("client", "ban", "--user", "nobody", "--for", "1s")
    for wrong in (["--address", "127.0.0.0/8"], ["--client-name", "hms"]):
        assert "the connection that asks" in command("client", "ban", *wrong, code=1)
    assert "HMS-1011" in command("client", "ban", "--address", "here", code=1)
    assert command("client", "ban", code=2)
    wait_until(lambda: command("client", "bans") == [], WAIT_S)


def test_consumers_and_producers_are_listed_with_their_clients(node, command):
    """Who sends to this queue, and who holds its messages, is one question."""
    with hms.connect(node.address, client_id="bar", client_name="barista") as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        session.producer("orders").send(b"coffee")
        session.consumer("orders").receive(WAIT_S)
        (held,) = command("consumer", "list", "--destination", "queue:orders")
        assert (held["client_id"], held["in_flight"]) == ("bar", 1)
        (sends,) = command("producer", "list")
        assert (sends["destination"], sends["client"]) == ("queue:orders", held["client"])
        assert command("producer", "list", "--destination", "queue:other") == []
        (row,) = command("client", "list", "--destination", "queue:orders", "--sort", "since_ms")
        assert (row["id"], row["address"]) == (held["client"], "127.0.0.1")
        assert command("client", "list", "--address", "10.0.0.0/8") == []
        assert command("client", "list", "--idle-for", "1d") == []
        assert command("client", "list", "--sort", "nothing", code=2)


def test_the_lists_tell_of_open_transactions_and_of_bytes_that_went_out(node, command):
    """Who keeps a transaction open is found by its session; who is sent the most, by its bytes."""

    def client():
        (row,) = command("client", "list", "--client-name", "till")
        return row

    def is_open():
        (mine,) = (one for one in command("session", "list") if one["client_id"] == "till")
        return mine["has_open_transaction"]

    with (
        hms.connect(node.address, client_name="till", client_id="till") as connection,
        connection.session(transacted=True) as session,
    ):
        session.send("orders", bytes(100_000))
        session.commit()
        assert not is_open()
        before = client()["bytes_out"]
        assert session.consumer("orders").receive(WAIT_S) is not None

        assert client()["bytes_out"] - before >= 100_000
        session.send("orders", bytes(1_000_000))
        wait_until(lambda: client()["open_transactions"] == 1, WAIT_S)
        assert is_open()
        session.commit()
        assert not is_open()
