"""Waiting chunks: what a boot found waiting, behind the deque of its priority in the ready queue.

A chunk is a batch that nobody has opened (log/packed_block.py), or messages that stand between two
of these. A batch is opened when it moves up, or when somebody looks at what is in it; no step opens
more than it looks at.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

from hms.engine.log.packed_block import PackedBlock
from hms.engine.messages import StoredMessage

__all__ = ["WaitingChunks"]

_Chunk = PackedBlock | list[StoredMessage]


class WaitingChunks:
    """Messages of one priority, as they arrived."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __iter__(self) -> Iterator[StoredMessage]:
        for chunk in self._chunks:
            yield from _messages(chunk)

    def begun(self) -> Iterator[StoredMessage]:
        """Those that are here now; others may come or go until it ends."""
        return chain.from_iterable(map(_messages, list(self._chunks)))

    def add_packed(self, block: PackedBlock) -> None:
        """A batch that is younger than all others."""
        self._chunks.append(block)

    def append(self, message: StoredMessage) -> None:
        """A message that is younger than all others."""
        last = self._chunks[-1]
        if isinstance(last, PackedBlock):
            last = []
            self._chunks.append(last)
        last.append(message)

    def pop(self) -> Sequence[StoredMessage]:
        """The oldest chunk moves up; there is one."""
        return _messages(self._chunks.popleft())

    def sweep(self, gone: set[int]) -> None:
        """Those at these places in the order of arrival are here no more. None of them is in a
        batch that nobody opened."""
        for i, chunk in enumerate(self._chunks):
            if not isinstance(chunk, PackedBlock):
                self._chunks[i] = [m for m in chunk if m.seq not in gone]
            elif chunk.is_open:
                chunk.swept(gone)

    def arrivals(self, after: int, *, is_newest_first: bool) -> Iterator[StoredMessage]:
        """Those that arrived after a place in the order of arrival, or before it; only chunks that
        have one are opened."""
        if is_newest_first:
            for chunk in reversed(self._chunks):
                if _first_seq(chunk) < after:
                    yield from [m for m in reversed(_messages(chunk)) if m.seq < after]
            return
        for chunk in self._chunks:
            if _last_seq(chunk) > after:
                yield from [m for m in _messages(chunk) if m.seq > after]


def _messages(chunk: _Chunk) -> Sequence[StoredMessage]:
    return chunk.opened() if isinstance(chunk, PackedBlock) else chunk


def _first_seq(chunk: _Chunk) -> int:
    if isinstance(chunk, PackedBlock):
        return chunk.first_seq
    return chunk[0].seq if chunk else 0


def _last_seq(chunk: _Chunk) -> int:
    if isinstance(chunk, PackedBlock):
        return chunk.last_seq
    return chunk[-1].seq if chunk else 0
