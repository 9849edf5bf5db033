"""Paging: bodies leave memory when it fills up, and are read back from the log (F-C12).

From three quarters of the memory on, a body that was just stored is not kept: the oldest messages,
which are wanted next, stay in memory, and what arrives behind them waits in the log. Heads stay, so
selectors, sorting and limits never need the disk. The quota counts bodies and heads, and what a
message costs beside them as long as its body is in memory; for those in the log only there is a
limit of their number (docs/decisions/0022). Who sends a body to a consumer reads it back
without the engine's lock; a dead letter, which the engine itself writes, waits for its
body, still held by the place that it comes from.
"""

from collections.abc import Sequence

from hms.engine.messages import OVERHEAD_BYTES, StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.state import State
from hms.errors.catalogue import NodeFull, NodeQuota
from hms.wire.packed_messages import KIND_FILE, Row


def is_full(state: State, size: int = 0) -> bool:
    """Whether bodies should leave memory, with so many bytes more."""
    settings = state.settings
    return state.resident_bytes + size > settings.paging_share * settings.memory_bytes_max


def memory_bytes(state: State, rows: Sequence[Row], can_page: bool) -> int:
    """What messages will take of the memory quota: those whose bodies the log alone will have only
    their heads. Of these there may be so many; NodeQuota."""
    heads = sum([row.head_bytes for row in rows])
    size = heads + sum([row.body_bytes for row in rows]) + OVERHEAD_BYTES * len(rows)
    if not (can_page and is_full(state, size)):
        return size
    _check_paged(state, len(rows))
    return heads


def _check_paged(state: State, count: int) -> None:
    used, limit = state.blocks.paged_count, state.settings.paged_max
    if used + count > limit:
        raise NodeQuota(count=used, limit=limit, key="max_paged_messages")


def check_memory(
    state: State, head_bytes: int, payload_bytes: int, count: int, can_page: bool
) -> None:
    """Refuse messages for which memory has no room; NodeFull, NodeQuota."""
    settings, size = state.settings, payload_bytes + OVERHEAD_BYTES * count
    limit = settings.memory_bytes_max
    used = state.waiting_bytes - state.blocks.paged_bytes + state.branches.held_bytes
    used += state.shares.quota_bytes
    if can_page and used + size > settings.paging_share * limit:
        _check_paged(state, count)
        size = head_bytes
    if used + size > limit:
        raise NodeFull(used=used, limit=limit, key="max_memory_bytes")


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
        state.blocks.paged(message, -(1 if isinstance(holders, int) else len(holders)))
        message.payload = payload


def page_out(state: State, messages: Sequence[StoredMessage]) -> None:
    """Let go of bodies that the log has; what is retained stays, for later subscribers."""
    retained = state.space.place.number if state.space.place is not None else 0
    scheduled = state.scheduled.number if state.scheduled is not None else -1
    for message in messages:
        if message.holders == scheduled or message.kind == KIND_FILE:
            continue  # it is sent again by the engine itself, or small
        if message.block is None or not message.block.has(message):
            continue  # the log need not have it, or need not any more
        holders = message.holders
        is_retained = retained == holders if isinstance(holders, int) else retained in holders
        if holders and not is_retained and not message.is_paged:
            message.payload = message.payload[: message.head_bytes]
            _share(state, message)
            state.blocks.paged(message, 1 if isinstance(holders, int) else len(holders))


def _share(state: State, message: StoredMessage) -> None:
    """Have what is equal to the last one's only once: most messages of a queue are alike, and of
    the 340 bytes that one takes beside its body this saves 60 and more."""
    head, length = state.paged_like
    if message.payload == head:
        message.payload = head
    if message.length == length:
        message.length = length
    state.paged_like = message.payload, message.length
