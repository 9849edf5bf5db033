"""A page of what waits costs what it shows, and is what the whole list would show."""

import random

import pytest

from hms.engine.groups.assembly import GroupAssembly
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.groups.message_sort import MessageSort, SortSettings, SortType
from hms.engine.messages import StoredMessage
from hms.engine.queue import ordered_entries
from hms.engine.queue.incoming import HEADS, ORDERED
from hms.engine.queue.ordered_entries import OrderedEntries
from hms.engine.queue.pending_list import PendingList
from hms.wire.packed_messages import NODE_ORDER_CLOCK, PROPERTY_GLOBAL_ORDER, Head, encode_head

NEVER, ANY = 0, 1 << 60
SORT = MessageSort(SortSettings("n", SortType.INTEGER, is_descending=True))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Chunks of which some are full."""
    monkeypatch.setattr(ordered_entries, "_CHUNK", 3)


def message(seq, priority, node=None, **properties):
    head = encode_head(Head(properties, node=node or {})) if properties else b""
    size = len(head)
    return StoredMessage.of(
        seq + 1000, seq, 0, NEVER, priority, 0, size, head + b"x", is_persistent=False
    )


def some_message(rng, seq):
    """One that belongs to a group, or an order, or to nothing; with a key, perhaps."""
    keyed = {"n": rng.randrange(4)} if rng.random() < 0.7 else {"other": 1}
    kind, name, node = rng.randrange(4), rng.choice("ab"), None
    if kind == 0:
        keyed["JMSXGroupID"] = name
    elif kind == 1:
        keyed[PROPERTY_GLOBAL_ORDER], node = name, {NODE_ORDER_CLOCK: rng.randrange(9)}
    elif kind == 2:
        keyed |= {"GROUP_NAME": name, "GROUP_NUMBERING": rng.randrange(1, 4)}
        keyed["GROUP_END"] = keyed["GROUP_NUMBERING"] == 3
    return message(seq, rng.choice([0, 4, 4, 9]), node, **keyed)


def some_line(rng, kind):
    """Messages of all priorities, of which some came back and some were taken from the middle; and
    all that wait."""
    line, seq, waiting = PendingList(0, "q"), 1, {}
    if "sorted" in kind:
        line.sort_by(SORT)
    if "groups" in kind:
        line.groups = MessageGroups(line)
        line.groups.gathering = GroupAssembly(-1)
    for _ in range(rng.randrange(1, 40)):
        count = rng.randrange(1, 6)
        new = [some_message(rng, n) for n in range(seq, seq + count)]
        line.add(new, uses=HEADS | ORDERED)
        waiting |= {m.seq: m for m in new}
        seq += count
        if rng.random() < 0.5:
            taken = line.take(rng.randrange(1, 6), ANY, 0, [])
            for one in taken:
                del waiting[one.seq]
            for one in taken[: rng.randrange(len(taken) + 1)]:
                line.put_back(one, 1, 0)
                waiting[one.seq] = one
        if waiting and rng.random() < 0.5:
            line.remove(waiting.pop(rng.choice([*waiting])))
    assert line.waiting_count == len(waiting)
    return line, seq, [*waiting.values()]


def behind(messages, after, *, is_newest_first):
    """What of a whole list is behind a message, or behind its place when it is gone."""
    at = next((i for i, m in enumerate(messages) if m.seq == after), -1)
    if not after or at >= 0:
        return messages[at + 1 :]
    return [m for m in messages if (m.seq < after if is_newest_first else m.seq > after)]


@pytest.mark.parametrize("is_newest_first", [True, False])
@pytest.mark.parametrize("kind", ["plain", "groups", "sorted", "sorted groups"])
def test_a_page_from_anywhere_is_that_of_the_whole_list(is_newest_first, kind):
    """1,000,000 messages that waited were listed under one hold for a page of one; of groups or in
    a sorted line, all were sorted for it."""
    has_held = 0
    for seed in range(60):
        rng = random.Random(seed)
        line, end, waiting = some_line(rng, kind)
        has_held += line.held_count > 0
        out = [some_message(rng, end + n) for n in range(rng.randrange(3))]
        assert list(line.in_order()) == sorted(waiting, key=line.entry)
        here = [*waiting, *out]
        whole = sorted(here, key=line.entry, reverse=is_newest_first)
        arrived = sorted(whole, key=lambda m: m.seq, reverse=is_newest_first)
        for after in range(end + 4):
            place = line.place_of(after, out)
            if "sorted" not in kind:
                page = list(line.page(after, out, is_newest_first=is_newest_first))
                assert page == behind(whole, after, is_newest_first=is_newest_first), (seed, after)
            elif place is not None or not after:
                page = list(line.page(after, out, place, is_newest_first=is_newest_first))
                assert page == behind(whole, after, is_newest_first=is_newest_first), (seed, after)
            else:
                assert after not in [m.seq for m in here]
            since = after if after or not is_newest_first else end + 4
            found = list(line.arrivals(since, out, is_newest_first=is_newest_first))
            rest = [m for m in arrived if (m.seq < since if is_newest_first else m.seq > since)]
            assert found == rest, (seed, after)
        firsts = {m.priority: m for m in sorted(waiting, key=lambda m: -m.seq)}
        assert sorted(m.seq for m in line.firsts()) == sorted(m.seq for m in firsts.values())
    assert ("groups" in kind) == bool(has_held)


@pytest.mark.parametrize("kind", ["plain", "groups", "sorted", "sorted groups"])
def test_a_page_is_right_when_other_keys_decide_from_now_on(kind):
    """A boot sorts what waits in a subscription as it is configured then, groups included."""
    for seed in range(30):
        rng = random.Random(seed)
        line, _, waiting = some_line(rng, kind)
        line.sort_by(None if "sorted" in kind else SORT)
        assert list(line.in_order()) == sorted(waiting, key=line.entry)
        left = []
        while line.waiting_count > line.held_count:
            left += line.take(1, ANY, 0, [])
            line.settle(left[-1])
        assert line.held_count == 0 or line.groups.gathering.count
        assert len(left) + line.waiting_count == len(waiting)


@pytest.mark.parametrize("is_newest_first", [True, False])
@pytest.mark.parametrize("kind", ["plain", "groups", "sorted", "sorted groups"])
def test_a_page_goes_on_where_a_message_stood_that_has_left(is_newest_first, kind):
    """Behind its place in the order of arrival, what stays was shown twice, or not at all."""
    for seed in range(60):
        line, _, waiting = some_line(random.Random(seed), kind)
        whole = sorted(waiting, key=line.entry, reverse=is_newest_first)
        if not whole:
            continue
        one = whole[len(whole) // 2]
        place = line.entry(one)[:-1]
        line.remove(one)
        page = list(line.page(one.seq, (), place, is_newest_first=is_newest_first))
        assert page == whole[len(whole) // 2 + 1 :], seed


def test_a_page_looks_at_no_more_than_is_taken(monkeypatch):
    """The whole list took 0.05 µs for each that waited."""
    line = PendingList(0, "q")
    line.add([message(n, 4) for n in range(1, 5001)])
    monkeypatch.setattr(PendingList, "in_order", lambda _: pytest.fail("the whole list is made"))

    page = line.page(2500, is_newest_first=True)
    assert [next(page).seq for _ in range(3)] == [2499, 2498, 2497]


@pytest.mark.parametrize("kind", ["plain", "groups", "sorted", "sorted groups"])
def test_an_index_that_is_made_in_slices_has_what_waits(kind):
    """500,000 messages were indexed under one hold when some were moved to them, 60 to 830 ms."""
    for seed in range(60):
        rng = random.Random(seed)
        line, seq, waiting = some_line(rng, kind)
        there = {m.id: m for m in waiting}
        if rng.random() < 0.5:
            line.open_scan()
        for _ in range(rng.randrange(40)):
            line.index_some(rng.randrange(1, 3))
            if rng.random() < 0.1:
                line.close_scan()
            if rng.random() < 0.4:
                new = some_message(rng, seq)
                line.add([new], uses=HEADS | ORDERED)
                there[new.id], seq = new, seq + 1
            elif rng.random() < 0.5 and line.waiting_count > line.held_count:
                (one,) = line.take(1, ANY, 0, [])
                if rng.random() < 0.5:
                    line.put_back(one, 1, 0)
                else:
                    line.settle(one)
                    del there[one.id]
            elif there:
                line.remove(there.pop(rng.choice([*there])))
        while line.index_some(2):
            pass
        assert line.open_index() == there, seed


def test_entries_stand_in_order_whatever_comes_and_goes():
    """Chunks are split, emptied and searched at their ends."""
    rng = random.Random(7)
    entries, model = OrderedEntries(), []
    for _ in range(3000):
        if rng.random() < 0.55:
            entry = (rng.choice([-9, -4, 0]), rng.randrange(10_000), message(1, 4))
            if entry[:2] not in [e[:2] for e in model]:
                entries.add(entry)
                model.append(entry)
        elif model and rng.random() < 0.5:
            entries.remove(model.pop(rng.randrange(len(model)))[:-1])
        elif model:
            model.sort(key=lambda e: e[:2])
            assert entries.pop() == model.pop(0)
        model.sort(key=lambda e: e[:2])
        assert entries.snapshot() == model
        assert len(entries) == len(model)
        assert all(entries.chunks)
        place = (rng.choice([-9, -4, 0]), rng.randrange(10_000))
        assert list(entries.onwards(place)) == [e for e in model if e[:2] >= place]
        assert list(entries.backwards(place)) == [e for e in model[::-1] if e[:2] < place]
        assert entries.has(place) == (place in [e[:2] for e in model])
