"""Ready runs: what a transaction sends to one queue, made ready for its commit's one record.

A commit of 50,000 frames of one message made 50,000 records, and put each message into its queue by
itself: 0.33 s. Before it slices encode consecutive frames as they stand in the record, but for the
places in the order of arrival, which are known at the commit only and are put in then.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from hms.engine.log.live_index import offsets_of
from hms.engine.messages import OF_COMMIT, OVERHEAD_BYTES, StoredMessage
from hms.engine.queue.destinations import Queue
from hms.engine.session.session_objects import PendingBatch
from hms.engine.state import State
from hms.records import MESSAGES_PER_BATCH_MAX, Encoded, encode_part, put_first_seqs, sent_to_queue

__all__ = ["ReadyRun", "ready_runs"]


class ReadyRun:
    """Frames to one queue, one behind the other, all of which the log has, or none; of those that
    it has each has its pack here from now on."""

    __slots__ = (
        *("_data", "_firsts", "_offsets", "_size_bytes", "_uses"),
        *("first_id", "messages", "queue"),
    )

    def __init__(self, queue: Queue, batches: Sequence[PendingBatch]) -> None:
        self.queue = queue
        self.first_id = batches[0].first_id
        """Of the first frame, which stands for all of them."""
        self.messages: list[StoredMessage] = []
        self._firsts: list[tuple[int, int]] = []
        """Of each frame: where its record begins, and how many messages are before it."""
        self._offsets: list[int] = []
        self._size_bytes = self._uses = 0
        is_logged = batches[0].is_persistent and queue.number > 0
        parts, at = [], 0
        for batch in batches:
            incoming, made = batch.incoming, batch.made
            assert incoming is not None and made is not None, "it is not ready"  # noqa: PT018
            part = self._encoded(batch) if is_logged else b""
            self._firsts.append((at, len(self.messages)))
            at += len(part)
            self.messages += made
            self._offsets += offsets_of(made, at - incoming.payload_bytes)
            self._size_bytes += incoming.payload_bytes + OVERHEAD_BYTES * batch.count
            self._uses |= incoming.uses
            parts.append(part)
        self._data = bytearray().join(parts)
        ends, packs = accumulate(map(len, parts)), memoryview(self._data)
        for batch, end in zip(batches, ends, strict=True):
            if is_logged:
                batch.pack = packs[end - len(batch.pack) : end]
            batch.incoming, batch.made, batch.run = None, None, self

    def _encoded(self, batch: PendingBatch) -> bytes:
        producer = batch.producer
        return encode_part(
            sent_to_queue(
                self.queue.number,
                (batch.first_id, 0, batch.timestamp_ms),
                (producer.session.connection.uid, producer.handle, 0),
                batch.count,
                batch.pack,
                None,
            )
        )

    def store(self, state: State) -> Encoded | None:
        """The messages begin to wait; their records, None when the log has none."""
        messages, queue = self.messages, self.queue
        number, count, data = queue.number, len(messages), self._data
        first_seq = state.take_seqs(count)
        if data:
            for seq, message in enumerate(messages, first_seq):
                message.seq, message.holders = seq, number
            put_first_seqs(data, self._firsts, first_seq)
        else:
            for seq, message in enumerate(messages, first_seq):
                message.seq, message.slot = seq, OF_COMMIT
        queue.line.add(messages, self._size_bytes, self._uses)
        state.waiting_bytes += self._size_bytes
        queue.offer(messages)
        if not data:
            return None
        log_position = state.blocks.add(messages, self._offsets)
        log_positions = () if log_position is None else ((log_position, 0),)
        return Encoded(len(self._firsts), count, memoryview(data), log_positions)


def ready_runs(batches: Iterable[PendingBatch]) -> None:
    """Those of the batches that are ready, and that one run can have, are in one."""
    run: list[PendingBatch] = []
    count = 0
    for batch in batches:
        queue = batch.producer.destination
        can = batch.made is not None
        is_next = (
            run
            and queue is run[0].producer.destination
            and batch.is_persistent == run[0].is_persistent
        )
        if not (can and is_next and count + batch.count <= MESSAGES_PER_BATCH_MAX):
            _make(run)
            run, count = [], 0
        if can:
            run.append(batch)
            count += batch.count
    _make(run)


def _make(batches: Sequence[PendingBatch]) -> None:
    if len(batches) > 1:
        queue = batches[0].producer.destination
        assert isinstance(queue, Queue), "only what goes to a queue is made before its commit"
        ReadyRun(queue, batches)
