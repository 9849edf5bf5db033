"""Source: messages are offered to another node, and what its answer makes of them (moves.py)."""

from collections.abc import Iterator, Sequence

from hms.engine.cluster.cluster_messages import MESSAGES_PER_OFFER_MAX, Moving
from hms.engine.cluster.cluster_messages import Offer as OfferWord
from hms.engine.cluster.moves import Offer
from hms.engine.effects import Effects, ToNode
from hms.engine.log.state_records import write
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue
from hms.engine.queue.dispatch import dispatch, write_ranges
from hms.engine.queue.pending_list import RANGES_PER_RECORD, ids_of
from hms.engine.state import State
from hms.records import Cause, Offered, OfferEnded, Record, RecordType, group, offer_ended, offered

CHUNK_BYTES = 256 << 10
"""What one offer carries, at least one message: it has to be one record at the other node."""
OFFERS_OUT_MAX = 8
"""Offers to one node that wait for their answers."""


def room_for(state: State, peer: int) -> int:
    """How many more offers may go to a node now."""
    return OFFERS_OUT_MAX - len(state.moves.peer(peer).offers)


def offer(
    state: State, peer: int, queue: Queue, messages: Sequence[StoredMessage], fx: Effects
) -> list[tuple[int, int]]:
    """Offer messages that were taken out of their line, in as many offers as their bytes need;
    the number of each, and of how many messages."""
    moves = state.moves
    numbers: list[tuple[int, int]] = []
    for chunk in _chunks(messages):
        number = moves.peer(peer).next_offer
        made = Offer(peer, number, queue, chunk)
        moves.add(made)
        spans = ids_of([m for m in chunk if m.is_persistent])
        store = moves.peer(peer).target
        content = Offered(queue.number, state.now_ms, peer, store, number, spans)
        write(state, offered(content), fx)
        say(state, made, fx)
        numbers.append((number, len(chunk)))
    return numbers


def say(state: State, made: Offer, fx: Effects) -> None:
    """Tell the other node of an offer, for the first time or again."""
    peer = state.moves.peer(made.peer)
    moving = [_moving(state, made.place, m) for m in made.messages]
    word = OfferWord(made.number, peer.own_floor, peer.target, made.place.name, moving)
    made.said_ms = state.now_ms
    fx.must_wait = True
    fx.out.append(ToNode(made.peer, word, made.messages))


def accepted(state: State, made: Offer, fx: Effects) -> None:
    """The other node has them: they are not here any more."""
    state.moves.end(made)
    line = made.place.line
    line.settle_all(made.messages)
    state.waiting_bytes -= sum(m.size_bytes for m in made.messages)
    line.count("moved_out", len(made.messages))
    left = Effects()
    write_ranges(state, made.place, RecordType.DISCARDED, made.messages, left, Cause.MOVED)
    ended = _ended(state, made, is_accepted=True)
    fx.records.append(group(0, 0, 0, state.now_ms, [*left.records, ended]))


def taken_back(state: State, made: Offer, fx: Effects, *, is_redelivered: bool = False) -> None:
    """The other node does not have them: they wait again. is_redelivered: nobody knows for sure."""
    state.moves.end(made)
    line = made.place.line
    for message in made.messages:
        deliveries, attempts = line.history.get(message.id, (0, 0))
        line.put_back(message, deliveries + is_redelivered, attempts)
    made.place.offer_again(made.messages)
    fx.records.append(_ended(state, made, is_accepted=False, is_redelivered=is_redelivered))
    dispatch(state, made.place, fx)


def dropped(state: State, made: Offer, cause: Cause, fx: Effects) -> None:
    """The place is emptied: what was offered is not told again."""
    state.moves.end(made)
    line = made.place.line
    line.settle_all(made.messages)
    state.waiting_bytes -= sum(m.size_bytes for m in made.messages)
    line.count("purged", len(made.messages))
    write_ranges(state, made.place, RecordType.DISCARDED, made.messages, fx, cause)
    fx.records.append(_ended(state, made, is_accepted=False))


def _ended(state: State, made: Offer, *, is_accepted: bool, is_redelivered: bool = False) -> Record:
    content = OfferEnded(made.peer, made.number, is_accepted, state.now_ms, is_redelivered)
    return offer_ended(content)


def _moving(state: State, queue: Queue, message: StoredMessage) -> Moving:
    now_ms, expires_at_ms = state.now_ms, message.expires_at_ms
    deliveries, attempts = queue.line.history.get(message.id, (0, 0))
    return Moving(
        message.id,
        message.timestamp_ms,
        max(0, now_ms - message.timestamp_ms),
        max(1, expires_at_ms - now_ms) if expires_at_ms else 0,
        message.priority,
        message.kind,
        message.head_bytes,
        message.length - message.head_bytes,
        message.is_persistent,
        deliveries,
        attempts,
    )


def _chunks(messages: Sequence[StoredMessage]) -> Iterator[list[StoredMessage]]:
    chunk: list[StoredMessage] = []
    room = CHUNK_BYTES
    most = min(MESSAGES_PER_OFFER_MAX, RANGES_PER_RECORD)
    for message in messages:
        room -= message.length
        if chunk and (room < 0 or len(chunk) == most):
            yield chunk
            chunk, room = [], CHUNK_BYTES - message.length
        chunk.append(message)
    if chunk:
        yield chunk
