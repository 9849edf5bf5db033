"""A move between two real nodes, one of them killed at its n-th sync (C05): strace kills the source
or the target, it boots again, and every confirmed message comes exactly once.
"""

import os
import threading
import time

import pytest
from global_queue_rig import CONNECT, IS_FULL, QUEUE, WAIT_S, await_up

import hms
from hms.errors.catalogue import BootFailed
from hms.testing.nodes import TestNode

SYNCS = range(1, 1 + int(os.environ.get("HMS_MOVE_SYNCS", "30" if IS_FULL else "3")))
MESSAGES = 300 if IS_FULL else 60
BOOT_SYNCS = [3]
CONFIG = {
    "hms": {"queue": {"orders": {"GLOBAL": "Y", "GQTHR": 5, "GQMAXREQ": 5, "GQFULL": 0}}},
    "svrgroup": {
        "g1": {"NODENAME": "node1", "HMSINDEX": 1, "HMSMAXDBTHR": 1},
        "g2": {"NODENAME": "node2", "HMSINDEX": 2, "HMSMAXDBTHR": 1},
    },
}


def killed_at(sync):
    """Runs a node and kills it when one of its threads makes its n-th sync."""
    return [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        f"inject=fdatasync:signal=KILL:when={sync}",
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A source and a target for all tests: each ends with both up, and their queue empty."""
    folder = tmp_path_factory.mktemp("moves")
    source = TestNode(folder, folder / "store", CONFIG, (), (), (), 2)
    try:
        for one in source.nodes:
            one.boot()
        yield source
    finally:
        for one in source.nodes:
            if one.is_running:
                one.kill()


@pytest.fixture
def pair(cluster):
    """Both as they are without faults, also behind a test that failed."""
    for one in cluster.nodes:
        one._prefix = []
        if not one.is_running:
            one.boot(warm=True)
    await_up(cluster)
    return cluster.nodes


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_node_that_is_killed_at_a_sync_of_a_move_loses_and_doubles_nothing(pair, side, sync):
    """The simulation of every record, once more with a kernel and a disk in between."""
    source, target = pair
    with hms.connect(source.address, **CONNECT) as conn, conn.session() as session:
        bodies = [b"%d" % number for number in range(MESSAGES)]
        session.producer(QUEUE).send_many([hms.Message(body) for body in bodies])
    doomed = source if side == "source" else target
    doomed.kill()
    boot_doomed(doomed, sync)
    deaths = []
    got = consume(target, doomed, deaths)

    assert deaths, "it was not killed: it made no such sync"
    assert sorted(got) == sorted(bodies)


def boot_doomed(doomed, sync):
    """Under strace, which counts for each thread; how many syncs the boot itself makes is found
    out once."""
    while True:
        doomed._prefix = killed_at(sync + BOOT_SYNCS[0])
        try:
            doomed.boot(warm=True)
            break
        except BootFailed:
            BOOT_SYNCS[0] += 1
            assert BOOT_SYNCS[0] < 20, "it never boots"
    doomed._prefix = []


def consume(target, doomed, deaths):
    """Receive and acknowledge everything, and boot the node that dies on the way."""
    got, until, is_over = [], time.monotonic() + WAIT_S, threading.Event()
    watch = threading.Thread(target=boot_again, args=(doomed, is_over, deaths), daemon=True)
    watch.start()
    with (
        hms.connect(target.address, **CONNECT) as conn,
        conn.session(transacted=True) as session,
    ):
        consumer = session.consumer(QUEUE, prefetch=5)
        while len(got) < MESSAGES and time.monotonic() < until:
            got += receive(session, consumer)
        is_over.set()  # all that it had to sync for this is synced
        watch.join(WAIT_S)
        extra = receive(session, consumer)
    return got + extra


def receive(session, consumer):
    """One message, committed; what an outage undid comes again."""
    try:
        message = consumer.receive(timeout_s=0.5)
        session.commit()
    except hms.HmsError:
        return []
    return [] if message is None else [message.body]


def boot_again(doomed, is_over, deaths):
    """When the node has died."""
    while doomed.is_running and not is_over.wait(0.05):
        pass
    if not doomed.is_running:
        deaths.append(doomed.name)
        doomed.boot(warm=True)
