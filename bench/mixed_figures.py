"""What the mixed load is told by: books, minutes, and what they come to together."""

import statistics
from collections.abc import Sequence

import msgspec

from bench.mixed_pauses import Pause
from bench.mixed_words import KINDS, Said

__all__ = ["Books", "Minute", "Outcome", "Summary", "faults", "summary"]


class Books(msgspec.Struct, kw_only=True):
    """Messages of one kind; copies: how often each arrives."""

    copies: int
    sent: int = 0
    received: int = 0
    lost: int = 0
    doubled: int = 0

    def add(self, said: Said) -> None:
        """The totals of one client."""
        self.sent += said.sent
        self.received += said.received
        self.lost += said.lost
        self.doubled += said.doubled

    @property
    def missing(self) -> int:
        """How many have not arrived; the totals of two clients are not of the same moment."""
        return max(0, self.sent * self.copies - self.received)

    @property
    def is_balanced(self) -> bool:
        """Whether each message arrived once, in order."""
        return self.received == self.sent * self.copies and not (self.lost or self.doubled)


class Minute(msgspec.Struct, kw_only=True):
    """One row. rates: messages a second that arrived; cores: busy processors, of the node, of the
    clients and probes, and of all others on the machine; log_mib: the store with its history."""

    number: int
    seconds: float
    rates: dict[str, float]
    times_ms: dict[str, dict[str, float]]
    cores: dict[str, float]
    node_rss_mib: float
    clients_rss_mib: float
    log_mib: float
    waiting: int


class Summary(msgspec.Struct, kw_only=True):
    """First and last third. p999_ms: medians of the minutes' p99.9, by kind; rss_mib: of the node,
    without the first minute; slope_kib: what it grew a minute, as a straight line fits it best."""

    p999_ms: dict[str, tuple[float, float]]
    rss_mib: tuple[float, float]
    clients_rss_mib: tuple[float, float]
    slope_kib: float


class Outcome(msgspec.Struct, kw_only=True):
    """All of a run; maximum 0: it was not looked for. faults: why the run is not good."""

    maximum: float = 0
    rate: float = 0
    minutes: list[Minute] = []
    pauses: list[Pause] = []
    books: dict[str, Books] = {}
    summary: Summary | None = None
    faults: list[str] = []


def faults(books: dict[str, Books], pauses: Sequence[Pause]) -> list[str]:
    """Why the run is not good."""
    found = [
        f"{name}: {one.sent:,} sent, {one.received:,} of {one.sent * one.copies:,} arrived,"
        f" {one.lost:,} left out, {one.doubled:,} doubled or out of order"
        for name, one in books.items()
        if not one.is_balanced
    ]
    unexplained = sum(not pause.is_explained for pause in pauses)
    return found + ([f"{unexplained} pauses are unexplained"] if unexplained else [])


def summary(minutes: Sequence[Minute]) -> Summary:
    """See Summary; of one minute both thirds are that minute."""
    steady = minutes[1:] or minutes
    return Summary(
        p999_ms={name: _thirds([one.times_ms[name]["p99.9"] for one in minutes]) for name in KINDS},
        rss_mib=_thirds([one.node_rss_mib for one in steady]),
        clients_rss_mib=_thirds([one.clients_rss_mib for one in steady]),
        slope_kib=_slope([one.node_rss_mib * 1024 for one in steady]),
    )


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    part = max(1, len(values) // 3)
    return statistics.median(values[:part]), statistics.median(values[-part:])


def _slope(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    return statistics.linear_regression(range(len(values)), values).slope
