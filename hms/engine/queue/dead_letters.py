"""Dead letters: messages that leave their place for a queue that keeps them (F-C8, F-C10).

A letter keeps the message's id, body and properties, and says in its head why it is there, since
when, from where and after how many attempts. It does not expire. What was and what is are one
record, so after a crash the message is in exactly one place.

Whether the queue has a message of that id already is asked of the ids of all that waits there.
Where they have to be learned first, letters wait until ticks have done that (waiting_letters.py);
the log has them where they were until then.
"""

import enum
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from hms.engine.effects import Effects
from hms.engine.log.live_index import hold
from hms.engine.log.paging import page_out_new
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.file_references import watched_as
from hms.engine.queue.pending_list import ids_of
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import AwaitingPageIn, State
from hms.records import Cause, Placement, Record, RecordType, Sent, by_order, group, ranges, sent
from hms.wire.packed_messages import HEAD_BYTES_READ_MAX, ROW, Head, encode_head

RETURN_COUNT = "$ReturnCount"
"""How often a message was a dead letter and was sent back."""
ORIGIN_SHORT = 250
"""So many characters are said of an origin for which there is no room."""
TEXT_MAX = 500
"""So many characters of what a consumer said are kept."""
GROUP_BYTES = 64 << 10
"""Letters are recorded together up to about so many bytes."""


Dead = tuple[StoredMessage, int, bytes]
"""A message, its attempts so far, its head and body."""


class DeadReason(enum.StrEnum):
    """Why a message became a dead letter. The last ones are for applications too: a consumer that
    rejects a message may say which of them it is."""

    REDELIVERY_LIMIT = "REDELIVERY_LIMIT"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    GROUP_INCOMPLETE = "GROUP_INCOMPLETE"
    DESTINATION_DELETED = "DESTINATION_DELETED"
    DESTINATION_UNKNOWN = "DESTINATION_UNKNOWN"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    QUEUE_FULL = "QUEUE_FULL"
    PUT_INHIBITED = "PUT_INHIBITED"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    DECODE_ERROR = "DECODE_ERROR"


class Death(NamedTuple):
    """A reason, and in words what its consumer said."""

    reason: DeadReason
    text: str = ""


_CAUSES = {DeadReason.EXPIRED: Cause.EXPIRED, DeadReason.DESTINATION_DELETED: Cause.DELETED}


def rejected(code: str, text: str) -> Death:
    """What a consumer says of a message that it will never take; a code that is not known here is
    none."""
    known = code in DeadReason.__members__
    return Death(DeadReason(code) if known else DeadReason.REJECTED, text)


def target_of(state: State, place: Queue | Subscription, reason: DeadReason) -> Queue | None:
    """The queue that keeps the letters of a place; None when they are to be discarded."""
    name = place.expired_to if reason is DeadReason.EXPIRED else place.dead_letter
    if not name or (isinstance(place, Queue) and name == place.name):
        return None
    return state.queues.get(name) or state.queues[DEAD_LETTER_QUEUE]


def keep(
    state: State,
    place: Queue | Subscription,
    target: Queue,
    messages: Sequence[tuple[StoredMessage, int]],
    death: Death,
    fx: Effects,
) -> None:
    """Put messages, which have left their line, into the target; each with its attempts so far.
    Those whose body is in the log only come when it was read. The caller dispatches the target."""
    if death.reason is not DeadReason.DESTINATION_DELETED and target.line.is_index_far:
        for message, attempts in messages:
            _hold(message, place, attempts)
            letters = state.awaiting_ids.setdefault(target, deque())
            letters.append(_waiting(state, place, message, attempts, death))
        return
    resident = []
    for message, attempts in messages:
        if message.is_paged:
            _hold(message, place, attempts)
            state.awaiting_page_in.append(_waiting(state, place, message, attempts, death))
        else:
            resident.append((message, attempts, message.payload))
    _keep(state, place, target, resident, death, fx)


def must_wait(state: State, place: Queue | Subscription, message: StoredMessage) -> bool:
    """Whether a message that failed for the last time becomes a letter later than it fails."""
    target = target_of(state, place, DeadReason.REDELIVERY_LIMIT)
    return message.is_paged or (target is not None and target.line.is_index_far)


def _waiting(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    attempts: int,
    death: Death,
) -> AwaitingPageIn:
    return AwaitingPageIn(place, message, attempts, *death, operation=state.operation)


def _hold(message: StoredMessage, place: Queue | Subscription, attempts: int) -> None:
    """The log keeps it where it was until its letter is there, and so is a file that it names. How
    often it failed is told again with it."""
    message.came()
    if attempts:
        place.line.history.setdefault(message.id, (attempts, attempts))
    if message.block is not None:
        message.block.keep(message, place.number)


def _let_go(message: StoredMessage, place: Queue | Subscription) -> None:
    message.went()
    place.line.history.pop(message.id, None)
    if message.block is not None:
        message.block.left(message, place.number)


def ids_known(state: State, waiting: AwaitingPageIn, fx: Effects) -> Queue:
    """A message that waited for the ids of a queue becomes a letter there, or waits for its body
    now; the queue that keeps it."""
    place = waiting.place
    _let_go(waiting.message, place)
    death = Death(DeadReason(waiting.reason), waiting.text)
    target = target_of(state, place, death.reason) or state.queues[DEAD_LETTER_QUEUE]
    before = len(fx.records)
    keep(state, place, target, [(waiting.message, waiting.attempts)], death, fx)
    _say_order(state, waiting, before, fx)
    return target


def _say_order(state: State, waiting: AwaitingPageIn, before: int, fx: Effects) -> None:
    if waiting.operation:
        records, now_ms = fx.records[before:], state.now_ms
        fx.records[before:] = [by_order(one, waiting.operation, now_ms) for one in records]


def body_came(state: State, waiting: AwaitingPageIn, payload: bytes, fx: Effects) -> Queue:
    """A message whose body came becomes a dead letter; the queue that keeps it."""
    place, message, attempts = waiting.place, waiting.message, waiting.attempts
    _let_go(message, place)
    death = Death(DeadReason(waiting.reason), waiting.text)
    target = target_of(state, place, death.reason) or state.queues[DEAD_LETTER_QUEUE]
    before = len(fx.records)
    _keep(state, place, target, [(message, attempts, payload)], death, fx)
    _say_order(state, waiting, before, fx)
    return target


def _keep(
    state: State,
    place: Queue | Subscription,
    target: Queue,
    messages: Sequence[Dead],
    death: Death,
    fx: Effects,
) -> None:
    for chunk in _chunks(messages):
        letters = [_letter(state, place, target, dead, death, fx) for dead in chunk]
        before = target.line.size_bytes
        target.line.add(letters)
        target.offer(letters)
        state.waiting_bytes += target.line.size_bytes - before
        moved = [
            (message, letter)
            for (message, _, _), letter in zip(chunk, letters, strict=True)
            if letter.is_persistent
        ]
        if moved:
            cause = _CAUSES.get(death.reason, Cause.DEAD_LETTERED)
            fx.records.append(_record(state, place, target, moved, cause))
            page_out_new(state, [letter for _, letter in moved], [target])


def _chunks(messages: Sequence[Dead]) -> Iterator[list[Dead]]:
    chunk: list[Dead] = []
    size = 0
    for dead in messages:
        chunk.append(dead)
        size += dead[0].size_bytes
        if size >= GROUP_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _letter(
    state: State,
    place: Queue | Subscription,
    target: Queue,
    dead: Dead,
    death: Death,
    fx: Effects,
) -> StoredMessage:
    message, attempts, payload = dead
    head = message.head()
    node = dict(head.node)
    if death.reason is not DeadReason.DESTINATION_DELETED or "$DeadReason" not in node:
        node |= _story(state, place, death, attempts)  # else it is a letter, and says why
    id_ = message.id
    if may_have(target, id_):
        node["$OriginalMessageID"] = message_id_text(id_)
        id_ = state.take_ids(1, fx)  # another subscription's copy is there already
    encoded = encode_head(msgspec.structs.replace(head, node=node))
    if len(encoded) > HEAD_BYTES_READ_MAX:  # a long topic; the letter must stay readable
        node.pop("$DeadText", None)
        node["$DeadOrigin"] = node["$DeadOrigin"][:ORIGIN_SHORT] + "…"
        encoded = encode_head(msgspec.structs.replace(head, node=node))
    letter = StoredMessage.of(
        id_,
        state.take_seqs(1),
        message.timestamp_ms,
        0,
        message.priority,
        message.kind,
        len(encoded),
        encoded + payload[message.head_bytes :],
        is_persistent=message.is_persistent and place.is_durable,
    )
    return watched_as(message, letter)


def revived(head: Head) -> Head:
    """The head of a letter that is sent back: nothing says any more that it was dead, and how often
    it came back is counted."""
    node = {k: v for k, v in head.node.items() if not k.startswith("$Dead")}
    node[RETURN_COUNT] = node.get(RETURN_COUNT, 0) + 1
    return msgspec.structs.replace(head, node=node)


def is_there(target: Queue | Subscription, message_id: int) -> bool:
    """Whether a message of that id waits at a place, or for its time there."""
    line = target.line
    return message_id in line.open_index() or line.delayed.find(message_id) is not None


def may_have(target: Queue | Subscription, message_id: int) -> bool:
    """Whether a place has a message of that id, or may have: who has what is out, beside its
    consumers, is not known here."""
    line = target.line
    if is_there(target, message_id):
        return True
    if any(message_id in consumer.out for consumer in target.holders):
        return True
    return line.out_count > sum(len(consumer.out) for consumer in target.holders)


def _story(
    state: State, place: Queue | Subscription, death: Death, attempts: int
) -> dict[str, str | int]:
    is_queue = isinstance(place, Queue)
    origin = (
        f"topic:{place.said_topic}" if isinstance(place, Subscription) else f"queue:{place.name}"
    )
    story = told_of(death, origin, state.now_ms, attempts)
    return story if is_queue else story | {"$DeadSubscription": place.name}


def told_of(death: Death, origin: str, now_ms: int, attempts: int) -> dict[str, str | int]:
    """What a letter says in its head; origin: queue:NAME or topic:STRING."""
    story: dict[str, str | int] = {
        "$DeadReason": death.reason.value,
        "$DeadOrigin": origin,
        "$DeadTime": now_ms,
        "$DeadCount": attempts,
    }
    return story | ({"$DeadText": death.text[:TEXT_MAX]} if death.text else {})


def _record(
    state: State,
    place: Queue | Subscription,
    target: Queue,
    moved: list[tuple[StoredMessage, StoredMessage]],
    cause: Cause,
) -> Record:
    arrived = [_sent(state, target, letter) for _, letter in moved]
    spans = ids_of([message for message, _ in moved])
    left = ranges(RecordType.DISCARDED, place.number, state.now_ms, spans, cause)
    return group(0, 0, 0, state.now_ms, [*arrived, left])


def _sent(state: State, target: Queue, letter: StoredMessage) -> Record:
    hold([letter], target.number)
    log_position = state.blocks.add([letter], [ROW.size])
    body_bytes = len(letter.payload) - letter.head_bytes
    row = ROW.pack(letter.head_bytes, body_bytes, 0, 0, letter.priority, letter.kind, 0, 0)
    return sent(
        Sent(
            target.number,
            letter.id,
            letter.timestamp_ms,
            0,
            0,
            0,
            1,
            is_forwarded=True,
            placements=[Placement(target.number, b"")],
            pack=memoryview(row + letter.payload),
            first_seq=letter.seq,
        ),
        log_position,
    )
