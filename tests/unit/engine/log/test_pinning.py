"""Pinning: what is mostly live stays where it lies, however often the log turns over."""

import itertools
import os
import shutil
import time

import pytest

from hms.engine.engine import Engine
from hms.engine.queue.settlement import Return
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.errors.catalogue import StoreCorrupt
from hms.history.events import EventDecoder
from hms.server import log_cleaning
from hms.store.aging import Aging
from hms.store.journal import Journal
from hms.store.journal.reader import list_segments, read_store, verify
from hms.store.journal.salvage import salvage
from hms.store.journal.segment_manager import LogLimits
from hms.store.journal.segment_walk import ERASED_SUFFIX
from hms.store.journal.store_examination import examine
from tests.unit.engine.log.test_log_cleaning import BODY, BUSY, SEGMENT, life

STANDING = 700
FAT = bytes(1800)
TURN = 19
"""Batches of eight that fill four segments and more."""
NO_HISTORY = LogLimits(history_bytes_max=0)


def standing(node, count=STANDING, first=1):
    """Messages that nobody receives, about 560 bytes each in the log."""
    for start in range(0, count, 10):
        node.publish(first + start, [b"%06d" % (start + k) + BODY for k in range(10)])


def churn(node, batches, first=1000):
    """Batches of eight large messages that come and go."""
    for n in range(batches):
        node.publish(first + n * 8, [FAT] * 8, producer=BUSY)
        while out := node.credit(0, BUSY):
            node.acknowledge(out, BUSY)
            node.credit(len(out), BUSY)


def files(path, suffix):
    return sorted(int(file.stem) for file in path.glob(f"0*.{suffix}"))


def test_a_backlog_is_not_written_again_while_the_log_turns_over_ten_times(tmp_path):
    """P13: each turn wrote every waiting message again, and took three quarters of the node."""
    node = life(tmp_path)
    standing(node)
    before, told = node.waiting(), node.store.describe()
    churn(node, 10 * TURN)

    now = node.store.describe()
    appended = now["appended_bytes"] - told["appended_bytes"]
    rewritten = now["rewritten_bytes"] - told["rewritten_bytes"]
    assert appended > 40 * SEGMENT
    assert rewritten < 0.03 * (appended - rewritten)
    assert now["write_amplification"] < 1.03
    assert now["pinned_segments"] >= 5
    assert now["log_bytes"] <= 7 * SEGMENT
    assert node.waiting() == before
    node.close()

    again = life(tmp_path)
    assert again.waiting() == before
    assert again.records_read < 1200
    again.close()


def test_a_pinned_segment_becomes_history_when_its_last_message_has_left(tmp_path):
    """Its space, or its past, must not be kept for ever."""
    node = life(tmp_path)
    standing(node)
    churn(node, 3 * TURN)
    assert files(tmp_path, "pinned")
    node.consume(1, STANDING)
    node.acknowledge(list(node.engine.state.connections[1].consumers[1].out.values()))
    churn(node, 4, first=90_000)

    assert files(tmp_path, "pinned") == []
    assert node.waiting() == []
    assert files(tmp_path, "history")[0] == 1
    node.close()
    assert next(info.number for info in list_segments(tmp_path)) == 1
    again = life(tmp_path)
    assert again.waiting() == []
    again.close()


def test_without_a_history_its_file_is_removed_and_what_is_behind_it_stays(tmp_path):
    """Pinned segments come and go in any order: no reader may take the gaps for damage."""
    node = life(tmp_path, limits=NO_HISTORY)
    standing(node, 350)
    churn(node, 3 * TURN)
    standing(node, 350, first=5001)
    churn(node, 3 * TURN, first=20_000)
    pinned = files(tmp_path, "pinned")
    assert len(pinned) >= 4
    assert pinned[-1] - pinned[0] > len(pinned)
    assert list(verify(tmp_path)) == []
    first = list_segments(tmp_path)[0].number
    assert pinned[0] not in [info.number for info in list_segments(tmp_path)]
    assert first > pinned[-1]
    found = examine(tmp_path)
    assert found.damages == []
    assert found.pinned_segments == len(pinned)
    node.consume(1, 350)
    node.acknowledge(list(node.engine.state.connections[1].consumers[1].out.values()))
    churn(node, 4, first=90_000)
    before = node.waiting()
    node.close()

    assert len(before) == 350
    assert set(files(tmp_path, "pinned")) < set(pinned)
    again = life(tmp_path, limits=NO_HISTORY)
    assert again.waiting() == before
    again.close()


def test_what_is_known_of_a_message_is_told_with_it(tmp_path):
    """Counts, what is out, delays, durable subscribers and dead letters with an old id."""
    node = life(tmp_path)
    for handle, name in ((5, "slow"), (6, "fast")):
        node.consume(handle, 0, "topic", "news", durable=name)
    standing(node, 300)
    for first in range(1, 200, 10):
        node.publish(first, [b"n%d" % n + BODY for n in range(first, first + 10)], producer=2)
    node.acknowledge(node.credit(50, 6), 6)
    node.consume(1, 6)
    spans = [(m.id, m.id) for m in node.engine.state.connections[1].consumers[1].out.values()]

    def back(fx, now):
        node.engine.give_back(1, 1, 0, spans[:2], Return.FAILED, now, fx)
        node.engine.give_back(1, 1, 0, spans[2:3], Return.FAILED, now, fx, 3_600_000)
        node.engine.give_back(1, 1, 0, spans[3:4], Return.REJECTED, now, fx)

    node.run(back)
    churn(node, 4 * TURN)
    churn(node, 4 * TURN, first=50_000)
    dead = node.waiting(DEAD_LETTER_QUEUE)
    delayed = {
        m.id: node.engine.state.queues["orders"].line.due_ms(m)
        for m in node.engine.state.queues["orders"].line.everything()
    }
    assert max(delayed.values()) > node.now_ms
    waiting = node.waiting()
    out = [m.id for m in node.engine.state.connections[1].consumers[1].out.values()]
    node.close()

    for life_number in range(2):
        again = life(tmp_path)
        line = again.engine.state.queues["orders"].line
        counts = {id_: (deliveries, attempts) for id_, _, deliveries, attempts in again.waiting()}
        for id_, _, deliveries, attempts in waiting:
            assert counts[id_] == (deliveries, attempts)
        assert set(out) <= set(counts)
        assert {m.id: line.due_ms(m) for m in line.everything() if line.due_ms(m)} == {
            id_: due_ms for id_, due_ms in delayed.items() if due_ms
        }
        assert again.waiting(DEAD_LETTER_QUEUE) == dead
        assert len(dead) == 1
        lines = {p.name: p.line for p in again.engine.state.places.values()}
        news = {
            name: [bytes(m.payload)[: -len(BODY)] for m in lines[name].in_order()]
            for name in ("slow", "fast")
        }
        assert news["slow"] == [b"n%d" % n for n in range(1, 201)]
        assert news["fast"] == [b"n%d" % n for n in range(51, 201)]
        churn(again, 4 * TURN, first=90_000 + 10_000 * life_number)
        waiting = again.waiting()
        again.close()


@pytest.mark.parametrize("empty", [["last"], ["last", "two"], ["all"]])
def test_empty_messages_are_found_where_they_take_no_byte(tmp_path, empty):
    """A node did not boot whose pinned batch ended with one, and of two it had one doubled."""
    node = life(tmp_path)
    standing(node)
    bodies = [b"" if "all" in empty else b"%d" % n for n in range(6)] + [b""] * len(empty)
    node.publish(STANDING + 1, bodies)
    standing(node, 100, first=STANDING + 20)
    churn(node, 10 * TURN)
    before = node.waiting()
    node.close()

    again = life(tmp_path)
    assert again.store.describe()["pinned_segments"] >= 5
    assert again.waiting() == before
    again.close()


def test_a_segment_with_little_in_it_is_moved_and_costs_at_most_a_third(tmp_path):
    """Otherwise a message of each segment would keep all of them for ever."""
    node = life(tmp_path, limits=NO_HISTORY)
    node.engine.open_producer(1, 7, 1, "queue", "orders")
    for n in range(12):
        node.publish(100 + n, [b"%d" % n + BODY], producer=7)
        churn(node, 5, first=1000 + 200 * n)
    churn(node, 6 * TURN, first=10_000)

    told = node.store.describe()
    assert told["pinned_segments"] == 0
    assert told["write_amplification"] < 4 / 3
    assert len(node.waiting()) == 12
    node.close()


def test_a_thinned_out_segment_is_given_up_at_its_next_turn(tmp_path):
    """Live data takes at most four times its size on the disk."""
    node = life(tmp_path, limits=NO_HISTORY)
    standing(node)
    churn(node, 3 * TURN)
    pinned = files(tmp_path, "pinned")
    node.consume(1, STANDING)
    out = list(node.engine.state.connections[1].consumers[1].out.values())
    node.acknowledge([m for n, m in enumerate(out) if n % 10])
    churn(node, 4 * TURN, first=50_000)

    assert len(pinned) >= 4
    assert len(files(tmp_path, "pinned")) <= 1
    node.close()
    again = life(tmp_path, limits=NO_HISTORY)
    assert len(again.waiting()) == STANDING // 10
    again.close()


def test_no_past_is_pinned_longer_than_the_history_may_keep_it(tmp_path):
    """history_age_s is a promise about what was deleted, too."""
    limits = LogLimits(history_bytes_max=1 << 30, history_age_s=3600)
    node = life(tmp_path, limits=limits)
    standing(node)
    churn(node, 3 * TURN)
    old = files(tmp_path, "pinned")
    assert old
    for number in old:
        os.utime(tmp_path / f"{number:016d}.pinned", (1, 1))
    churn(node, 4 * TURN, first=50_000)

    assert not set(old) & set(files(tmp_path, "pinned"))
    assert len(node.waiting()) == STANDING
    node.close()


def test_history_written_while_the_clock_was_behind_is_as_old_as_the_log_says(tmp_path):
    """A machine without a clock battery writes files of 1970, which went as soon as it was set."""
    node = life(tmp_path, limits=LogLimits(history_age_s=3600))
    hours = itertools.count(0, 3600)
    node.store._segments._aging = Aging(steady_s=lambda: float(next(hours)))
    node.now_ms = int(time.time() * 1000)
    churn(node, 3 * TURN)
    held = set(files(tmp_path, "history"))
    first = min(held)  # of before the node's time was set
    for number in held:
        os.utime(tmp_path / f"{number:016d}.history", (1, 1))
    churn(node, 2 * TURN, first=50_000)

    assert len(held) > 1
    assert set(files(tmp_path, "history")) >= held - {first}
    node.close()


def test_the_history_has_every_event_once_while_segments_are_pinned(tmp_path):
    """PINNED is no event, and a pinned segment is part of the past like any other."""
    node = life(tmp_path)
    standing(node, 300)
    churn(node, 3 * TURN)
    assert files(tmp_path, "pinned")
    node.close()

    decoder = EventDecoder()
    records = read_store(tmp_path)
    events = [e for lsn, kind, _, data, _ in records for e in decoder.decode(lsn, kind, data)]
    assert len([e for e in events if e.event == "sent"]) == 300 + 3 * TURN * 8
    assert len({e.offset for e in events}) == len(events)


def pinned_store(path):
    node = life(path, limits=NO_HISTORY)
    standing(node)
    churn(node, 3 * TURN)
    before = node.waiting()
    node.close()
    return before, path / f"{files(path, 'pinned')[1]:016d}.pinned"


def test_a_pinned_segment_that_is_missing_is_named_and_keeps_the_node_from_booting(tmp_path):
    """Its messages must not be lost silently (P9)."""
    _, file = pinned_store(tmp_path)
    file.rename(tmp_path / "elsewhere")

    with pytest.raises(StoreCorrupt, match=file.stem):
        life(tmp_path)
    (tmp_path / "elsewhere").rename(file)


def test_damage_in_a_pinned_segment_is_found_and_salvaged(tmp_path):
    """What is live in it counts like the log: only what is damaged may be dropped, by name."""
    store = tmp_path / "store"
    before, file = pinned_store(store)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)

    shutil.copytree(store, tmp_path / "copy")
    with pytest.raises(StoreCorrupt, match=file.stem):
        life(tmp_path / "copy")
    assert [int(found.file[-23:-7]) for found in verify(store)] == [int(file.stem)]
    (damage,) = examine(store).damages
    assert damage.is_needed
    done = salvage(store, tmp_path / "saved")
    assert len(done.dropped) == 1
    again = life(tmp_path / "saved", limits=NO_HISTORY)
    kept = again.waiting()
    assert STANDING - 10 <= len(kept) < STANDING
    assert [one for one in before if one in kept] == kept
    churn(again, 3 * TURN, first=90_000)
    assert again.waiting() == kept
    again.close()
    once_more = life(tmp_path / "saved", limits=NO_HISTORY)
    assert once_more.waiting() == kept
    once_more.close()


class _KilledError(Exception):
    """The process ends here."""


def test_a_crash_while_a_pinned_segment_is_told_of_again_loses_nothing(tmp_path, monkeypatch):
    """Its first telling counted as done: with the one before it went what only that one had."""
    monkeypatch.setattr(log_cleaning, "PINNED_AT_ONCE", 1)
    node = life(tmp_path)
    for first in range(1, STANDING, 35):
        node.publish(first, [b"%06d" % (first + k) + bytes(200) for k in range(35)])
    before, again, pin = node.waiting(), set(), Engine.pin

    def killed(engine, segment, part, blocks, fx):
        if part and segment in again:
            raise _KilledError
        if not part and segment in engine.state.blocks.pinned:
            again.add(segment)
        pin(engine, segment, part, blocks, fx)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "pin", killed)
        with pytest.raises(_KilledError):
            churn(node, 10 * TURN)
    node.store.commit()
    node.close()

    for boot in range(12):
        after = life(tmp_path)
        assert after.waiting() == before
        churn(after, TURN // 2, first=500_000 + boot * 10_000)
        after.close()


def test_what_is_live_is_read_from_the_copy_that_takes_its_segments_place(tmp_path):
    """Of a segment with a person's erased messages nothing could be delivered until the boot."""
    node = life(tmp_path, limits=NO_HISTORY)
    standing(node)
    churn(node, 3 * TURN)
    number = files(tmp_path, "pinned")[0]
    block = node.engine.blocks_in(number)[0]
    message = next(m for m in block.lying() if m is not None)
    place = block.position(message.slot), message.length
    assert node.store.read(*place) == message.payload
    file = tmp_path / f"{number:016d}.pinned"
    copy = file.with_suffix(ERASED_SUFFIX)
    shutil.copy(file, copy)

    node.store.adopt(number)
    node.store.maintain()

    assert not copy.exists()
    assert node.store.read(*place) == message.payload
    node.close()


def test_a_delayed_message_that_is_lost_in_a_salvaged_store_keeps_no_node_from_booting(tmp_path):
    """Its time was known still, and nobody to wait for it."""
    store = tmp_path / "store"
    node = life(store, limits=NO_HISTORY)
    node.publish(1, [b"late" + BODY])
    (late,) = node.consume(1, 1)
    span = [(late.id, late.id)]
    node.run(
        lambda fx, now: node.engine.give_back(1, 1, 0, span, Return.FAILED, now, fx, 3_600_000)
    )
    standing(node, first=10)
    churn(node, 3 * TURN)
    position = late.block.position(late.slot)
    node.close()
    file = store / f"{position >> 32:016d}.pinned"
    data = bytearray(file.read_bytes())
    data[position & 0xFFFFFFFF] ^= 0xFF
    file.write_bytes(data)

    assert len(salvage(store, tmp_path / "saved").dropped) == 1
    again = life(tmp_path / "saved", limits=NO_HISTORY)
    assert len(again.waiting()) == STANDING
    assert again.engine.state.queues["orders"].line.delayed_count == 0
    again.close()


def test_a_store_whose_log_is_gone_does_not_begin_anew(tmp_path):
    """It booted empty, and wrote over its history; what is there of it can be salvaged."""
    store = tmp_path / "store"
    node = life(store)
    standing(node)
    churn(node, 3 * TURN)
    before = node.waiting()
    node.close()
    for number in files(store, "log"):
        (store / f"{number:016d}.log").unlink()

    journal = Journal.open(store, segment_bytes=SEGMENT, node_uid=1)
    with pytest.raises(StoreCorrupt, match="missing"):
        list(journal.recover())
    journal.close()
    salvage(store, tmp_path / "saved")
    again = life(tmp_path / "saved")
    assert again.waiting() == before
    again.close()
