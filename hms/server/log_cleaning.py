"""Log cleaning: the log's oldest segments are emptied, so that the store can let them go.

What is live in the oldest segment is appended again in small pieces, between the commands of
clients. The bytes come from memory or are read back without holding the engine's lock (P5); a
message that was acknowledged meanwhile is left out by the engine.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.messages import StoredMessage
from hms.engine.xa.retained_state import Key
from hms.server.payloads import Payloads
from hms.store.interface import Store

RESTATED_AT_ONCE = 256
Change = Callable[[Callable[[Effects, int], None]], None]


class LogCleaning:
    """One cleaning at a time, on a storage worker that does not lead."""

    def __init__(self, engine: Engine, store: Store, change: Change, bodies: Payloads) -> None:
        self._engine, self._store, self._change = engine, store, change
        self._bodies = bodies
        self._running = threading.Lock()
        self._moved: deque[tuple[int, list[StoredMessage]]] = deque()
        self._restated_in = 0
        """The segments from this one on tell of all sends and commits that are remembered."""
        self.wait_for_log: Callable[[], None] = lambda: None
        """Called between pieces: returns when the log's backlog is small."""

    @property
    def is_due(self) -> bool:
        """There is a segment to clean, and nobody does."""
        if self._running.locked():
            self._expect()
            return False
        return self._next_segment() is not None or self._store.is_turn_due

    def _expect(self) -> None:
        oldest = self._engine.oldest_segment(self._store.newest_segment)
        self._store.expect(self._engine.owed_bytes(), oldest)

    def _next_segment(self) -> int | None:
        self._expect()
        return self._store.next_to_clean(self._engine.live_bytes())

    def run(self) -> None:
        """Clean as many segments as it is time for; none that began during this run."""
        if not self._running.acquire(blocking=False):
            return
        try:
            newest = self._store.newest_segment
            while (segment := self._next_segment()) is not None and segment < newest:
                self._clean(segment)
            if self._store.is_turn_due:
                self._change(self._turn)
        finally:
            self._running.release()

    def _turn(self, fx: Effects, _now_ms: int) -> None:
        """A new segment says that those that are clean are not needed."""
        if self._store.turn():
            self._engine.tell_identity(fx)

    def _clean(self, segment: int) -> None:
        while messages := self._next(segment):
            found = [(message, self._bodies.of(message)) for message in messages]
            self._move(segment, found)
            self._moved.append((self._store.last_lsn, messages))
            self.wait_for_log()
            self._page_out()
        if segment >= self._restated_in:
            self._restate()
        self._store.cleaned(segment)

    def _restate(self) -> None:
        """Once per turn of the ring: later segments tell themselves of what came later."""
        self._restated_in = self._store.newest_segment
        keys: list[tuple[int, int]] = []
        self._change(lambda _fx, _now: keys.extend(self._engine.remembered()))
        for start in range(0, max(1, len(keys)), RESTATED_AT_ONCE):
            self._restate_some(keys[start : start + RESTATED_AT_ONCE])
            self.wait_for_log()
        self._restate_branches()

    def _restate_branches(self) -> None:
        """Branches in doubt, each with all that it sent, and decisions."""
        kept: list[list[Key]] = []
        self._change(lambda _fx, _now: kept.extend(self._engine.branches.kept()))
        for keys in kept:
            self._restate_branch(keys)
            self.wait_for_log()

    def _restate_branch(self, keys: list[Key]) -> None:
        def restate(fx: Effects, _now_ms: int) -> None:
            self._engine.branches.restate(keys, fx)
            self._store.spent(_size(fx))

        self._change(restate)

    def _restate_some(self, keys: Sequence[tuple[int, int]]) -> None:
        def restate(fx: Effects, _now_ms: int) -> None:
            self._engine.restate(keys, fx)
            self._store.spent(_size(fx))

        self._change(restate)

    def _page_out(self) -> None:
        """Bodies that were read to be moved leave memory again, once they can be read back."""
        while self._moved and self._moved[0][0] <= self._store.durable_lsn:
            self._page_out_some(self._moved.popleft()[1])

    def _page_out_some(self, messages: Sequence[StoredMessage]) -> None:
        self._change(lambda _fx, _now: self._engine.moved_safely(messages))

    def _next(self, segment: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        self._change(lambda _fx, _now: found.extend(self._engine.next_to_move(segment)))
        return found

    def _move(self, segment: int, found: Sequence[tuple[StoredMessage, bytes]]) -> None:
        def move(fx: Effects, now_ms: int) -> None:
            self._engine.move(segment, found, now_ms, fx)
            self._store.spent(_size(fx))

        self._change(move)


def _size(fx: Effects) -> int:
    """About what the records take in the log."""
    return sum(len(part) for record in fx.records for part in record.parts)
