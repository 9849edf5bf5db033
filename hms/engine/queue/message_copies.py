"""Copies: messages that differ from what was published; heads that say where they came from."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from hms.engine.effects import Effects
from hms.engine.log.live_index import hold, offsets_of
from hms.engine.messages import OF_COMMIT, ReadyCopy, StoredMessage, message_id_text
from hms.engine.queue.delays import NOT_DELAYED
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.file_references import watched_as
from hms.engine.state import State
from hms.errors.catalogue import MessageFormatError
from hms.records import Encoded, Placement, Record, Sent, encode_part, sent
from hms.wire.packed_messages import (
    NODE_TOPIC,
    ROW,
    Head,
    Row,
    decode_head,
    encode_head,
    pack_messages,
    slice_payloads,
)


def stamped(
    rows: Sequence[Row], pack: bytes | memoryview, stamp: Mapping[str, str | bool]
) -> tuple[list[Row], memoryview]:
    """A batch whose heads carry the stamp too. A head that cannot be read stays as it is: only its
    reader can judge."""
    new_rows: list[Row] = []
    new: list[tuple[bytes, bytes, bytes]] = []
    for row, payload in zip(rows, slice_payloads(pack, rows), strict=True):
        head = _with_stamp(payload[: row.head_bytes], stamp)
        changed = row._replace(head_bytes=len(head))
        new_rows.append(changed)
        new.append((ROW.pack(*changed), head, payload[row.head_bytes :]))
    return new_rows, memoryview(pack_messages(new))


def _with_stamp(data: bytes, stamp: Mapping[str, str | bool]) -> bytes:
    try:
        head = decode_head(data)
    except MessageFormatError:
        return data
    return encode_head(msgspec.structs.replace(head, node=dict(head.node) | dict(stamp)))


def copy_of(
    message: StoredMessage, id_: int, seq: int, head: Head, *, is_persistent: bool
) -> StoredMessage:
    """The same body under another head."""
    encoded = encode_head(head)
    copy = StoredMessage.of(
        id_,
        seq,
        message.timestamp_ms,
        message.expires_at_ms,
        message.priority,
        message.kind,
        len(encoded),
        encoded + message.payload[message.head_bytes :],
        is_persistent=is_persistent,
    )
    if message.slot == OF_COMMIT:
        copy.slot = OF_COMMIT
    return watched_as(message, copy)


def copies_of(
    state: State,
    messages: Sequence[StoredMessage],
    subscription: Subscription,
    topic: str,
    fx: Effects,
) -> list[StoredMessage]:
    """Copies for the queue of a subscription, with ids of their own and its correlation id."""
    first_id = state.take_ids(len(messages), fx)
    first_seq = state.take_seqs(len(messages))
    copies = []
    for i, message in enumerate(messages):
        head = message.head()
        node = dict(head.node) | {
            NODE_TOPIC: topic,
            "$OriginalMessageID": message_id_text(message.id),
        }
        own = subscription.definition.correlation_id or head.correlation_id
        new = msgspec.structs.replace(head, correlation_id=own, node=node)
        is_persistent = message.is_persistent
        copies.append(
            copy_of(message, first_id + i, first_seq + i, new, is_persistent=is_persistent)
        )
    return copies


def record_of(
    state: State,
    place: Queue | Subscription,
    copies: Sequence[StoredMessage],
    due: Mapping[int, int] = NOT_DELAYED,
) -> Record:
    """The record of persistent copies, whose ids follow one another, at one place; due: those that
    wait for their time, by their ids."""
    hold(copies, place.number)
    log_position = state.blocks.add(copies, offsets_of(copies, ROW.size * len(copies)))
    number = place.number if isinstance(place, Queue) else place.topic.number
    return sent(_sent(number, place.number, copies, due), log_position)


def _sent(
    destination: int, number: int, copies: Sequence[StoredMessage], due: Mapping[int, int]
) -> Sent:
    first = copies[0]
    rows = [_row(m, due.get(m.id, 0)) for m in copies]
    return Sent(
        destination,
        first.id,
        first.timestamp_ms,
        0,
        0,
        0,
        len(copies),
        is_forwarded=True,
        placements=[Placement(number, b"")],
        pack=memoryview(b"".join([*rows, *[m.payload for m in copies]])),
        first_seq=first.seq,
    )


def ready_copy(destination: int, number: int, copy: StoredMessage) -> ReadyCopy:
    """A persistent copy for the place of that number."""
    encoded = encode_part(sent(_sent(destination, number, [copy], NOT_DELAYED)))
    return ReadyCopy(copy, encoded, len(encoded) - copy.length)


def encoded_copies(state: State, number: int, copies: Sequence[ReadyCopy]) -> Encoded | None:
    """The records of those of the copies that the log gets, for a place that holds them from
    now on."""
    told = [copy for copy in copies if copy.record]
    if not told:
        return None
    messages = [copy.message for copy in told]
    begins = accumulate([len(copy.record) for copy in told], initial=0)
    hold(messages, number)
    offsets = [begin + copy.offset for begin, copy in zip(begins, told, strict=False)]
    log_position = state.blocks.add(messages, offsets)
    data = b"".join([copy.record for copy in told])
    return Encoded(len(told), len(told), data, [] if log_position is None else [(log_position, 0)])


def _row(message: StoredMessage, due_ms: int) -> bytes:
    body_bytes = message.length - message.head_bytes
    ttl_ms = message.expires_at_ms - message.timestamp_ms if message.expires_at_ms else 0
    delay_ms = due_ms - message.timestamp_ms if due_ms else 0
    row = (message.head_bytes, body_bytes, ttl_ms, delay_ms, message.priority, message.kind, 0, 0)
    return ROW.pack(*row)
