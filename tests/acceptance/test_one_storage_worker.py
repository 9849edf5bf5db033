"""A node with one storage worker cleans its log as well (HMSMAXDBTHR = 1)."""

import hms
from hms.testing import node
from tests.support.waiting import wait_until

CONFIG = """
[svrgroup.one]
NODENAME = "node1"
HMSINDEX = 1
HMSMAXDBTHR = 1
[node.node1]
max_message_bytes = "64 KiB"
max_transaction_bytes = "128 KiB"
segment_bytes = "1 MiB"
max_log_bytes = "32 MiB"
history_bytes = 0
[hms.queue.orders]
[hms.queue.kept]
"""
BODY = bytes(30_000)


def take(consumer, count):
    """So many, in as many parts as they come in."""
    while count:
        came = consumer.receive_many(count, timeout_s=60)
        assert came
        count -= len(came)


def test_one_storage_worker_syncs_and_cleans(tmp_path):
    """It leads the log, moves what is live and retires segments: none of these may wait for
    another. Twice the log's limit goes through, past messages that stay."""
    with node(store=tmp_path / "store", config=CONFIG) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            session.producer("kept").send_many([BODY] * 20)
            producer, consumer = session.producer("orders"), session.consumer("orders")
            for _ in range(240):
                producer.send_many([BODY] * 10)
                take(consumer, 10)
            wait_until(lambda: conn.administer("status")["log_bytes"] <= 32 << 20)
        running.kill()
        running.boot(warm=True)
        with hms.connect(running.address) as conn, conn.session() as session:
            take(session.consumer("kept"), 20)
