"""Replay: order, rate, count and resuming of what is sent again, without Spark or node."""

import sys

import pytest
from history_records import append, message, open_journal, sent_record

from hms.errors.catalogue import (
    HistoryError,
    QueueFull,
    ReplayConflict,
    SelectorSyntaxError,
    SparkMissing,
    StoreUnavailable,
)
from hms.history import replay, spark
from hms.history.forward import send_chunks
from hms.history.ledger import Entry
from hms.history.pace import Pace, Progress
from hms.history.resend import NOTHING, Chunk
from hms.history.wanted import Wanted


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


class Sender:
    """Takes chunks and entries as a node would; refuses the one at a place."""

    def __init__(self, refuses_at=None):
        self.entry = None
        self.chunks = []
        self.sent_at = []
        self._refuses_at = refuses_at
        self.clock = lambda: 0.0

    def send(self, chunk, entry):
        if len(self.chunks) == self._refuses_at:
            raise QueueFull(kind="queue", destination="q", count=1, limit=1, key="max_messages")
        self.chunks.append(chunk)
        self.sent_at.append(self.clock())
        self.entry = entry


def chunk(first, last, rows, copies=0):
    return Chunk(first, last, rows, copies, 0, ())


BEGUN = Entry("r", "/store", {}, next_offset=10, until_offset=1000)


def test_the_entry_goes_with_every_chunk_and_says_at_last_that_the_run_is_complete():
    """What stands in the ledger is what the node has, whatever dies in between."""
    sender, told = Sender(), []
    chunks = [chunk(12, 40, 20), chunk(41, 80, 0, copies=5), chunk(90, 95, 6)]
    send_chunks(iter(chunks), sender, BEGUN, Pace(), told.append)

    assert sender.chunks == [*chunks, NOTHING]
    done = sender.entry
    assert (done.next_offset, done.sent, done.copies, done.is_done) == (1000, 26, 5, True)
    assert (done.first_offset, done.last_offset) == (12, 95)
    assert [(p.sent, p.done, p.whole) for p in told] == [
        (20, 31, 990),
        (20, 71, 990),
        (26, 86, 990),
    ]


def test_nothing_found_is_no_run():
    """Else the same command would do nothing when there is something at last."""
    sender = Sender()
    send_chunks([], sender, BEGUN, Pace(), None)

    assert sender.entry is None


def test_a_run_goes_on_where_the_ledger_says():
    """Its counts are those of all its attempts."""
    sender = Sender()
    sender.entry = Entry("r", "/store", {}, 50, 1000, sent=30, first_offset=12, last_offset=49)
    send_chunks([chunk(60, 70, 5)], sender, sender.entry, Pace(), None)

    assert (sender.entry.sent, sender.entry.first_offset, sender.entry.last_offset) == (35, 12, 70)


def test_chunks_out_of_order_are_never_sent():
    """The order of the log is what replay promises."""
    with pytest.raises(AssertionError, match="out of order"):
        send_chunks([chunk(20, 30, 1), chunk(25, 40, 1)], Sender(), BEGUN, Pace(), None)


def test_a_refusal_tells_up_to_where_everything_was_confirmed():
    """The operator must know that the same command goes on from there."""
    with pytest.raises(QueueFull) as caught:
        send_chunks([chunk(12, 20, 9), chunk(21, 30, 9)], Sender(1), BEGUN, Pace(), None)

    (note,) = caught.value.__notes__
    assert note.startswith("9 messages up to offset 20 were sent and confirmed.")


@pytest.mark.parametrize(("rate", "size"), [(100, 10), (10, 1), (0.5, 1)])
def test_the_rate_is_kept_from_the_first_message_to_the_last(rate, size):
    """The consumers of today must not drown in the messages of yesterday."""
    clock, sender = Clock(), Sender()
    sender.clock = clock
    chunks = [chunk(100 + i, 100 + i, size) for i in range(20)]
    send_chunks(chunks, sender, BEGUN, Pace(rate, clock, clock.sleep), None)

    assert sender.sent_at[:20] == pytest.approx([i * size / rate for i in range(20)])


def test_a_slow_node_is_not_hurried_more_than_the_rate_allows():
    """Time lost by waiting for confirmations is made up, but never by sleeping backwards."""
    clock = Clock()
    pace = Pace(1, clock, clock.sleep)
    clock.now_s = 50
    pace.await_turn(10)

    assert clock.slept == [0.0]


def test_the_time_that_is_left_follows_from_the_way_that_is_done():
    """Nobody counts the messages of a window before it is replayed: that would read it twice."""
    assert Progress(sent=5, done=25, whole=100, seconds=10).left_s == pytest.approx(30)
    assert Progress(sent=0, done=0, whole=100, seconds=1).left_s is None


def test_an_entry_survives_the_way_through_a_message():
    """It is all that a resumed run knows."""
    entry = Entry("r", "/store", {"into": "a"}, 50, 1000, 30, 2, 1, 12, 49)

    assert Entry.of(entry.message()) == entry
    assert entry.message().properties["run"] == "r"


def test_a_run_is_resumed_with_its_own_options_only():
    """Half a window into one queue and half into another would be nobody's wish."""
    entry = Entry("r", "/store", {"into": "a", "destination": "orders"})

    entry.check("/store", {"into": "a", "destination": "orders"})
    with pytest.raises(ReplayConflict, match="into = a, not b"):
        entry.check("/store", {"into": "b", "destination": "orders"})
    with pytest.raises(ReplayConflict, match="selector = nothing, not x = 1"):
        entry.check("/store", {"into": "a", "destination": "orders", "selector": "x = 1"})
    with pytest.raises(ReplayConflict, match="source = /store, not /other"):
        entry.check("/other", {"into": "a", "destination": "orders"})


def test_the_same_command_is_the_same_run_and_any_other_is_not():
    """Without a name of its own a run that is repeated must still send nothing twice."""
    one = Wanted("again", {"destination": "orders", "from": "1"})
    runs = {
        one.run_of("/store"),
        one.run_of("/other"),
        Wanted("again", {"destination": "orders"}).run_of("/store"),
        Wanted("b", {"destination": "orders", "from": "1"}).run_of("/store"),
        Wanted("again", {"destination": "orders", "from": "1"}, takes_copies=True).run_of("/store"),
    }

    assert len(runs) == 5
    assert Wanted("again", {"from": "1", "destination": "orders"}).run_of("/store") in runs
    assert Wanted("again", {}, run="mine").run_of("/store") == "mine"


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
        ({"run_id": "two words"}, HistoryError),
        ({"into": "again.{day}"}, HistoryError),
        ({"into": "again.{"}, HistoryError),
        ({"into": ""}, HistoryError),
    ],
)
def test_a_wrong_request_is_refused_before_spark_starts(tmp_path, no_spark, arguments, error):
    """Nobody should wait five seconds for a spelling mistake, nor read Spark's trace of it."""
    journal = open_journal(tmp_path / "s")
    append(journal, sent_record([message()]))
    journal.close()
    given = {"address": "tcp://127.0.0.1:1", "destination": "orders", "into": "again"}

    with pytest.raises(error):
        replay(None, tmp_path / "s", **{**given, **arguments})


def test_a_store_that_is_not_there_is_refused_before_spark_starts(tmp_path, no_spark):
    """A mistyped path must not look like an empty history."""
    with pytest.raises(StoreUnavailable):
        replay(None, tmp_path / "no", address="tcp://x", destination="orders", into="again")


def test_a_replay_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    """It needs no Spark, but reads with it; Python's own ImportError came out of a generator."""
    journal = open_journal(tmp_path / "s")
    append(journal, sent_record([message()]))
    journal.close()
    monkeypatch.setattr(sys.modules["hms.history.replay"], "is_spark_there", lambda: False)
    monkeypatch.setattr(spark.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(SparkMissing, match="pyarrow") as caught:
        replay(None, tmp_path / "s", address="tcp://127.0.0.1:1", destination="", into="again")

    assert "[spark]" in caught.value.cure
