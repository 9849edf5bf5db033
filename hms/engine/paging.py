"""Paging: bodies leave memory when it fills up, and are read back from the log (F-C12).

From three quarters of the memory on, a body that was just stored is not kept: the oldest messages,
which are wanted next, stay in memory, and what arrives behind them waits in the log. Heads stay, so
selectors, sorting and limits never need the disk. Who sends a body to a consumer reads it back
without the engine's lock; a dead letter, which the engine itself writes, waits in *limbo* for its
body, still held by the place that it comes from.
"""

from collections.abc import Sequence

from field_buffer.packing import Row
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage
from hms.engine.places import Queue, Subscription
from hms.engine.state import State


def is_full(state: State, size: int = 0) -> bool:
    """Whether bodies should leave memory, with so many bytes more."""
    settings = state.settings
    return state.resident_bytes + size > settings.paging_share * settings.memory_bytes_max


def memory_bytes(state: State, rows: Sequence[Row], can_page: bool) -> int:
    """What messages will take in memory; their bodies too unless the log alone has them then."""
    heads = sum([row[0] for row in rows]) + OVERHEAD_BYTES * len(rows)
    bodies = sum([row[1] for row in rows])
    return heads if can_page and is_full(state, heads + bodies) else heads + bodies


def page_out_new(
    state: State, messages: Sequence[StoredMessage], places: Sequence[Queue | Subscription]
) -> None:
    """Let go of the bodies of messages that were just stored, when memory is full and others are
    delivered before them."""
    if not is_full(state):
        return
    if all(p.is_durable and p.line.waiting_count >= len(messages) for p in places):
        page_out(state, messages)


def page_in(state: State, message: StoredMessage, payload: bytes) -> None:
    """A body is in memory again: its new place in the log cannot be read before it is durable."""
    if message.is_paged:
        holders = message.holders
        count = len(holders) if isinstance(holders, set) else 1
        state.blocks.paged_bytes -= (message.length - message.head_bytes) * count
        message.payload = payload


def page_out(state: State, messages: Sequence[StoredMessage]) -> None:
    """Let go of bodies that the log has; what is retained stays, for whoever subscribes."""
    retained = state.space.place.number if state.space.place is not None else 0
    for message in messages:
        body_bytes = message.length - message.head_bytes
        holders = message.holders
        is_retained = retained in holders if isinstance(holders, set) else retained == holders
        if message.block is not None and holders and not is_retained and not message.is_paged:
            message.payload = message.payload[: message.head_bytes]
            count = len(holders) if isinstance(holders, set) else 1
            state.blocks.paged_bytes += body_bytes * count
