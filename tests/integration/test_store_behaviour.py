"""One behaviour, whatever the store: journal, SQLite or PostgreSQL (F-I1, F-I2, F-I3)."""

import contextlib
import os
import random
import signal
import subprocess
import sys

import pytest

from hms.errors.catalogue import StoreLocked, StoreUnavailable
from hms.records import RecordType
from hms.wire.outcome_tokens import Token
from tests.support.store_node import StoreNode
from tests.support.store_place import ONE_QUEUE, append, batch, happened, numbers_in
from tests.support.store_walk import Walk


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_node_that_boots_again_knows_what_its_records_say(store_place, seed):
    """Recovery from tables has to give what recovery from the log gives, down to the counts."""
    choose, node = random.Random(seed), StoreNode(store_place)
    walk = Walk(node, seed)
    for step in range(1, 151):
        node.commits_each = choose.random() < 0.3
        walk.step()
        if step % 30 == 0:
            node.store.commit()
            expected = node.expected()
            node.store.close()
            node = walk.node = StoreNode(store_place, node.told, node.now_ms)
            assert node.recovered == expected, f"seed {seed}, step {step}"
            assert node.unreadable() == []
            walk.connections = 0
            walk.connect()
    node.store.close()


def test_a_node_that_boots_cold_leaves_nothing_behind(store_place):
    """COLD empties the store itself, not only the node's memory (F-H3)."""
    node = StoreNode(store_place)
    Walk(node, 4).send()
    node.store.close()

    cold = StoreNode(store_place, now_ms=9_000, is_warm=False)
    cold.store.close()
    warm = StoreNode(store_place, now_ms=9_000)
    warm.store.close()

    assert not any(warm.recovered["places"].values())


def test_a_hundred_thousand_messages_come_back_in_order(store_place):
    """A full store must boot, and each message must be there once."""
    store, _ = store_place.started()
    for number in range(0, 100_000, 500):
        append(store, batch(number, 500, b"x" * 40))
        if number % 10_000 == 0:
            store.commit()
    store.commit()
    store.close()

    store, records = store_place.started()
    store.close()

    assert numbers_in(records) == list(range(100_000))


def test_a_large_body_comes_back_whole(store_place):
    """Neither statement nor row may have a limit below that of a message."""
    body = os.urandom(16 << 20)
    store, _ = store_place.started()
    record = batch(0, 1, body)
    position = append(store, record) + len(record.parts[0]) + 32
    store.commit()

    assert store.read(position, len(body)) == body
    store.close()
    store, records = store_place.started()
    assert any(bytes(payload).endswith(body) for _, _, _, payload, _ in records)
    store.close()


def test_what_was_not_committed_is_not_there(store_place):
    """Nothing that is not durable may be confirmed, nor half of it come back (P1)."""
    store, _ = store_place.started()
    append(store, batch(0, 5, b"kept"))
    store.commit()
    append(store, batch(5, 5, b"dropped"))
    store.close()

    store, records = store_place.started()
    store.close()

    assert numbers_in(records) == list(range(5))


def test_sequence_numbers_go_on_after_a_boot(store_place):
    """A number that was given twice would hide an event from the history."""
    store, _ = store_place.started()
    append(store, batch(0, 5, b"x"))
    store.commit()
    last_lsn = store.last_lsn
    store.close()

    store, _ = store_place.started()

    assert store.durable_lsn > last_lsn
    assert store.durable_lsn == store.last_lsn
    store.close()


def test_two_open_stores_in_one_place_are_refused(store_place):
    """Two nodes never write one store (F-I3)."""
    store, _ = store_place.started()

    with pytest.raises(StoreLocked, match=str(os.getpid())):
        store_place.open()

    store.close()
    store_place.open().close()


def test_the_store_of_another_node_is_refused(store_place):
    """A node that took over another's messages would give its ids twice."""
    store, _ = store_place.started()
    store.close()

    with (
        pytest.raises(StoreUnavailable, match="node 77"),
        _closed(store_place, node_uid=78) as other,
    ):
        list(other.recover())
    store_place.open().close()


@contextlib.contextmanager
def _closed(store_place, **options):
    store = store_place.open(**options)
    try:
        yield store
    finally:
        store.close()


def test_acknowledged_messages_do_not_come_back(store_place):
    """And one that was delivered and failed before comes back with its counts."""
    node = StoreNode(store_place)
    walk = Walk(node, 5)
    for _ in range(60):
        walk.step()
    expected = node.expected()
    node.store.close()

    again = StoreNode(store_place, node.told, node.now_ms)
    again.store.close()

    assert again.recovered == expected


WRITER = """
import sys
from pathlib import Path
from tests.support.store_place import Place, append, batch, happened
from hms.records import RecordType

kind, folder, url, prefix = sys.argv[1:]
place = Place(kind, Path(folder))
place.address, place.prefix = url, prefix
store, _ = place.started()
number = int(sys.stdin.readline())
while True:
    append(store, batch(number, 20, b"x" * 500))
    append(store, happened(RecordType.DELIVERED, number, 20))
    store.commit()
    number += 20
    print(number, flush=True)
"""


def test_what_a_killed_process_had_committed_is_there_and_nothing_by_half(
    store_place, project_root
):
    """SIGKILL in the midst of commits: each batch is there as a whole, each confirmed one is."""
    moments, confirmed, records = random.Random(7), 0, []
    for _ in range(4):
        confirmed, begun = _write_and_kill(store_place, project_root, confirmed, moments), confirmed
        store, records = store_place.started()
        store.close()
        found = numbers_in(records)
        assert found == list(range(len(found)))
        assert len(found) % 20 == 0
        assert confirmed <= len(found) <= confirmed + 20
        assert confirmed > begun
        confirmed = len(found)


def _write_and_kill(store_place, root, number, moments):
    """Run a writer for a while; up to where it said that it had committed."""
    arguments = [store_place.kind, str(store_place.folder), store_place.address, store_place.prefix]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as writer:
        writer.stdin.write(f"{number}\n")
        writer.stdin.flush()
        told = [writer.stdout.readline() for _ in range(moments.randrange(3, 12))]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().splitlines()
    return int([line for line in told if line.strip()][-1])


def test_a_record_is_not_taken_after_the_store_is_closed(store_place):
    """Who writes into a closed store must hear of it."""
    store, _ = store_place.started()
    store.close()

    with pytest.raises(Exception, match="closed"):
        append(store, batch(0, 1, b"late"))


def test_settled_messages_are_gone_after_a_boot(store_place):
    """Deliveries, failures and acknowledgements of one commit hold together."""
    store, _ = store_place.started()
    append(store, batch(0, 10, b"x"))
    append(store, happened(RecordType.DELIVERED, 0, 8))
    store.commit()
    append(store, happened(RecordType.ACKNOWLEDGED, 0, 4))
    append(store, happened(RecordType.FAILED, 4, 2))
    append(store, happened(RecordType.DELIVERED, 4, 1))
    append(store, happened(RecordType.ACKNOWLEDGED, 4, 1))
    store.commit()
    store.close()

    node = StoreNode(store_place)
    node.store.close()

    waiting = node.recovered["places"][ONE_QUEUE[0].name]
    assert [row[0] - 1 for row in waiting] == [5, 6, 7, 8, 9]
    assert [row[8:10] for row in waiting] == [(1, 1), (1, 0), (1, 0), (0, 0), (0, 0)]


def test_what_came_back_waits_for_its_time_after_a_boot(store_place):
    """Rows that are written new or changed, and changed several times by one commit, say when."""
    store, _ = store_place.started()
    append(store, batch(0, 7, b"x"))
    append(store, happened(RecordType.DELIVERED, 0, 1))
    append(store, happened(RecordType.FAILED, 0, 1, 5_000))  # one commit makes its row
    append(store, happened(RecordType.DELIVERED, 1, 6))
    store.commit()
    append(store, happened(RecordType.FAILED, 1, 5, 6_000))  # that row is changed
    append(store, happened(RecordType.DELIVERED, 2, 1))  # its time is over: it is out
    append(store, happened(RecordType.DELIVERED, 3, 1))
    append(store, happened(RecordType.FAILED, 3, 1))  # at once this time
    append(store, happened(RecordType.DELIVERED, 4, 1))
    append(store, happened(RecordType.FAILED, 4, 1, 7_000))
    append(store, happened(RecordType.FAILED, 5, 1, 8_000))  # it is not out: nothing comes back
    append(store, happened(RecordType.RELEASED, 6, 1, 9_000))
    store.commit()
    append(store, happened(RecordType.FAILED, 5, 1, 8_000))
    store.commit()
    store.close()

    node = StoreNode(store_place)
    node.store.close()

    waiting = node.recovered["places"][ONE_QUEUE[0].name]
    found = [row[8:11] for row in waiting]
    assert found[:4] == [(1, 1, 5_000), (1, 1, 6_000), (2, 1, 0), (2, 2, 0)]
    assert found[4:] == [(2, 2, 7_000), (1, 1, 6_000), (0, 0, 9_000)]


def test_what_was_withdrawn_stays_withdrawn_after_a_boot(store_place):
    """It is remembered like a batch that was taken, with no message of its own."""
    node = StoreNode(store_place)
    asked = Token(b"", 7, "", is_commit=False, handle=1, number=5, count=2, frame_count=2)
    answers = []
    node.run(lambda fx: answers.append(node.engine.outcome(asked, node.now_ms, fx)))
    node.store.close()
    node = StoreNode(store_place, node.told)
    secret = node.engine.token_secret

    node.run(lambda fx: answers.append(node.engine.outcome(asked, node.now_ms, fx)))

    assert answers == [{"outcome": "WITHDRAWN"}] * 2
    assert secret
    assert 5 in node.engine.state.memories.known(7, 1).recent
    node.store.close()
