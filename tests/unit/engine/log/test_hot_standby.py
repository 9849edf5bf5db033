"""A standby that follows a log has the state that a boot reads from it, at every place of it."""

import gc
import random
import shutil
from types import SimpleNamespace

import pytest

from hms.boot import hot_standby
from hms.boot.hot_standby import HURRY_S, HotStandby
from hms.boot.recovering import recover
from hms.engine.engine import Engine
from hms.engine.log.live_index import SEGMENT_SHIFT
from hms.engine.queue.settlement import Return
from hms.store.journal import Journal
from hms.store.journal.confirmed_place import NOTHING, Place
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.segment_manager import LogLimits
from tests.unit.engine.log.test_log_cleaning import SEGMENT, SETTINGS, life
from tests.unit.engine.log.test_packed_boot import everything
from tests.unit.engine.log.test_pinning import churn, files, standing
from tests.unit.engine.log.test_single_sends_boot import singles

TRANSACTED = 11


def durable(node):
    """The place behind the last record that is synced."""
    end = node.store._durable_end
    return Place(end >> SEGMENT_SHIFT, end & ((1 << SEGMENT_SHIFT) - 1))


def follow(hot, node):
    """Until all is applied."""
    while hot.turn(durable(node), is_idle=True):
        pass


@pytest.fixture(autouse=True)
def thawed(frozen_again):
    """A standby freezes what it has applied: not for the tests after this one."""
    yield
    gc.unfreeze()


@pytest.fixture
def now(monkeypatch):
    """A clock of the standby's alone; it goes on by 3 ms at each look."""
    now = [100.0]

    def clock():
        now[0] += 0.003
        return now[0]

    monkeypatch.setattr(hot_standby, "time", SimpleNamespace(monotonic=clock))
    return now


def booted(path, applied):
    """A take-over, or without anything applied a boot; its engine and the records that it read."""
    journal = Journal.open(path, segment_bytes=SEGMENT, node_uid=1)
    engine = Engine(SETTINGS) if applied is None else applied.engine
    before = 0 if applied is None else applied.records
    read = recover(engine, journal, lambda _done, _total: None, applied) - before
    places, *sizes, of_segments = everything(engine)
    found = [(number, waiting, sorted(lying), *more) for number, waiting, lying, *more in places]
    live = [one for one in of_segments if one[1]]
    pinned = {n: at for n, at in engine.state.blocks.pinned.items() if engine._has_live(n)}
    said = engine.dictionary()
    journal.close()
    return (found, sizes, live, pinned, [bytes(part) for part in said.parts]), read


def take_over(path, hot, tmp_path):
    """What a hot take-over has, and how many records it read; as a boot has it."""
    copied = tmp_path / "copied"
    shutil.copytree(path, copied)
    applied = hot.take()
    assert applied is not None
    hot_state, read = booted(path, applied)
    cold_state, all_of_them = booted(copied, None)
    shutil.rmtree(copied)
    assert hot_state == cold_state
    return read, all_of_them


def some_work(node, rng, turn):
    """Something that a client does."""
    first = 1_000_000 + turn * 1000
    match rng.randrange(8):
        case 0:
            standing(node, 10 * rng.randrange(1, 8), first=first)
        case 1:
            churn(node, rng.randrange(1, 12), first=first)
        case 2:
            singles(node, rng.randrange(1, 80), first=first)
        case 3:
            node.publish(first, [b"t"] * 3, ttl_ms=rng.choice((5, 60_000)))
        case 4:
            node.publish(first, [b"%d" % n for n in range(9)], producer=TRANSACTED)
            node.run(lambda fx, now_ms: node.engine.commit(1, 2, 9, turn + 1, now_ms, fx))
        case 5:
            node.credit(rng.randrange(1, 60))
        case 6:
            out = list(node.engine.state.connections[1].consumers[1].out.values())
            rng.shuffle(out)
            node.acknowledge(out[: rng.randrange(len(out) + 1)])
        case _:
            out = node.engine.state.connections[1].consumers[1].out.values()
            spans = [(one.id, one.id) for one in list(out)[: rng.randrange(9)]]
            how = rng.choice((Return.FAILED, Return.RELEASED))
            delay_ms = rng.choice((0, 2, 40, 60_000))
            given = 1, 1, 0, spans, how, node.now_ms
            node.run(lambda fx, _: node.engine.give_back(*given, fx, delay_ms))
    node.now_ms += 3
    if rng.randrange(3) == 0:
        node.tick()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("history_bytes", [0, 1 << 30], ids=["no history", "history"])
def test_what_followed_the_log_is_what_a_boot_reads(tmp_path, seed, history_bytes):
    """Also where segments were pinned or let go meanwhile, and their messages written again."""
    rng, path = random.Random(seed), tmp_path / "store"
    node = life(path, limits=LogLimits(history_bytes_max=history_bytes))
    node.consume(1, 5)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    for turn in range(80):
        some_work(node, rng, turn)
        if not history_bytes or rng.randrange(4) == 0:  # else a segment may be gone before
            follow(hot, node)
    follow(hot, node)
    some_work(node, rng, 500)
    some_work(node, rng, 501)
    node.close()

    read, all_of_them = take_over(path, hot, tmp_path)
    assert read < all_of_them / 2


def test_a_segment_that_was_read_and_pinned_later_is_kept(tmp_path):
    """Else a take-over would give back the space of messages that wait there."""
    path = tmp_path / "store"
    node = life(path)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    follow(hot, node)
    standing(node)
    follow(hot, node)
    before = files(path, "pinned")
    churn(node, 60)
    follow(hot, node)
    pinned = files(path, "pinned")
    assert len(pinned) > len(before)
    node.close()

    take_over(path, hot, tmp_path)
    assert files(path, "pinned") == pinned


def test_a_pinned_segment_that_has_not_got_its_name_yet_is_kept(tmp_path):
    """The primary died before it named it: what waits there was given away like the rest."""
    path = tmp_path / "store"
    node = life(path)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    follow(hot, node)
    standing(node)
    follow(hot, node)
    before = files(path, "pinned")
    churn(node, 60)
    follow(hot, node)
    node.close()
    unnamed = [number for number in files(path, "pinned") if number not in before]
    assert unnamed
    for number in unnamed:
        (path / f"{number:016d}.pinned").rename(path / f"{number:016d}.log")

    take_over(path, hot, tmp_path)


def test_nothing_that_is_not_confirmed_is_applied(tmp_path):
    """It may be cut, and then be in no log (H9)."""
    path = tmp_path / "store"
    node = life(path)
    node.publish(1, [b"confirmed"])
    confirmed = durable(node)
    singles(node, 70, first=100)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    while hot.turn(confirmed, is_idle=True):
        pass
    applied = hot.take()
    node.close()

    assert (applied.read_up_to.number, applied.read_up_to.offset) == confirmed
    place = next(iter(applied.goes_on(None, None).places.values()))
    assert len(place.waiting) == 1
    assert not place.unopened()


def test_a_log_that_was_cut_is_read_anew(tmp_path, caplog):
    """An operator had a copy lead that lacks what was confirmed: nothing of that may stay."""
    path = tmp_path / "store"
    node = life(path)
    node.publish(1, [b"kept"])
    kept = durable(node)
    node.publish(2, [b"given up"])
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    follow(hot, node)
    while hot.turn(kept, is_idle=True):
        pass
    node.close()

    applied = hot.take()
    assert "the log was cut" in caplog.text
    assert (applied.read_up_to.number, applied.read_up_to.offset) == kept


def test_a_standby_that_lost_its_place_in_the_log_reads_all_of_it(tmp_path, caplog):
    """It was too slow: the segment that it reads has left the log, and its file is gone."""
    path = tmp_path / "store"
    node = life(path, limits=LogLimits(history_bytes_max=0))
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    follow(hot, node)
    churn(node, 200)
    node.close()

    assert hot.take() is None
    assert "given up" in caplog.text


def test_it_works_on_while_the_primary_says_much_and_lets_that_go_first(tmp_path, now):
    """P13: a slice, then four times as long nothing."""
    path = tmp_path / "store"
    node = life(path)
    standing(node)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    hot.turn(durable(node), is_idle=False)
    first = hot._applied.records
    assert first

    hot.turn(durable(node), is_idle=False)
    assert hot._applied.records == first
    now[0] += 1
    hot.turn(durable(node), is_idle=False)
    assert hot._applied.records > first
    node.close()


def test_one_that_a_move_waits_for_lets_nothing_go_first(tmp_path, now):
    """Under load a fifth of the time is not enough for a log of a minute; a second later it is as
    before."""
    path = tmp_path / "store"
    node = life(path)
    standing(node)
    hot = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS))
    assert hot.place == NOTHING
    hot.hurry()
    counts = []
    for _ in range(3):
        hot.turn(durable(node), is_idle=False)
        counts.append(hot._applied.records)
    assert counts[0] < counts[1] < counts[2]
    assert NOTHING < hot.place < durable(node)

    now[0] += HURRY_S + 1
    hot.turn(durable(node), is_idle=False)
    last = hot._applied.records
    hot.turn(durable(node), is_idle=False)
    assert hot._applied.records == last
    follow(hot, node)
    assert hot.place == durable(node)
    node.close()


@pytest.mark.parametrize("seed", range(4))
def test_one_that_comes_later_reads_what_is_pinned_before_it_leads(tmp_path, seed, monkeypatch):
    """Of what lies behind the log a take-over read each segment, while clients waited."""
    rng, path, read = random.Random(seed), tmp_path / "store", []
    node = life(path)
    node.consume(1, 5)
    standing(node)
    for turn in range(30):
        some_work(node, rng, turn)
    churn(node, 60, first=1_100_000)
    hot, turn = HotStandby(REAL_DISK, path, lambda: Engine(SETTINGS)), 200
    for _ in range(2000):
        hot.turn(durable(node), is_idle=rng.randrange(3) > 0)
        if turn < 260 and rng.randrange(9) == 0:
            some_work(node, rng, turn := turn + 1)
    while hot.turn(durable(node), is_idle=True) or hot._lacks_pinned:
        pass
    node.close()
    pinned_records = Journal.pinned_records
    monkeypatch.setattr(
        Journal, "pinned_records", lambda *given: read.append(given[1]) or pinned_records(*given)
    )
    copied = tmp_path / "copied"
    shutil.copytree(path, copied)

    hot_state, _ = booted(path, hot.take())
    assert not read
    cold_state, _ = booted(copied, None)
    assert hot_state == cold_state
    assert read, "nothing was pinned"
