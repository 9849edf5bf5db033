"""Runs: messages that came from another node, as the records that tell of them."""

from collections.abc import Iterator, Sequence

from hms.engine.log.live_index import offsets_of
from hms.engine.messages import StoredMessage
from hms.engine.state import State
from hms.records import Placement, Record, Sent, sent
from hms.wire.packed_messages import ROW


def runs(messages: Sequence[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Messages that one SENT record can tell of."""
    run: list[StoredMessage] = []
    for message in messages:
        if run and not follows(run[-1], message):
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def follows(last: StoredMessage, message: StoredMessage) -> bool:
    """Whether one record can tell of both, one behind the other."""
    is_next = message.id == last.id + 1 and message.seq == last.seq + 1
    return is_next and message.timestamp_ms == last.timestamp_ms


def record_of_run(
    state: State, number: int, run: Sequence[StoredMessage], placements: list[Placement]
) -> Record:
    """The record of messages that are held where the placements say."""
    offsets = offsets_of(run, ROW.size * len(run))
    held = [(m, at) for m, at in zip(run, offsets, strict=True) if m.holders]
    log_position = state.blocks.add([m for m, _ in held], [at for _, at in held])
    first = run[0]
    head = Sent(
        number,
        first.id,
        first.timestamp_ms,
        0,
        0,
        0,
        len(run),
        is_forwarded=True,
        placements=placements,
        pack=memoryview(b"".join([*map(_row, run), *[m.payload for m in run]])),
        first_seq=first.seq,
    )
    return sent(head, log_position)


def _row(message: StoredMessage) -> bytes:
    ttl_ms = message.expires_at_ms - message.timestamp_ms if message.expires_at_ms else 0
    body_bytes = message.length - message.head_bytes
    row = (message.head_bytes, body_bytes, ttl_ms, 0, message.priority, message.kind, 0, 0)
    return ROW.pack(*row)
