"""Selectors of those that a batch is published to are asked in slices, before its command."""

from hms.engine.effects import Effects
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import make_messages
from hms.engine.queue.incoming import Incoming, check_values
from hms.engine.queue.sender_identity import with_sender
from hms.engine.session.session_objects import PendingBatch, Producer
from hms.engine.state import State
from hms.engine.topic.answers import Answers
from hms.engine.topic.audience import check_publication
from hms.engine.topic.publication import is_told_the_topic, stamped_for
from hms.errors.tree import HmsError
from hms.records import MESSAGES_PER_BATCH_MAX
from hms.wire.packed_messages import slice_payloads, unpack_rows

__all__ = ["ask_batch", "ask_send", "ask_waiting"]


def ask_send(
    state: State,
    producer: Producer,
    first_sequence: int,
    count: int,
    is_persistent: bool,
    pack: memoryview,
    fx: Effects,
) -> bool:
    """Before a send that is no part of a transaction: a slice, and whether it has to come again.
    What asks few is left to the send."""
    answers = producer.answers
    if answers is None or not answers.are_of(first_sequence, pack, count):
        producer.answers, memory = None, producer.memory
        is_known = first_sequence <= memory.forgotten or first_sequence in memory.recent
        if is_known or not 0 < count <= MESSAGES_PER_BATCH_MAX:
            return False
        audience = state.space.audience(producer.topic, state.now_ms)
        if not audience.choices or audience.price_of(count, len(pack)) <= LOOK_STEPS:
            return False
        batch = check_values(pack, unpack_rows(pack, count), state.settings.message_bytes_max)
        if not _has_room(state, producer, batch, is_persistent):
            return False
        sender = producer.session.connection.sender
        batch = with_sender(batch, sender) if sender else batch
        first_id = state.take_ids(count, fx)
        pending = PendingBatch(producer, first_id, count, state.now_ms, is_persistent, batch.pack)
        answers = producer.answers = _begun(state, pending, batch, first_sequence, pack)
    audience = state.space.audience(producer.topic, state.now_ms)
    return answers.ask(audience, LOOK_STEPS) <= 0


def ask_waiting(
    state: State,
    producer: Producer,
    incoming: Incoming,
    answers: Answers | None,
    fx: Effects,
    *,
    is_persistent: bool,
) -> tuple[Answers | None, bool]:
    """The same before a send that has waited for room; what is known then, and whether it has to
    come again. answers: of its slices so far."""
    audience, count = state.space.audience(producer.topic, state.now_ms), len(incoming.rows)
    if answers is None:
        if audience.price_of(count, len(incoming.pack)) <= LOOK_STEPS:
            return None, False
        first_id = state.take_ids(count, fx)
        pending = PendingBatch(
            producer, first_id, count, state.now_ms, is_persistent, incoming.pack
        )
        answers = _begun(state, pending, incoming, 0, incoming.pack)
    return answers, answers.ask(audience, LOOK_STEPS) <= 0


def ask_batch(state: State, batch: PendingBatch, incoming: Incoming, steps: int) -> int:
    """The same before a commit, of a batch that it publishes; how many of the steps are left, 0 or
    less when it has to go on."""
    audience = state.space.audience(batch.producer.topic, state.now_ms)
    if not audience.choices:
        return steps
    if batch.answers is None or batch.answers.is_closed_without(audience):
        batch.answers = _begun(state, batch, incoming, 0, batch.pack)
    return batch.answers.ask(audience, steps)


def _has_room(state: State, producer: Producer, batch: Incoming, is_persistent: bool) -> bool:
    """Whether the batch would be taken: what is found out about it takes a part of its memory."""
    try:
        check_publication(state, producer, batch.rows, batch.pack, is_persistent)
    except HmsError:
        return False  # the send says so, or waits
    return True


def _begun(
    state: State,
    batch: PendingBatch,
    incoming: Incoming,
    first_sequence: int,
    sent: memoryview,
) -> Answers:
    audience = state.space.audience(batch.producer.topic, state.now_ms)
    rows, pack, _ = stamped_for(batch, incoming, audience)
    messages = make_messages(
        rows,
        slice_payloads(pack, rows),
        batch.first_id,
        0,
        batch.timestamp_ms,
        batch.is_persistent,
    )
    is_told = is_told_the_topic(batch.producer, incoming, audience)
    return Answers(messages, first_sequence, sent, is_told=is_told)
