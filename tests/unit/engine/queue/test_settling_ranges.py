"""Ranges of a settlement: what they take out, and what they cost (P8)."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from hms.engine.queue.settlement import take_out

IDS = st.lists(st.integers(0, 60), unique=True, max_size=20)
SPANS = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 40)), max_size=8)


class _Line:
    groups = None


class _Place:
    line = _Line()


class _Message:
    def __init__(self, number):
        self.id, self.length = number, 10


class _Consumer:
    place = _Place()
    session = SimpleNamespace(connection=SimpleNamespace(in_flight=None))

    def __init__(self, ids):
        self.out = _Counting((i, _Message(i)) for i in ids)
        self.out_bytes = 10 * len(ids)


class _Counting(dict):
    """Counts how often it is looked into."""

    looks = 0

    def __contains__(self, key):
        self.looks += 1
        return super().__contains__(key)


@given(IDS, SPANS)
def test_ranges_take_what_they_hold_and_leave_the_rest(ids, spans):
    """However wide they are, and however they overlap."""
    ranges = [(first, first + width) for first, width in spans]
    meant = {i for i in ids if any(first <= i <= last for first, last in ranges)}
    consumer = _Consumer(ids)

    found = take_out(consumer, ranges)

    assert {m.id for m in found} == meant
    assert len(found) == len(meant)
    assert list(consumer.out) == [i for i in ids if i not in meant]
    assert consumer.out_bytes == 10 * len(consumer.out)


def test_wide_ranges_that_hold_nothing_are_looked_up():
    """One SETTLE of 60,000 of them held the lock for 15 s with 8,192 messages out."""
    consumer = _Consumer(range(1 << 20, (1 << 20) + 1000))

    assert take_out(consumer, [(1, (1 << 20) - 1)] * 5000) == []
    assert take_out(consumer, [(n * 900, n * 900 + 899) for n in range(1000)]) == []

    assert consumer.out.looks == 0
