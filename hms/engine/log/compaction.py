"""Compaction: what is live in the oldest segment of the log is told again at the head.

Each message is restated as it is now, at every place that holds it: with its bytes (moving), or
with the place where they lie (pinning), which costs a hundredth. Then what was taken of producers
and transactions is told. After that nothing else in the old segment is needed any more
(docs/decisions/0014, 0048).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from hms.engine.effects import Effects
from hms.engine.log.live_index import (
    RECORD_BYTES,
    SEGMENT_SHIFT,
    Block,
    lies_in,
    offsets_of,
)
from hms.engine.log.paging import page_in
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.session.transactions import open_works
from hms.engine.state import State
from hms.records import (
    Kept,
    Memory,
    PinnedRun,
    ProducerTaken,
    Stay,
    entries,
    memory,
    moved,
    peers,
    pinned,
    pinned_run,
)

CHUNK_BYTES = 256 << 10
STAY_BYTES = 32
MEMORY_BYTES = 8 << 10
TAKEN_BYTES = 40
ENTRIES_PER_RECORD = 100
_OFFSET_MASK = (1 << SEGMENT_SHIFT) - 1


def next_to_move(state: State, segment: int) -> list[StoredMessage]:
    """As many live messages of that segment, or of older ones, as one record should carry."""
    chosen: list[StoredMessage] = []
    room = min(CHUNK_BYTES, state.settings.transaction_bytes_max // 2)
    for message in state.blocks.lying_in(segment):
        room -= _size(message)
        if chosen and room < 0:
            break
        chosen.append(message)
    return chosen


def _size(message: StoredMessage) -> int:
    holders = message.holders
    stays = 1 if isinstance(holders, int) else len(holders)
    return message.length + RECORD_BYTES + stays * STAY_BYTES


def move(
    state: State, segment: int, found: Sequence[tuple[StoredMessage, bytes]], fx: Effects
) -> None:
    """Restate those of the messages, given with head and body, that are still live there."""
    outside = _Outside(state)
    kept: list[Kept] = []
    messages: list[StoredMessage] = []
    payloads: list[bytes] = []
    for message, payload in found:
        if not lies_in(message, segment):
            continue  # it left, or was moved, in between
        stays = outside.stays_of(message)
        if not stays:  # its subscription was removed while it was out
            state.blocks.release(message)
            continue
        page_in(state, message, payload)
        kept.append(_kept(message, stays))
        messages.append(message)
        payloads.append(payload)
    if kept:
        log_position = state.blocks.move(messages, offsets_of(messages, 0))
        fx.records.append(moved(kept, payloads, log_position))


def _kept(message: StoredMessage, stays: list[Stay]) -> Kept:
    return Kept(
        message.id,
        message.seq,
        message.timestamp_ms,
        message.expires_at_ms,
        message.priority,
        message.kind,
        message.head_bytes,
        message.length - message.head_bytes,
        stays,
    )


class _ToldFrom:
    """Notes in which segment the telling of a pinned one begins."""

    def __init__(self, state: State, segment: int) -> None:
        self._state, self._segment = state, segment

    def placed(self, position: int) -> None:
        """Its first record lies here."""
        self._state.blocks.pinned[self._segment] = position >> SEGMENT_SHIFT


def pin(state: State, segment: int, part: int, blocks: Sequence[Block], fx: Effects) -> None:
    """Restate the live messages of these blocks of a segment, which stay where they are."""
    outside = _Outside(state)
    runs = [run for block in blocks if block.live for run in _runs(state, block, outside)]
    if runs:
        log_position = None if part else _ToldFrom(state, segment)
        fx.records.append(pinned(segment, part, runs, log_position))


def _runs(state: State, block: Block, outside: "_Outside") -> list[PinnedRun]:
    """Most messages of a block wait in one queue and were never delivered: told of together, at
    0.15 us a message instead of 2."""
    told = block.waiting_as_told()
    if told is not None:
        number, ids, positions = told
        return [pinned_run(ids, [at & _OFFSET_MASK for at in positions], [Stay(number)])]
    base = block.base
    live = [m for m in block.messages if m is not None]
    offsets = [
        (base + at) & _OFFSET_MASK
        for m, at in zip(block.messages, block.offsets, strict=True)
        if m is not None
    ]
    holder = live[0].holders
    if isinstance(holder, int) and outside.is_plain(holder):
        holders = [m.holders for m in live]
        if holders.count(holder) == len(holders):
            return [pinned_run([m.id for m in live], offsets, [Stay(holder)])]
    return _single_runs(state, live, offsets, outside)


def _single_runs(
    state: State, live: Sequence[StoredMessage], offsets: Sequence[int], outside: "_Outside"
) -> list[PinnedRun]:
    """Each message asked for by itself; neighbours that are at the same places in the same way
    stand together."""
    told: list[tuple[list[Stay], StoredMessage, int]] = []
    for message, offset in zip(live, offsets, strict=True):
        stays = outside.stays_of(message)
        if stays:
            told.append((stays, message, offset))
        else:  # its subscription was removed while it was out
            state.blocks.release(message)
    runs = []
    for stays, group in groupby(told, key=itemgetter(0)):
        alike = list(group)
        ids, places = [m.id for _, m, _ in alike], [at for _, _, at in alike]
        runs.append(pinned_run(ids, places, stays))
    return runs


class _Waiting:
    """What differs at a place from messages that wait there and were never delivered."""

    def __init__(self, state: State, number: int) -> None:
        place = state.places.get(number)
        self.place = place
        self.plain = [Stay(number)]
        self._number, self._undecided = number, state.moves.undecided
        self._out = set() if place is None else _ids_out(state, place)

    @property
    def is_plain(self) -> bool:
        """Nothing differs."""
        place = self.place
        if place is None or self._out or self._undecided:
            return False
        return not (place.line.history or place.line.has_delayed)

    def stay(self, message: StoredMessage) -> Stay | None:
        """The message at this place; None when the place is gone."""
        if self.place is None:
            return None
        line, id_ = self.place.line, message.id
        offer = self._undecided.get((self._number, id_)) if self._undecided else None
        if offer is not None:
            deliveries, attempts = line.history.get(id_, (0, 0))
            peer, number = offer.peer, offer.number
            return Stay(self._number, deliveries, attempts, is_out=True, peer=peer, offer=number)
        is_out, due_ms = id_ in self._out, line.due_ms(message)
        if not (is_out or due_ms or id_ in line.history):
            return self.plain[0]
        deliveries, attempts = line.history.get(id_, (0, 0))
        return Stay(self._number, deliveries, attempts, due_ms, is_out)


class _Outside:
    """Which messages are out, asked once for each place that turns up."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[int, _Waiting] = {}

    def is_plain(self, number: int) -> bool:
        """Nothing that is at the place was ever delivered, is delayed, or is out."""
        return self._at(number).is_plain

    def stays_of(self, message: StoredMessage) -> list[Stay]:
        """The message at each place that holds it and is still there."""
        holders = message.holders
        if isinstance(holders, int):
            at = self._at(holders)
            stay = at.stay(message)
            if stay is at.plain[0]:
                return at.plain  # one list for all of them: neighbours are compared by it
            return [] if stay is None else [stay]
        found = [self._at(number).stay(message) for number in sorted(holders)]
        return [stay for stay in found if stay is not None]

    def _at(self, number: int) -> _Waiting:
        found = self._waiting.get(number)
        if found is None:
            found = self._waiting[number] = _Waiting(self._state, number)
        return found


def _ids_out(state: State, place: Queue | Subscription) -> set[int]:
    """Ids of what a place has out: at its consumers, or in a transaction that is not ended."""
    if not place.line.out_count:
        return set()
    ids = {id_ for consumer in place.holders for id_ in consumer.out}
    for work in open_works(state):
        ids.update(m.id for where, m in work.acknowledged if where is place)
    return ids


def restate(state: State, keys: Sequence[tuple[int, int]], fx: Effects) -> None:
    """Tell again which sends and commits of these were taken, and which offers of other nodes."""
    if state.moves.life:
        fx.records.append(peers(state.moves.memory()))
        known = list(state.moves.directory.values())
        for start in range(0, len(known), ENTRIES_PER_RECORD):
            fx.records.append(entries(known[start : start + ENTRIES_PER_RECORD]))
    for producers in _chunks(state.memories.producers_taken(keys)):
        fx.records.append(memory(Memory(producers=producers)))
    commits = state.memories.commits_taken(keys)
    per_record = MEMORY_BYTES // TAKEN_BYTES
    for start in range(0, len(commits), per_record):
        fx.records.append(memory(Memory(commits=commits[start : start + per_record])))
    if state.memories.has_forgotten:  # what told of those goes with the old segments
        fx.records.append(memory(Memory(is_partial=True)))


def _chunks(producers: Iterable[ProducerTaken]) -> Iterator[list[ProducerTaken]]:
    chunk: list[ProducerTaken] = []
    room = MEMORY_BYTES
    for producer in producers:
        room -= TAKEN_BYTES * (1 + len(producer.recent))
        if chunk and room < 0:
            yield chunk
            chunk, room = [], MEMORY_BYTES
        chunk.append(producer)
    if chunk:
        yield chunk
