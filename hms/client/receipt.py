"""Receipts: what a sender gets when the node has its messages."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload


class Receipt(NamedTuple):
    """message_id: 12 hexadecimal digits; elapsed_s: from handing over to the confirmation. In a
    session with AckMode.NONE nobody waits for that: then they are None and 0."""

    message_id: str | None
    elapsed_s: float


UNKNOWN = Receipt(None, 0.0)
"""Of a message that nobody waited for (F-B4)."""


class Run(NamedTuple):
    """The receipts of messages that were confirmed together; first is 0 when nobody waited."""

    first: int
    message_count: int
    elapsed_s: float

    def receipt(self, place: int) -> Receipt:
        """The one at that place."""
        if not self.first:
            return UNKNOWN
        return Receipt(f"{self.first + place:012x}", self.elapsed_s)


class Receipts(Sequence[Receipt]):
    """The receipts of send_many, in the order of the messages.

    Each is made when it is asked for: made beforehand, they were 40 % of what send_many costs.
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._count = sum(run.message_count for run in runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Receipt]:
        for run in self._runs:
            yield from map(run.receipt, range(run.message_count))

    @overload
    def __getitem__(self, index: int) -> Receipt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...

    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return list(self)[index]
        place = index + self._count if index < 0 else index
        for run in self._runs if place >= 0 else ():
            if place < run.message_count:
                return run.receipt(place)
            place -= run.message_count
        raise IndexError(f"receipt {index} of {self._count}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} receipts>"
