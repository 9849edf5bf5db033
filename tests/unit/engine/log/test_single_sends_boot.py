"""Messages that were sent one by one wait as they lie in the log, as batches do."""

import random
from functools import partial

import pytest

from hms.boot.recovering import RUNS_OF
from hms.engine.engine import Engine
from hms.engine.log import pinned_recovery
from hms.engine.log.packed_block import PackedSends
from hms.engine.queue.settlement import Return
from hms.store.journal import Journal
from hms.wire import packed_messages
from hms.wire.packed_messages import Head
from hms.wire.record_runs import NO_RUNS
from tests.sim.judge import wrong_totals
from tests.support.journal_node import JournalNode
from tests.support.short_runs import shorten_runs
from tests.unit.engine.log.test_log_cleaning import SETTINGS, churn, life
from tests.unit.engine.log.test_packed_boot import everything, publish_heads

pytestmark = pytest.mark.skipif(
    not packed_messages.IS_NATIVE, reason="this package was built without a C compiler"
)
SENDS = 70


def singles(node, count, first=1, producer=1, **row):
    for n in range(first, first + count):
        node.publish(n, [b"%06d" % n], producer, **row)


@pytest.fixture
def made(monkeypatch):
    """The ids of messages that the boot made one by one."""
    ids, make = [], pinned_recovery.make_messages

    def noted(rows, payloads, first_id, *rest, **more):
        ids.extend(range(first_id, first_id + len(rows)))
        return make(rows, payloads, first_id, *rest, **more)

    monkeypatch.setattr(pinned_recovery, "make_messages", noted)
    return ids


def blocks_of(engine, name="orders"):
    line = engine.state.queues[name].line
    later = line._ready._later.values()
    return [one for chunks in later for one in chunks._chunks if isinstance(one, PackedSends)]


def test_what_only_waits_is_not_made_at_boot(tmp_path, made):
    """A million of them took 20 us each; who looks at them finds them as they were."""
    node = life(tmp_path)
    singles(node, SENDS)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert (made, [block.count for block in blocks_of(after.engine)]) == ([], [SENDS])
    assert after.waiting() == before
    after.close()


def test_of_two_queues_each_has_its_own(tmp_path, made):
    """Clients send to several queues in turn; none of them sees the others' messages."""
    node = life(tmp_path)
    node.engine.open_producer(1, 3, 1, "queue", "busy")
    node.run(lambda fx, now_ms: node.engine.close_consumer(1, 90, now_ms, fx))
    for n in range(SENDS):
        singles(node, 1, first=1 + n)
        singles(node, 1 + n % 2, first=1 + 2 * n, producer=3)
    before = node.waiting(), node.waiting("busy")
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    counts = [[b.count for b in blocks_of(after.engine, name)] for name in ("orders", "busy")]
    assert (made, counts) == ([], [[SENDS], [SENDS * 3 // 2]])
    assert (after.waiting(), after.waiting("busy")) == before
    after.close()


@pytest.mark.parametrize("row", [{"ttl_ms": 60_000}, {"priority": 7}], ids=["expiring", "urgent"])
def test_a_special_one_among_them_is_seen_at_once_and_keeps_its_turn(tmp_path, made, row):
    """It divides the others, so that no block stands around it."""
    node = life(tmp_path)
    singles(node, SENDS)
    singles(node, 1, first=1000, **row)
    singles(node, SENDS, first=2000)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert len(made) == 1
    assert [block.count for block in blocks_of(after.engine)] == [SENDS, SENDS]
    assert after.waiting() == before
    after.close()


def test_messages_of_a_group_keep_their_order(tmp_path, made):
    """Their heads say so; messages with other properties are packed."""
    node = life(tmp_path)
    for n in range(SENDS):
        publish_heads(node, 1 + n, [{"Type": "drinks", "n": n}])
    node.publish(200, [b"between"], ttl_ms=60_000)
    for n in range(SENDS):
        publish_heads(node, 300 + n, [{"JMSXGroupID": f"g{n % 3}"}])
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert len(made) == 1 + SENDS
    assert after.engine.state.queues["orders"].line.groups.waiting_count == SENDS
    assert after.waiting() == before
    after.close()


def test_a_transaction_that_was_committed_among_them_arrives_in_its_turn(tmp_path):
    """Its messages may have ids from before; none is hidden by a block around it."""
    node = life(tmp_path)
    singles(node, 40)
    node.publish(1, [b"in a transaction %d" % n for n in range(40)], producer=11)
    singles(node, 40, first=100)
    node.run(lambda fx, now_ms: node.engine.commit(1, 2, 9, 5, now_ms, fx))
    singles(node, 40, first=200)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert len(before) == 160
    assert after.waiting() == before
    after.close()


def test_bodies_that_cannot_be_read_back_stay_in_the_log(tmp_path):
    """The disk fails while a block is opened: heads are known, who needs a body hears why."""
    node = life(tmp_path)
    for n in range(SENDS):
        publish_heads(node, 1 + n, [{"n": n}])
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    (block,) = blocks_of(after.engine)

    def broken(_position, _size):
        raise LookupError

    block._read = broken
    line = after.engine.state.queues["orders"].line
    assert [m.head() for m in line.in_order()] == [Head({"n": n}) for n in range(SENDS)]
    assert after.engine.state.blocks.paged_count == SENDS
    assert after.waiting() == before  # the disk answers again
    after.close()


def test_they_are_pinned_and_found_again(tmp_path, made, stubs):
    """The log turns over and over while nobody looks at what waits: none is ever made."""
    node = life(tmp_path)
    singles(node, 6 * SENDS)
    churn(node, 20, first=10_000)
    before = node.waiting()
    node.close()
    for first in (20_000, 30_000):
        node = life(tmp_path)
        made.clear()
        churn(node, 70, first=first)
        assert node.engine.state.queues["orders"].line.waiting_count == 6 * SENDS
        assert node.store.describe()["pinned_segments"] > 0
        node.close()
    after = JournalNode(tmp_path, SETTINGS)
    waiting = {message_id for message_id, *_ in before}
    assert len(stubs) < 4 * SENDS, "some lie at the end of a segment or of a run"
    assert len(waiting.intersection(made)) < SENDS
    assert after.waiting() == before
    after.close()


def random_life(path, rng):
    """Single messages to two queues, of all kinds; some go out, come back, leave."""
    node, sent = life(path), 1
    node.engine.open_producer(1, 3, 1, "queue", "busy")
    for handle in (1, 2):
        node.consume(handle, 0, session=1)
    for _ in range(40):
        what = rng.random()
        if what < 0.55:
            for _ in range(rng.choice((1, 5, 40))):
                size, row = 1, {}
                if rng.random() < 0.05:
                    row = rng.choice(({"ttl_ms": 60_000}, {"priority": 6}))
                elif rng.random() < 0.03:
                    size = 40
                bodies = [b"%d" % k + bytes(rng.choice((0, 150))) for k in range(size)]
                node.publish(sent, bodies, rng.choice((1, 1, 1, 3)), **row)
                sent += size
        elif what < 0.7:
            node.credit(rng.choice((1, 7, 50)), rng.choice((1, 2)))
        else:
            handle = rng.choice((1, 2))
            out = node.credit(0, handle)
            start = rng.randint(0, len(out))
            some = out[start : start + rng.choice((1, 3, 40))]
            if some and what < 0.9:
                node.acknowledge(some, handle)
            elif some:
                spans = [(m.id, m.id) for m in some]
                how = rng.choice((Return.FAILED, Return.RELEASED))
                node.run(
                    lambda fx, now_ms, h=handle, s=spans, w=how: node.engine.give_back(
                        1, h, 0, s, w, now_ms, fx
                    )
                )
    churn(node, rng.choice((0, 100)), first=100_000)
    node.close()


@pytest.mark.parametrize("seed", range(5))
def test_in_runs_or_one_by_one_a_boot_finds_the_same(tmp_path, monkeypatch, seed):
    """Figures, every message and its place, and what is remembered of producers."""
    random_life(tmp_path, random.Random(seed))
    found = []
    for runs_of, shortest in ((RUNS_OF, 2), (RUNS_OF, 32), (NO_RUNS, 32)):
        shorten_runs(monkeypatch, shortest)
        journal = Journal.open(tmp_path, segment_bytes=1 << 16, node_uid=1)
        engine = Engine(SETTINGS)
        recovery = engine.recovery(partial(journal.pinned_records, runs_of=runs_of), journal.read)
        for _, kind, _, payload, position in journal.recover(runs_of):
            recovery.apply(kind, payload, position)
        recovery.finish()
        state = engine.state
        assert list(wrong_totals(state)) == []
        keys = state.memories.keys()
        known = keys, list(state.memories.producers_taken(keys))
        numbers = state.next_seq, state.ids.next_id, state.now_ms, state.memories.has_forgotten
        found.append((known, numbers, everything(engine)))
        journal.close()
    assert found[0] == found[2]
    assert found[1] == found[2]
