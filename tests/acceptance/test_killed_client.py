"""A client that is killed: the system closes its connection, and the node need not wait to know."""

import subprocess
import sys

import pytest

import hms
from hms.testing import node

WAIT_S = 60
COUNT = 200
HOLDING = """
import sys, threading
import hms

connection = hms.connect(sys.argv[1])
consumer = connection.session(ack=hms.AckMode.CLIENT).consumer(hms.Queue("work"))
print(consumer.receive().body.decode(), flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_what_a_killed_client_holds_comes_back_without_a_heartbeat(scheme, tmp_path):
    """It was its own for 3 to 4 s; here the next heartbeat is due in three minutes."""
    settings = {"heartbeat_s": 600}
    if scheme == "ipc":
        settings["listen"] = [f"ipc://{tmp_path}/node"]
    config = {"hms": {"queue": {"work": {}}}, "node": {"node1": settings}}
    with (
        node(config=config) as started,
        hms.connect(started.address) as conn,
        conn.session() as session,
    ):
        session.producer(hms.Queue("work")).send_many(b"%d" % n for n in range(COUNT))
        command = [sys.executable, "-c", HOLDING, started.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"0\n"
            holder.kill()

        consumer = session.consumer(hms.Queue("work"))
        came = [consumer.receive(WAIT_S) for _ in range(COUNT)]

    assert [message.body for message in came] == [b"%d" % n for n in range(COUNT)]
    assert all(message.delivery_count == 2 for message in came)
