"""A profile at a real node: where it leads, and what its members are given."""

import asyncio
import os

import pytest
from click.testing import CliRunner

import hms
import tpmon
from hms.boot.cli import main
from hms.errors.catalogue import IllegalState

CONFIG = {"hms": {"queue": {"profiled": {}}}}
WAIT_S = 60


@pytest.fixture
def profile(running, tmp_path, monkeypatch):
    """A file with the profile "p" of the running node, and defaults."""
    monkeypatch.delenv("HMS_PROFILE", raising=False)
    path = tmp_path / "client.toml"
    path.write_text(
        "[defaults]\nprefetch = 3\nttl_s = 600\n"
        f'[profile.p]\naddresses = ["{running.address}"]\nclient_id = "of.profile"\n'
        'ack = "CLIENT"\npersistent = false\npriority = 7\nrequest_timeout_s = 61\n'
        "redelivery_delay_s = 5\ncompress = true\n"
    )
    monkeypatch.setenv("HMS_CLIENT_CONFIG", str(path))
    return path


def test_members_have_what_the_profile_says_and_calls_hold_before_it(profile, running):
    """A value that a call gives holds, also where it is the built-in one."""
    with hms.connect(profile="p") as connection:
        assert connection.client_id == "of.profile"
        assert connection.request_timeout_s == 61
        assert list(connection.addresses) == [running.address]
        with connection.session() as session:
            assert session.ack_mode is hms.AckMode.CLIENT
            made = session.producer("queue:profiled")
            assert (made.persistent, made.priority, made.ttl_s) == (False, 7, 600)
            assert made.compress == "zlib"
            given = session.producer("queue:profiled", persistent=True, priority=4, ttl_s=0)
            assert (given.persistent, given.priority, given.ttl_s) == (True, 4, 0)
            consumer = session.consumer("queue:profiled")
            assert (consumer.prefetch, consumer.redelivery_delay_s) == (3, 5)
            ordered = session.consumer("queue:profiled", ordered=True, prefetch=9)
            assert (ordered.prefetch, ordered.redelivery_delay_s) == (9, 0)
            ordered.close()
            session.send("queue:profiled", b"x")
            message = consumer.receive(WAIT_S)
            assert (message.priority, message.persistent) == (7, False)
            message.ack()
        with connection.session(hms.AckMode.AUTO) as session:
            assert session.ack_mode is hms.AckMode.AUTO
        with connection.session(transacted=True) as session:
            assert session.ack_mode is hms.AckMode.AUTO
        with connection.session(xa=True), connection.session(asynchronous=True):
            pass
        with pytest.raises(IllegalState):
            connection.session(hms.AckMode.CLIENT, transacted=True)


def test_a_context_and_asyncio_have_them_too(profile, running):
    """One file for all faces of the client."""
    with hms.context(profile="p") as context:
        assert context.session.ack_mode is hms.AckMode.CLIENT
    with hms.context(profile="p", ack=hms.AckMode.AUTO) as context:
        assert context.session.ack_mode is hms.AckMode.AUTO

    async def asked():
        async with hms.aio.connect(profile="p") as connection, connection.session() as session:
            made = await session.producer("queue:profiled")
            found = session.ack_mode, made.priority
        async with hms.aio.context(running.address, profile="p") as context:
            return (*found, context.session.ack_mode)

    client = hms.AckMode.CLIENT
    assert asyncio.run(asked()) == (client, 7, client)


def test_defaults_hold_for_a_connection_without_a_profile_and_not_where_no_file_is_wanted(
    profile, running
):
    """A tool does not depend on where it is started."""
    with hms.connect(running.address) as connection, connection.session() as session:
        assert connection.client_id == ""
        assert session.producer("queue:profiled").ttl_s == 600
        assert session.producer("queue:profiled").persistent
    with (
        hms.connect(running.address, profile="") as connection,
        connection.session() as session,
    ):
        assert session.producer("queue:profiled").ttl_s == 0


def test_tpstart_goes_where_the_profile_leads(profile, running, monkeypatch):
    """By its argument, or by the environment as Tmax's clients are used to."""
    monkeypatch.setenv("HMS_ADDRESS", "tcp://127.0.0.1:1")
    for chosen in ({"profile": "p"}, {}):
        if not chosen:
            monkeypatch.setenv("HMS_PROFILE", "p")
        tpmon.tpstart(tpmon.TPSTART_T(cltname="by.profile"), **chosen)
        try:
            session = hms.hms_create_session("hms01", hms.HMS_AUTO_ACK)
            assert session.connection.client_id == "of.profile"
            assert session.producer("queue:profiled").priority == 7
        finally:
            tpmon.tpend()
    with pytest.raises(hms.ProfileNotFound):
        tpmon.tpstart(profile="q")
    assert tpmon.gettperrno() == tpmon.TPENOENT
    os.environ.pop("HMS_PROFILE")
    with hms.connect(profile="p") as connection:
        assert connection.is_connected


def test_a_check_at_an_open_node_says_that_it_is_open(profile):
    """Nobody asked who that was, so nothing is granted and nothing refused."""
    done = CliRunner().invoke(main, ["profile", "check", str(profile)])
    assert done.exit_code == 0, done.output
    assert "the node is open" in done.output
    profile.write_text(profile.read_text() + 'user = "u"\npassword = "env:HMS_NO_SUCH"\n')
    done = CliRunner().invoke(main, ["profile", "check", str(profile)])
    assert done.exit_code == 1
    assert "the variable HMS_NO_SUCH is not set" in done.output
    os.environ["HMS_NO_SUCH"] = "x"
    try:
        done = CliRunner().invoke(main, ["profile", "check", str(profile)])
    finally:
        del os.environ["HMS_NO_SUCH"]
    assert "HMS-1036" in done.output
