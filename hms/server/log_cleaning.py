"""Log cleaning: what is live in the log's oldest segments is told again, so that they can leave it.

It is done in small pieces, between the commands of clients. A segment that is mostly live stays
where it is and is only told of (pinned); of others the live messages are appended again. Their
bytes come from memory or are read back without holding the engine's lock (P5); a message that was
acknowledged meanwhile is left out by the engine.

Cleaning keeps step with what is appended: while clients have work for the node it rests between
its pieces, unless a further segment was begun since it was due, or space is wanted (P13).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.log.live_index import Block
from hms.engine.messages import StoredMessage
from hms.engine.xa.retained_state import Key
from hms.server.cleaning_pace import CleaningPace
from hms.server.payloads import Payloads
from hms.store.interface import CleaningStep, Store

RESTATED_AT_ONCE = 256
PINNED_AT_ONCE = 8
"""Blocks of 256 messages."""
Change = Callable[[Callable[[Effects, int], None]], None]


class LogCleaning:
    """One cleaning at a time, on a storage worker that does not lead."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        change: Change,
        bodies: Payloads,
        pace: CleaningPace,
        wait_for_log: Callable[[], None],
    ) -> None:
        """wait_for_log: called between pieces; it returns when the log's backlog is small."""
        self._engine, self._store, self._apply = engine, store, change
        self._wait_for_log = wait_for_log
        self._bodies, self._pace = bodies, pace
        self._running = threading.Lock()
        self._moved: deque[tuple[int, list[StoredMessage]]] = deque()
        self._restated_in = 0
        """The segments from this one on tell of all sends and commits that are remembered."""
        self._emptied_seen = 0

    @property
    def is_due(self) -> bool:
        """There is a segment to clean, or to give back, and nobody does."""
        if self._running.locked():
            self._expect()
            return False
        if self._engine.has_pinned and self._engine.emptied_count != self._emptied_seen:
            return True
        return self._next_step() is not None or self._store.is_turn_due

    def _expect(self) -> None:
        self._store.expect(self._engine.owed_bytes())

    def _next_step(self) -> CleaningStep | None:
        self._expect()
        return self._store.next_to_clean(self._engine)

    def run(self) -> None:
        """Clean as many segments as it is time for; none that began during this run."""
        if not self._running.acquire(blocking=False):
            return
        try:
            self._give_back()
            newest = self._store.newest_segment
            while (step := self._next_step()) is not None and step.segment < newest:
                self._pace.begin()
                self._clean(step)
                self._give_back()
            if self._store.is_turn_due:
                self._change(self._turn)
        finally:
            self._running.release()

    def _change(self, change: Callable[[Effects, int], None]) -> None:
        self._pace.took_lock()
        self._apply(change)

    def _turn(self, fx: Effects, _now_ms: int) -> None:
        """A new segment says that those that are clean are not needed."""
        if self._store.turn():
            self._engine.tell_identity(fx)

    def _give_back(self) -> None:
        """Pinned segments that nothing is live in. Under the lock, behind whose records the log is:
        in the midst of a command a message may have left and come back."""
        seen = self._engine.emptied_count
        if seen != self._emptied_seen:
            self._emptied_seen = seen
            self._change(lambda _fx, _now: self._store.emptied(self._engine.emptied()))

    def _clean(self, step: CleaningStep) -> None:
        """One that is pinned already is given up; one of the log leaves it, and what it tells of
        older ones is told again."""
        segment = step.segment
        if segment in self._pinned_before(self._store.newest_segment):
            self._move_all(segment)
            return
        for older in self._pinned_before(segment):
            if self._store.may_stay(older, self._engine.live_bytes_in(older)):
                self._pin(older)
            else:
                self._move_all(older)
        if step.is_pinned:
            self._pin(segment)
        else:
            self._move_all(segment)
        if segment >= self._restated_in:
            self._restate()
        self._store.cleaned(segment)

    def _pinned_before(self, segment: int) -> list[int]:
        found: list[int] = []
        self._change(lambda _fx, _now: found.extend(self._engine.pinned_before(segment)))
        return found

    def _pin(self, segment: int) -> None:
        """Tell of a segment as it lies."""
        blocks = self._engine.blocks_in(segment)
        self._store.pin([segment])
        part = 0
        for start in range(0, len(blocks), PINNED_AT_ONCE):
            chosen = blocks[start : start + PINNED_AT_ONCE]

            def tell(fx: Effects, _now_ms: int, chosen: list[Block] = chosen) -> None:
                nonlocal part
                self._engine.pin(segment, part, chosen, fx)
                self._spent(fx)
                part += len(fx.records)

            self._change(tell)
            self._rest()
        if not part:
            self._change(lambda _fx, _now: self._forget(segment))

    def _forget(self, segment: int) -> None:
        """All that was live in it has left while it was written anew."""
        if not self._engine.live_bytes_in(segment):
            self._store.emptied([segment])

    def _move_all(self, segment: int) -> None:
        while messages := self._next(segment):
            found = list(zip(messages, self._bodies.of_all(messages), strict=True))
            self._move(segment, found)
            self._moved.append((self._store.last_lsn, messages))
            self._rest()
            self._page_out()

    def _rest(self) -> None:
        """Between two pieces."""
        self._wait_for_log()
        self._pace.rest()

    def _spent(self, fx: Effects) -> None:
        self._store.spent([sum(map(len, record.parts)) for record in fx.records])

    def _restate(self) -> None:
        """Once per turn of the log: later segments tell themselves of what came later."""
        self._restated_in = self._store.newest_segment
        keys: list[tuple[int, int]] = []
        self._change(lambda _fx, _now: keys.extend(self._engine.remembered()))
        for start in range(0, max(1, len(keys)), RESTATED_AT_ONCE):
            self._restate_some(keys[start : start + RESTATED_AT_ONCE])
            self._rest()
        self._restate_branches()

    def _restate_branches(self) -> None:
        """Branches in doubt, each with all that it sent, and decisions."""
        kept: list[list[Key]] = []
        self._change(lambda _fx, _now: kept.extend(self._engine.branches.kept()))
        for keys in kept:
            self._restate_branch(keys)
            self._rest()

    def _restate_branch(self, keys: list[Key]) -> None:
        def restate(fx: Effects, _now_ms: int) -> None:
            self._engine.branches.restate(keys, fx)
            self._spent(fx)

        self._change(restate)

    def _restate_some(self, keys: Sequence[tuple[int, int]]) -> None:
        def restate(fx: Effects, _now_ms: int) -> None:
            self._engine.restate(keys, fx)
            self._spent(fx)

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
            self._spent(fx)

        self._change(move)
