"""Pauses of the mixed load: what was slow at the same time, and what the probes saw in it.

A pause goes from when the first slow message was due until the last slow one had arrived. It is
explained when its worst message would have been below the limit without the time that the probes
saw lost: to a slow sync, to a machine that stood, or to a thread that was ready to run and had no
processor while others had one. Of the threads, those of the node and of the kinds that were slow,
the one counts that waited longest, so that many short waits beside each other do not explain a long
one; times that lie over each other count once.
"""

from collections.abc import Iterable

import msgspec

from bench.mixed_probe import OWN_LOAD, Glance
from bench.mixed_words import SLOW_MS

__all__ = ["Pause", "Pauses"]

_MS = 1_000_000
_KEPT_NS = 120_000_000_000
"""How long what a probe saw may still explain a pause that nobody has told of."""
Span = tuple[int, int]


class Pause(msgspec.Struct, kw_only=True):
    """A pause and what explains it; lost_ms: by cause; who: the thread that had no processor."""

    begin_ns: int
    end_ns: int
    worst: Span
    kinds: set[str]
    lost_ms: dict[str, float] = {}
    explained_ms: float = 0
    who: str = ""

    @property
    def worst_ms(self) -> float:
        """The longest latency in it."""
        return (self.worst[1] - self.worst[0]) / _MS

    @property
    def is_explained(self) -> bool:
        """Whether less than the limit is left of the worst latency."""
        return self.worst_ms - self.explained_ms <= SLOW_MS

    def join(self, other: "Pause") -> None:
        """It was the same time."""
        self.begin_ns = min(self.begin_ns, other.begin_ns)
        self.end_ns = max(self.end_ns, other.end_ns)
        self.worst = max(self.worst, other.worst, key=lambda span: span[1] - span[0])
        self.kinds |= other.kinds

    def _concerns(self, who: str) -> bool:
        return not who or who.partition(" ")[0] in {"node", *self.kinds}

    def explain(self, glances: Iterable[Glance]) -> None:
        """From the pause's begin until its worst message arrived."""
        seen = self.begin_ns, self.worst[1]
        spans: dict[tuple[str, str], list[Span]] = {}
        for glance in glances:
            span = max(seen[0], glance.begin_ns), min(seen[1], glance.end_ns)
            if span[0] < span[1] and self._concerns(glance.who):
                spans.setdefault((glance.cause, glance.who), []).append(span)
        longest: dict[str, list[Span]] = {}
        for (cause, who), found in sorted(spans.items(), key=lambda one: covered_ms(one[1])):
            self.lost_ms[cause], longest[cause] = covered_ms(found), found
            self.who = who or self.who
        longest.pop(OWN_LOAD, None)
        self.explained_ms = covered_ms(span for found in longest.values() for span in found)


def covered_ms(spans: Iterable[Span]) -> float:
    """How much time the spans cover together."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total / _MS


class Pauses:
    """All pauses so far. What the probes saw is kept only as long as a pause may need it."""

    def __init__(self) -> None:
        self.done: list[Pause] = []
        self._open: list[Pause] = []
        self._glances: list[Glance] = []

    def saw(self, glance: Glance) -> None:
        """A probe's word."""
        self._glances.append(glance)

    def slow(self, kind: str, begin_ns: int, end_ns: int, worst: Span) -> None:
        """Slow messages of a kind; those that overlap with it are one pause with it."""
        made = Pause(begin_ns=begin_ns, end_ns=end_ns, worst=worst, kinds={kind})
        apart = []
        for pause in self._open:
            if pause.begin_ns <= made.end_ns and made.begin_ns <= pause.end_ns:
                made.join(pause)
            else:
                apart.append(pause)
        self._open = [*apart, made]

    def settle(self, before_ns: int) -> list[Pause]:
        """Explain those that ended before; they are given, and what they needed is forgotten."""
        ended = [pause for pause in self._open if pause.end_ns < before_ns]
        self._open = [pause for pause in self._open if pause.end_ns >= before_ns]
        for pause in ended:
            pause.explain(self._glances)
        ended.sort(key=lambda pause: pause.begin_ns)
        self.done += ended
        oldest = min([before_ns, *(pause.begin_ns for pause in self._open)])
        self._glances = [one for one in self._glances if one.end_ns >= oldest - _KEPT_NS]
        return ended

    def forget(self) -> None:
        """What was until now is not of the run."""
        self.done, self._open = [], []
