"""What one client counts: its books, its latencies, and those above which it was a pause."""

from bench.mixed_histogram import Histogram
from bench.mixed_words import SLOW_MS, Said

__all__ = ["Tally"]

_SLOW_NS = SLOW_MS * 1_000_000


class Tally:
    """Messages of one sender, in order, once for each copy; see Said."""

    def __init__(self) -> None:
        self.said = Said()
        self._times = Histogram()
        self._next: dict[int, int] = {}
        self._slow: list[tuple[int, int, int, int]] = []

    def arrived(self, copy: int, number: int, due_ns: int, now_ns: int) -> None:
        """One message; numbers begin with 1."""
        said, wanted = self.said, self._next.get(copy, 1)
        if number == wanted:
            said.received += 1
        elif number > wanted:
            said.received += 1
            said.lost += number - wanted
        else:
            said.doubled += 1  # or out of order; then the gap before it was counted as lost
        self._next[copy] = max(number + 1, wanted)
        said.last_ns = now_ns
        self._times.record((now_ns - due_ns) // 1000)
        if now_ns - due_ns > _SLOW_NS:
            self._slowly(due_ns, now_ns)

    def _slowly(self, due_ns: int, now_ns: int) -> None:
        """Messages that were slow at the same time are one pause."""
        if not self._slow or due_ns > self._slow[-1][1]:
            self._slow.append((due_ns, now_ns, due_ns, now_ns))
            return
        begin, _, worst_due, worst_end = self._slow[-1]
        if now_ns - due_ns > worst_end - worst_due:
            worst_due, worst_end = due_ns, now_ns
        self._slow[-1] = min(begin, due_ns), now_ns, worst_due, worst_end

    def told(self) -> Said:
        """What to report; what is told is new the next time."""
        said = self.said
        said.most_us, said.counts = self._times.most_us, self._times.taken()
        said.slow, self._slow = self._slow, []
        return said
