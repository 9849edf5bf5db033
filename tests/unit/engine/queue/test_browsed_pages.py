"""A page of what waits costs what it shows, and is what the whole list would show."""

import random

import pytest

from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import PendingList, behind

NEVER, ANY = 0, 1 << 60


def message(seq, priority):
    return StoredMessage.of(seq + 1000, seq, 0, NEVER, priority, 0, 0, b"x", is_persistent=False)


def some_line(rng):
    """Messages of all priorities, of which some came back and some were taken from the middle."""
    line, seq = PendingList(0, "q"), 1
    for _ in range(rng.randrange(1, 40)):
        count = rng.randrange(1, 6)
        line.add([message(n, rng.choice([0, 4, 4, 9])) for n in range(seq, seq + count)])
        seq += count
        if rng.random() < 0.5:
            taken = line.take(rng.randrange(1, 6), ANY, 0, [])
            for one in taken[: rng.randrange(len(taken) + 1)]:
                line.put_back(one, 1, 0)
        waiting = list(line.in_order())
        if waiting and rng.random() < 0.5:
            line.remove(rng.choice(waiting))
    return line, seq


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_a_page_from_anywhere_is_that_of_the_whole_list(is_newest_first):
    """1,000,000 messages that waited were listed under one hold for a page of one."""
    for seed in range(150):
        line, end = some_line(random.Random(seed))
        whole = list(line.in_order())
        if is_newest_first:
            whole.reverse()
        for after in range(end + 1):
            page = list(line.page(after, is_newest_first=is_newest_first))
            assert page == behind(whole, after, is_newest_first=is_newest_first), (seed, after)


def test_a_page_looks_at_no_more_than_is_taken(monkeypatch):
    """The whole list took 0.05 µs for each that waited."""
    line = PendingList(0, "q")
    line.add([message(n, 4) for n in range(1, 5001)])
    monkeypatch.setattr(PendingList, "in_order", lambda _: pytest.fail("the whole list is made"))

    page = line.page(2500, is_newest_first=True)
    assert [next(page).seq for _ in range(3)] == [2499, 2498, 2497]
