"""Moving: what is live in the oldest segment of the log is written again at the head.

Each message is restated as it is now, at every place that holds it; then what was taken of
producers and transactions. After that nothing in the old segment is needed any more
(docs/decisions/0014).
"""

from collections.abc import Iterable, Iterator, Sequence

from hms.engine.effects import Effects
from hms.engine.log.live_index import RECORD_BYTES, lies_in, offsets_of
from hms.engine.log.paging import page_in
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.session.transactions import open_works
from hms.engine.state import State
from hms.records import Kept, Memory, ProducerTaken, Stay, entries, memory, moved, peers

CHUNK_BYTES = 256 << 10
STAY_BYTES = 32
MEMORY_BYTES = 8 << 10
TAKEN_BYTES = 40
ENTRIES_PER_RECORD = 100


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
    stays = len(holders) if isinstance(holders, set) else 1
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
        landing = state.blocks.move(messages, offsets_of(messages, 0))
        fx.records.append(moved(kept, payloads, landing))


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


class _Outside:
    """Which messages are out, asked once for each place that turns up."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._out: dict[int, set[int]] = {}

    def stays_of(self, message: StoredMessage) -> list[Stay]:
        """The message at each place that holds it and is still there."""
        holders = message.holders
        numbers = sorted(holders) if isinstance(holders, set) else [holders]
        places = [self._state.places.get(number) for number in numbers]
        return [self._stay(place, message) for place in places if place is not None]

    def _stay(self, place: Queue | Subscription, message: StoredMessage) -> Stay:
        line = place.line
        deliveries, attempts = line.history.get(message.id, (0, 0))
        offer = self._state.moves.undecided.get((place.number, message.id))
        if offer is not None:
            is_out, peer, number = True, offer.peer, offer.number
            return Stay(place.number, deliveries, attempts, 0, is_out, peer, number)
        is_out = message.id in self._out_of(place)
        return Stay(place.number, deliveries, attempts, line.due_ms(message), is_out)

    def _out_of(self, place: Queue | Subscription) -> set[int]:
        found = self._out.get(place.number)
        if found is None:
            found = self._out[place.number] = _ids_out(self._state, place)
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
