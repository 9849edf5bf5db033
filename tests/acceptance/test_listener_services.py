"""Listeners: what a service may do with a message, and queues that the node itself has served."""

import os
from pathlib import Path

import pytest
from services_rig import WAIT_S, until

import hms
from hms.testing import node

CONFIG = """
[server.tmax]
module = "tmax_services"
MIN = {least}
MAX = 2
restart_delay_s = 0
MAXRSTART = -1
[alerts]
listener_missing_s = 0
[hms.queue.judged]
listener = "JUDGE"
listener_sessions = 2
[hms.queue.plain]
redelivery_delay_s = 3600
"""
HERE = Path(__file__).parent


def queue_of(conn, name):
    (found,) = [q for q in conn.administer("queue.list") if q["name"] == name]
    return found


@pytest.fixture
def served():
    with (
        node(config=CONFIG.format(least=1), python_path=[HERE]) as started,
        hms.connect(started.address) as conn,
        conn.session() as session,
    ):
        yield started, conn, session


def test_a_declared_listener_serves_its_queue_with_no_client_around(served):
    """[hms.queue.NAME] listener."""
    _, conn, session = served
    session.producer(hms.Queue("judged")).send_many([hms.Message(b"fine")] * 50)

    until(lambda: queue_of(conn, "judged")["acknowledged"] == 50)


def test_a_rejected_message_is_a_dead_letter_at_once(served):
    """hms.Reject: no use in trying again."""
    _, conn, session = served
    session.producer(hms.Queue("judged")).send(b"reject")

    dead = session.consumer(hms.Queue("HMS.DLQ")).receive(timeout_s=WAIT_S)

    assert dead.body == b"reject"
    assert (dead.property("$DeadReason"), dead.property("$DeadCount")) == ("REJECTED", 1)
    assert dead.property("$DeadText") == "never"
    assert queue_of(conn, "judged")["delivered"] == 1


def test_a_message_to_be_tried_again_comes_after_its_own_delay(served):
    """hms.Retry(delay_s) holds instead of the destination's delay, here an hour."""
    _, conn, session = served
    with conn.session(asynchronous=True) as listening:
        session.producer(hms.Queue("plain")).send(b"retry")
        listening.consumer(hms.Queue("plain"), listener="JUDGE")

        until(lambda: queue_of(conn, "plain")["acknowledged"])

    assert queue_of(conn, "plain")["delivered"] == 2


def test_messages_wait_in_their_queue_for_a_listener_that_is_not_there():
    """They can be seen and counted there, the status names the missing service, and when it comes
    they are handled."""
    with (
        node(config=CONFIG.format(least=0), python_path=[HERE]) as started,
        hms.connect(started.address) as conn,
        conn.session() as session,
    ):
        session.producer(hms.Queue("judged")).send_many([hms.Message(b"fine")] * 10)
        waiting = queue_of(conn, "judged")

        assert (waiting["waiting"], waiting["in_flight"]) == (10, 0)
        missing = conn.administer("status")["listeners_missing"]
        assert missing == [{"service": "JUDGE", "destination": "queue:judged"}]
        until(lambda: "alert listener_missing begins: nobody offers JUDGE" in started.log)
        conn.administer("server.scale", {"name": "tmax", "count": 1})
        until(lambda: queue_of(conn, "judged")["acknowledged"] == 10)
        assert conn.administer("status")["listeners_missing"] == []
        until(lambda: "alert listener_missing ends" in started.log)


def test_a_listener_takes_no_more_messages_than_there_are_free_servers(served, tmp_path):
    """Others, or an operator who purges, must find the rest in the queue."""
    os.mkfifo(tmp_path / "pipe")
    _, conn, session = served
    busy = conn.call_async("MEET", str(tmp_path / "pipe"), timeout_s=WAIT_S)
    until(lambda: _service(conn, "MEET")["idle"] == 0)
    with conn.session(asynchronous=True) as listening, (tmp_path / "pipe").open("w") as pipe:
        listening.consumer(hms.Queue("plain"), listener="JUDGE")
        session.producer(hms.Queue("plain")).send_many([hms.Message(b"fine")] * 5)
        found = queue_of(conn, "plain")
        pipe.write("done")
        pipe.close()
        until(lambda: queue_of(conn, "plain")["acknowledged"] == 5)

    assert (found["waiting"], found["in_flight"]) == (5, 0)
    assert busy.result(WAIT_S).data == "done"


def _service(conn, name):
    return next(one for one in conn.administer("service.list") if one["name"] == name)
