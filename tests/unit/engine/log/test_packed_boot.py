"""Batches that wait as they lie in the log: a boot makes messages only of what somebody needs."""

import gc
import random
import sys
from itertools import pairwise

import pytest

from hms.boot.recovering import RUNS_OF
from hms.engine import state
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.groups import candidates, scan_slices
from hms.engine.groups.scan_order import BEGINNING, END
from hms.engine.log import packed_block, pinned_recovery
from hms.engine.queue.settlement import Return
from hms.errors.catalogue import InvalidArgument, StoreFailed
from hms.server.segment_roll import SegmentOperations
from hms.store.journal import Journal
from hms.wire.operations import EraseLog
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages
from tests.sim.judge import wrong_totals
from tests.support.journal_node import JournalNode
from tests.unit.engine.log.test_log_cleaning import SETTINGS, churn, life

BATCH = 40
COUNTED = ("hms.engine.", "hms.records.", "hms.store.journal.", "hms.wire.")
CALLS_PER_BATCH = 56
"""Counted from the log's record to the line of its queue; only ever lowered."""


def batches(node, count, first=1, size=BATCH, **row):
    for n in range(first, first + count * size, size):
        node.publish(n, [b"%06d" % (n + k) for k in range(size)], **row)


@pytest.fixture
def made(monkeypatch):
    """How many messages each function that makes some has made."""
    counts = {"packed": 0, "each": 0}
    for name, module in (("packed", packed_block), ("each", pinned_recovery)):

        def make(rows, *rest, _name=name, _make=module.make_messages, **more):
            counts[_name] += len(rows)
            return _make(rows, *rest, **more)

        monkeypatch.setattr(module, "make_messages", make)
    return counts


def calls_of(path):
    """Calls of functions of engine, records and journal while a log is read into an engine."""
    journal, engine = Journal.open(path, segment_bytes=1 << 16, node_uid=1), Engine(SETTINGS)
    recovery, count = engine.recovery(journal.pinned_records, journal.read), 0

    def noted(frame, event, _argument):
        nonlocal count
        count += event == "call" and frame.f_globals["__name__"].startswith(COUNTED)

    gc.collect()
    gc.disable()  # what a collection ends would be counted too
    sys.setprofile(noted)
    try:
        for _, kind, _, payload, position in journal.recover(RUNS_OF):
            recovery.apply(kind, payload, position)
        recovery.finish()
    finally:
        sys.setprofile(None)
        gc.enable()
        journal.close()
    return count


def calls_for(path, count, size):
    node = life(path)
    batches(node, count, size=size)
    node.close()
    calls_of(path)  # what is remembered of the first time is not counted
    return calls_of(path)


def test_the_calls_of_a_boot_are_those_of_its_records(tmp_path):
    """Twice as many messages in as many batches are not one call more; a batch costs so many."""
    calls = calls_for(tmp_path / "a", 10, BATCH)
    assert calls_for(tmp_path / "b", 10, 2 * BATCH) == calls
    more = calls_for(tmp_path / "c", 20, BATCH) - calls
    assert more <= 10 * CALLS_PER_BATCH, f"{more / 10} calls a batch"


def test_what_is_acknowledged_whole_is_never_opened(tmp_path, made):
    """Most of what a busy log tells of has left when it ends."""
    node = life(tmp_path)
    batches(node, 3)
    out = node.consume(credit=BATCH)
    node.run(
        lambda fx, now_ms: node.engine.acknowledge(1, 1, 0, [(out[0].id, out[-1].id)], now_ms, fx)
    )
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert made["packed"] <= BATCH  # which was delivered
    assert after.waiting() == before


SPECIAL = {
    "time to live": {"ttl_ms": 60_000},
    "priorities": {"priority": 7},
}


@pytest.mark.parametrize("row", SPECIAL.values(), ids=SPECIAL)
def test_special_messages_are_there_as_ever(tmp_path, row):
    """A priority for all of a batch is nothing special, and stands before the others."""
    node = life(tmp_path)
    batches(node, 2)
    batches(node, 2, first=1000, **row)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert after.waiting() == before
    assert len(after.engine.state.queues["orders"].line._expiring.messages) == (
        2 * BATCH if "ttl_ms" in row else 0
    )


def publish_heads(node, first, properties):
    packed = []
    for one in properties:
        head = encode_head(Head(one))
        packed.append((ROW.pack(len(head), 4, 0, 0, 4, 0, 0, 0), head, b"body"))
    pack = memoryview(pack_messages(packed))
    sent = {"count": len(packed), "is_persistent": True, "pack": pack}
    node.run(lambda fx, now_ms: node.engine.send(1, 5, 1, first, now_ms=now_ms, fx=fx, **sent))


def test_messages_of_a_group_keep_their_order_and_others_are_packed(tmp_path, made):
    """The name of a group in a head is looked for, without decoding it."""
    node = life(tmp_path)
    publish_heads(node, 1, [{"Type": "drinks", "n": n} for n in range(BATCH)])
    publish_heads(node, 100, [{"JMSXGroupID": f"g{n % 3}"} for n in range(BATCH)])
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert made == {"packed": 0, "each": BATCH}
    assert after.engine.state.queues["orders"].line.groups.waiting_count == BATCH
    assert after.waiting() == before


def failing(node):
    def read(_position, _size):
        raise StoreFailed(path="disk", detail="Input/output error")

    for chunks in node.engine.state.queues["orders"].line._ready._later.values():
        for block in chunks._chunks:
            block._read = read


def test_a_batch_that_cannot_be_read_back_leaves_its_bodies_in_the_log(tmp_path):
    """The engine is in the middle of a change: who needs a body hears that it cannot be read."""
    node = life(tmp_path)
    publish_heads(node, 1, [{"n": n} for n in range(BATCH)])
    batches(node, 1, first=100)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    failing(after)
    state = after.engine.state
    line = state.queues["orders"].line
    assert [m.head().properties.get("n") for m in line.in_order()][:3] == [0, 1, 2]
    assert state.blocks.paged_count == 2 * BATCH
    assert after.waiting() == before  # the disk answers again
    line.remove_everything()
    assert (state.blocks.paged_count, state.blocks.paged_bytes, state.blocks.live_bytes) == (0,) * 3


def test_in_a_full_memory_a_boot_leaves_the_bodies_in_the_log(tmp_path):
    """What arrives behind the first ones waits there (P8), as before the boot."""
    node = life(tmp_path)
    batches(node, 20)
    before = node.waiting()
    node.close()

    small = type(SETTINGS)(destinations=SETTINGS.destinations, memory_bytes_max=60_000)
    after = JournalNode(tmp_path, small)
    state = after.engine.state
    assert 0 < state.blocks.paged_count < 20 * BATCH
    assert after.waiting() == before


def test_messages_of_an_unopened_batch_are_told_of_to_who_erases(tmp_path):
    """Those that nobody has opened wait too: their bytes must stay."""
    node = life(tmp_path)
    batches(node, 3)
    node.close()
    node = life(tmp_path)
    (block, *_) = node.engine.blocks_in(1)
    assert not block.is_open
    ids = " ".join(f"{block.first_id + n:x}" for n in range(BATCH))

    said = SegmentOperations(node.engine, node.store).operate(
        EraseLog(segment=1, ids=ids), Effects()
    )

    assert said["live"].split() == ids.split()
    node.close()


def test_ids_to_erase_that_are_none_are_refused(tmp_path):
    """A slip of the pen stopped the node."""
    node = life(tmp_path)
    operations = SegmentOperations(node.engine, node.store)

    with pytest.raises(InvalidArgument, match="ids"):
        operations.operate(EraseLog(segment=1, ids="1f xyz"), Effects())
    node.close()


def test_an_unopened_batch_is_pinned_and_found_again(tmp_path, made, stubs):
    """The log turns over while nobody looks at what waits: it is told of as a whole."""
    node = life(tmp_path)
    batches(node, 30)
    churn(node, 40, first=10_000)
    before = node.waiting()
    node.close()
    for first in (20_000, 30_000, 40_000):
        node = life(tmp_path)
        made["packed"] = 0
        churn(node, 160, first=first)
        line = node.engine.state.queues["orders"].line
        assert line.waiting_count == 30 * BATCH
        assert node.store.describe()["pinned_segments"] > 0
        assert (made["packed"], stubs) == (0, [])
        node.close()
    after = JournalNode(tmp_path, SETTINGS)
    assert stubs == []
    assert after.waiting() == before


def test_a_pinned_batch_of_which_some_have_left_is_found_by_each_message(tmp_path, stubs):
    """Its segment tells of more than is there."""
    node = life(tmp_path)
    batches(node, 30)
    node.acknowledge(node.consume(credit=BATCH + 5))
    node.run(lambda fx, now_ms: node.engine.close_consumer(1, 1, now_ms, fx))
    churn(node, 160, first=10_000)
    before = node.waiting()
    node.close()

    after = JournalNode(tmp_path, SETTINGS)
    assert (len(before), len(stubs)) == (28 * BATCH + BATCH - 5, BATCH - 5)
    assert after.waiting() == before


def everything(engine):
    """What an operator or the ring could tell of an engine after its boot."""
    state, found = engine.state, []
    for number, place in sorted(state.places.items()):
        line = place.line
        waiting = [
            (m.id, m.seq, m.payload, m.length, line.history.get(m.id), m.holders)
            for m in line.in_order()
        ]
        waiting += sorted((m.id, line.due_ms(m), line.history.get(m.id)) for m in line.delayed)
        lying = [m.block.position(m.slot) for m in line.everything()]
        found.append((number, waiting, lying, line.waiting_count, line.size_bytes))
    blocks = state.blocks
    segments = sorted(blocks._by_segment)
    of_segments = [(n, blocks.live_bytes_in(n)) for n in segments]
    return found, state.waiting_bytes, blocks.live_bytes, blocks.held_count, of_segments


def booted(path, is_packed):
    journal, engine = Journal.open(path, segment_bytes=1 << 16, node_uid=1), Engine(SETTINGS)
    recovery = engine.recovery(journal.pinned_records, journal.read if is_packed else None)
    for _, kind, _, payload, position in journal.recover():
        recovery.apply(kind, payload, position)
    recovery.finish()
    return journal, engine


def random_life(path, rng):
    """Batches of all sizes come, go out, come back, and leave in pieces."""
    node, sent = life(path), 1
    for handle in (1, 2):
        node.consume(handle, 0, session=1)
    for _ in range(40):
        what = rng.random()
        if what < 0.4:
            size = rng.choice((1, 5, BATCH, 64))
            bodies = [b"%d" % k + bytes(150) for k in range(size)]
            node.publish(sent, bodies, priority=rng.choice((4, 4, 6)))
            sent += size
        elif what < 0.65:
            node.credit(rng.choice((1, 7, 50, 90)), rng.choice((1, 2)))
        else:
            handle = rng.choice((1, 2))
            out = node.credit(0, handle)
            start = rng.randint(0, len(out))
            some = out[start : start + rng.choice((1, 3, 40, 64))]
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
    for _ in range(8):
        node.publish(sent, [bytes(150)] * BATCH)
        sent += BATCH
    churn(node, rng.choice((0, 160)), first=10_000)  # what waits is pinned, or it is not
    node.close()


@pytest.mark.parametrize("seed", range(6))
def test_packed_or_one_by_one_a_boot_finds_the_same(tmp_path, seed):
    """Figures first, while nothing is open; then each message, its place in the log, its order."""
    random_life(tmp_path, random.Random(seed))
    found = []
    for is_packed in (True, False):
        journal, engine = booted(tmp_path, is_packed)
        state = engine.state
        assert list(wrong_totals(state)) == []
        figures = [
            (p.line.waiting_count, p.line.size_bytes, p.line.stays_count)
            for p in state.places.values()
        ]
        sums = state.waiting_bytes, state.blocks.live_bytes, state.blocks.held_count
        after = random.Random(seed).randint(1, 400)
        line = state.queues["orders"].line
        ways = [
            [m.id for m in line.arrivals(after, (), is_newest_first=newest)]
            for newest in (True, False)
        ]
        firsts = sorted(m.id for m in line.firsts())
        found.append((figures, sums, ways, firsts, everything(engine)))
        journal.close()
    assert found[0] == found[1]


def test_a_first_selector_opens_what_waits_in_slices(tmp_path, made, monkeypatch):
    """All batches were opened under one hold: 1.4 s for a million messages."""
    for module in (scan_slices, state):
        monkeypatch.setattr(module, "LOOK_STEPS", 2 * BATCH)
    monkeypatch.setattr(scan_slices, "TURN_STEPS", BATCH)
    monkeypatch.setattr(candidates, "GROWN_AT_ONCE", 2 * BATCH)
    node = life(tmp_path)
    batches(node, 20)
    node.publish(20 * BATCH + 1, [b"urgent"], priority=3)
    node.close()
    again = life(tmp_path)
    opened = [made["packed"]]

    again.consume(selector="JMSPriority = 3")
    opened.append(made["packed"])
    while again.engine.is_behind:
        again.tick()
        opened.append(made["packed"])

    assert max(b - a for a, b in pairwise(opened)) <= 3 * BATCH
    assert made["packed"] >= 20 * BATCH
    (found,) = again.engine.state.connections[1].consumers[1].out.values()
    assert found.priority == 3
    again.close()


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_what_comes_and_goes_while_the_order_grows_is_in_it_or_not(tmp_path, seed):
    """In the end it is what waits, in order; on the way it is that before the frontier."""
    rng = random.Random(seed)
    random_life(tmp_path, rng)
    journal, engine = booted(tmp_path, is_packed=True)
    line = engine.state.queues["orders"].line
    engine.state.take_seqs(1000)
    out, expired = line.take(rng.randint(0, 30), 1 << 20, 0, []), []
    order = line.open_scan()
    assert not order.index
    while order.frontier is not END:
        what, waiting = rng.random(), list(line.in_order())
        if what < 0.3 and waiting:
            out.append(rng.choice(waiting))
            line.take_one(out[-1])
        elif what < 0.5 and waiting:
            out += line.take(rng.randint(1, 40), 1 << 20, 0, expired)
        elif what < 0.7 and out:
            line.put_back(out.pop(rng.randrange(len(out))), 1, 1)
        elif what < 0.75 and waiting:
            line.remove(rng.choice(waiting))
        order.grow(rng.choice((1, 7, 40)))
        keys = [order.key(m) for m in line.in_order()]
        assert list(order.onwards(BEGINNING)) == [key for key in keys if key < order.frontier]
        assert line.waiting_count == len(keys)

    assert order.index == {m.id: m for m in line.in_order()}
    assert line.open_index() is order.index
    journal.close()
