"""Controls of the fault suite: real processes with a mistake in them lose what they had confirmed,
or double it, and the books show it (HA.md §12). The same faults do neither without the mistake.
"""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from cut_wire import cut_wire
from faults_rig import NAMES, group_in

from hms.testing import node
from tests.acceptance.ha_rig import WAIT_S, connect
from tests.support.books import Books
from tests.support.etcd import Etcd
from tests.support.project import ROOT
from tests.support.waiting import wait_until

SENT = 20
LEASE_S = 3
WRONG = Path(__file__).with_name("wrong_replica.py")
WRONG_CLIENT = Path(__file__).with_name("wrong_client.py")
BODIES = [b"%d" % number for number in range(SENT)]
BLOCKED = "nothing is confirmed"
PROMISES = "waits for the promises of 2 copies"


@contextmanager
def group_with(folder, mistake):
    """Three machines, each with that mistake; "" for none."""
    prefix = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(WRONG), mistake]
    etcd = Etcd(folder)
    etcd.start()
    try:
        endpoints = {name: [etcd.url] for name in NAMES}
        prefixes = dict.fromkeys(NAMES, prefix if mistake else [])
        with group_in(folder, endpoints, prefixes, lease_s=LEASE_S) as group:
            yield group
    finally:
        etcd.stop()


def lost(group, confirmed):
    """What was confirmed and is nowhere, when all machines are there."""
    group.wait_for_all()
    with connect(*group.nodes.values()) as connection:
        consumer, found = connection.session().consumer("orders"), set()
        while (message := consumer.receive(0)) is not None:
            found.add(bytes(message.body))
    return set(confirmed) - found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", ["confirmed_by_one_fewer", ""], ids=["wrong", "right"])
def test_what_one_of_three_has_alone_is_lost_where_it_is_confirmed(tmp_path, mistake):
    """Both others are away while it is sent, and then it is the one that is lost."""
    with group_with(tmp_path, mistake) as group:
        led = group.leader
        others = [name for name in NAMES if name != led]
        with connect(group.nodes[led]) as connection:
            producer = connection.session().producer("orders")
            producer.send(b"everywhere")
            group.lose_power(others)
            sends = [producer.send_async(body) for body in BODIES]
            seen = group.nodes[led]
            wait_until(
                lambda: all(one.done() for one in sends) if mistake else BLOCKED in seen.log,
                WAIT_S,
            )
            confirmed = [b"everywhere"]
            confirmed += [b for b, one in zip(BODIES, sends, strict=True) if is_confirmed(one)]
            group.lose_power([led])
        for name in others:
            group.nodes[name].boot()
        # The lost one comes again when they have gone on without it: else it has all to give.
        wait_until(lambda: group.leader in others, WAIT_S)

        assert lost(group, confirmed) == (set(BODIES) if mistake else set())


def lag_bytes(group, name):
    """How much a copy lacks, as the one that leads has it."""
    rows = group.said()["replicas"]
    return next((row["lag_bytes"] for row in rows if row["replica"] == name), None)


def is_confirmed(future):
    """So far."""
    return future.done() and future.exception(0) is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", ["one_promise_too_few", ""], ids=["wrong", "right"])
def test_a_copy_that_was_away_loses_what_it_lacks_where_it_leads_without_promises(
    tmp_path, mistake
):
    """It comes back before those which have all that was confirmed."""
    with group_with(tmp_path, mistake) as group:
        led = group.leader
        late = next(name for name in NAMES if name != led)
        with connect(*group.nodes.values()) as connection:
            producer = connection.session().producer("orders")
            producer.send(b"everywhere")
            wait_until(lambda: lag_bytes(group, late) == 0, WAIT_S)  # two are enough to confirm
            group.lose_power([late])
            for body in BODIES:
                producer.send(body)
        others = [name for name in NAMES if name != late]
        group.lose_power(others)
        one = group.nodes[late]
        seen = len(one.log)
        one.boot()
        # It needs another copy to confirm its first records, and gets one that has more than it.
        wait_until(lambda: (BLOCKED if mistake else PROMISES) in one.log[seen:], WAIT_S)
        for name in others:
            group.nodes[name].boot()

        assert lost(group, [b"everywhere", *BODIES]) == (set(BODIES) if mistake else set())


@contextmanager
def sender(mistake, *addresses):
    """A client of its own; killed at the end of the block."""
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(WRONG_CLIENT), mistake, str(SENT)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, *addresses], **pipes) as client:
        try:
            yield client
        finally:
            client.kill()


def until(client, said):
    """Read what it says until then."""
    for line in client.stdout:
        if line.strip() == said:
            return
    raise AssertionError(f"the client ended before it said {said}")


def waiting(one):
    """How many messages wait there."""
    with connect(one) as connection:
        return connection.administer("queue.show", {"name": "orders"})["waiting"]


def take_all(one, books):
    """Receive and acknowledge all that waits there; its bodies."""
    found = set()
    with connect(one) as connection:
        consumer = connection.session().consumer("orders")
        while (message := consumer.receive(0)) is not None:
            body = message.body.decode()
            books.received(body, message.redelivered, message.delivery_count)
            books.acknowledged([body])
            found.add(body)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", ["send_repeated_at_a_stranger", "none"], ids=["wrong", "right"])
def test_what_a_client_repeats_at_another_log_is_doubled_and_the_books_show_it(mistake):
    """The first node stores what it gets and is killed before a confirmation arrives; the client
    reaches one of another log, and then the first node again."""
    config, books = {"hms": {"queue": {"orders": {}}}}, Books()
    books.invoke(["first", *map(str, range(SENT))])
    with (
        node(config=config) as first,
        node(config=config) as other,
        cut_wire(first.address) as wire,
        sender(mistake, wire.address, other.address) as client,
    ):
        until(client, "ready")
        books.ok(["first"])
        wire.lose("down")
        client.stdin.write("\n")
        client.stdin.flush()
        wait_until(lambda: waiting(first) > 1, WAIT_S)  # what fits in its window
        first.kill()
        wire.cut_client()
        until(client, "reconnected")
        wire.pass_on()
        first.boot()
        outcomes = [line.split() for line in client.stdout if line[:2] in ("ok", "do")]
        assert client.wait(WAIT_S) == 0
        books.ok([body for word, body in outcomes if word == "ok"])
        stored = take_all(first, books) - {"first"}
        take_all(other, books)

    verdict = books.verdict()
    assert len(outcomes) == SENT
    assert (verdict.lost, verdict.unexpected) == ([], [])
    assert len(stored) > 0
    assert set(verdict.duplicated) == (set() if mistake == "none" else stored)
