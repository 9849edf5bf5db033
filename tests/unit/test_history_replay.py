"""Replay: order, rate and count of what is sent again, without Spark and without a node."""

import sys
from typing import NamedTuple

import pytest
from history_records import append, message, open_journal, sent_record

from field_buffer.catalogue import (
    ConnectionLost,
    HistoryError,
    SelectorSyntaxError,
    StoreUnavailable,
)
from hms.history import replay
from hms.history.replay import BATCH_MAX, send_rows


class Sent(NamedTuple):
    """A row as replay reads it."""

    offset: int
    body: bytes = b""


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now_s = 0.0
        self.slept = []

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


def rows(count, first=1):
    return [Sent(first + i) for i in range(count)]


def test_every_row_is_sent_once_and_in_order():
    """A replay that mixes up or loses messages is worse than none."""
    sent = []
    report = send_rows(iter(rows(BATCH_MAX + 5)), sent.extend)

    assert sent == rows(BATCH_MAX + 5)
    assert (report.rows, report.sent) == (BATCH_MAX + 5, BATCH_MAX + 5)
    assert (report.first_offset, report.last_offset) == (1, BATCH_MAX + 5)


def test_nothing_found_is_a_report_of_nothing():
    """An empty window is an answer, no failure."""
    report = send_rows([], lambda _: pytest.fail("nothing to send"))

    assert (report.rows, report.first_offset, report.last_offset) == (0, None, None)


@pytest.mark.parametrize(("rate", "seconds"), [(100, 9.9), (10, 99.9), (0.5, 1998)])
def test_the_rate_is_kept_from_the_first_message_to_the_last(rate, seconds):
    """The consumers of today must not drown in the messages of yesterday."""
    clock, sent_at = Clock(), []
    send_rows(
        rows(1000), lambda batch: sent_at.append((clock(), len(batch))), rate, clock, clock.sleep
    )

    assert clock.now_s == pytest.approx(seconds)
    assert all(at == pytest.approx(i * size / rate) for i, (at, size) in enumerate(sent_at))


def test_a_slow_node_is_not_hurried_more_than_the_rate_allows():
    """Time lost by waiting for confirmations is made up, but never by sleeping backwards."""
    clock = Clock()
    send_rows(rows(10), lambda _: clock.sleep(5), rate=1, clock=clock, sleep=clock.sleep)

    assert min(clock.slept) >= 0


def test_large_bodies_are_sent_in_smaller_batches(monkeypatch):
    """Two thousand messages of a megabyte would be too much for this process and for the node."""
    monkeypatch.setattr(sys.modules["hms.history.replay"], "BATCH_BYTES", 100)
    sizes = []
    send_rows([Sent(i, bytes(60)) for i in range(5)], lambda batch: sizes.append(len(batch)))

    assert sizes == [2, 2, 1]


def test_a_failure_tells_up_to_where_everything_was_confirmed():
    """Who starts again after it must know what the first run sent already."""
    calls = []

    def send(batch):
        if calls:
            raise ConnectionLost(address="tcp://x", reason="test")
        calls.append(batch)

    with pytest.raises(ConnectionLost) as caught:
        send_rows(rows(BATCH_MAX + 1, first=7), send)

    assert caught.value.__notes__ == [
        f"{BATCH_MAX} messages up to offset {BATCH_MAX + 6} were sent and confirmed before."
    ]


def test_rows_out_of_order_are_never_sent():
    """The order of the log is what replay promises."""
    with pytest.raises(AssertionError, match="out of order"):
        send_rows([Sent(2), Sent(1)], lambda _: None)


@pytest.fixture
def no_spark(monkeypatch):
    """Starting Spark is a fault of the test."""
    # The package gives the module's name to its function.
    module = sys.modules["hms.history.replay"]
    monkeypatch.setattr(module, "borrowed_session", lambda *_: pytest.fail("started"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"selector": "a ="}, SelectorSyntaxError),
        ({"from_": "soon"}, HistoryError),
        ({"rate": 0}, HistoryError),
        ({"rate": -1}, HistoryError),
    ],
)
def test_a_wrong_request_is_refused_before_spark_starts(tmp_path, no_spark, arguments, error):
    """Nobody should wait five seconds for a spelling mistake, nor read Spark's trace of it."""
    journal = open_journal(tmp_path / "s")
    append(journal, sent_record([message()]))
    journal.close()

    with pytest.raises(error):
        replay(
            None,
            tmp_path / "s",
            address="tcp://127.0.0.1:1",
            destination="orders",
            into="again",
            **arguments,
        )


def test_a_store_that_is_not_there_is_refused_before_spark_starts(tmp_path, no_spark):
    """A mistyped path must not look like an empty history."""
    with pytest.raises(StoreUnavailable):
        replay(None, tmp_path / "no", address="tcp://x", destination="orders", into="again")
