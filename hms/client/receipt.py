"""Receipts: what a sender gets when the node has its messages."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, overload

import msgspec


class Receipt(NamedTuple):
    """message_id: 12 hexadecimal digits; elapsed_s: from handing over to the confirmation. In a
    session with AckMode.NONE nobody waits for that: then they are None and 0."""

    message_id: str | None
    elapsed_s: float


_receipt: Callable[[tuple[str, float]], Receipt] = partial(tuple.__new__, Receipt)
"""A receipt, without the call that checks how many fields it has."""
UNKNOWN = Receipt(None, 0.0)
"""The receipt of a message whose confirmation was not waited for (F-B4)."""


class LaterReceipt(Receipt):
    """Of a message that was sent in a local transaction: the node is waited for when the receipt
    is read. ask: waits and returns the Receipt, or raises what the send failed with."""

    _ask: Callable[[], Receipt]

    def __new__(cls, ask: Callable[[], Receipt]) -> Self:
        """A tuple is filled when it is made: this one with what it shows nowhere."""
        made = super().__new__(cls, *UNKNOWN)
        made._ask = ask
        return made

    @property
    def message_id(self) -> str | None:
        """12 hexadecimal digits."""
        return self._ask()[0]

    @property
    def elapsed_s(self) -> float:
        """From handing over to the confirmation."""
        return self._ask()[1]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask())

    def __getitem__(self, index: Any) -> Any:
        return self._ask()[index]

    def __eq__(self, other: object) -> bool:
        return self._ask() == other

    def __hash__(self) -> int:
        return hash(self._ask())

    def __repr__(self) -> str:
        return "<receipt of a message in a transaction>"


class Run(msgspec.Struct, frozen=True, gc=False):
    """The receipts of messages that were confirmed together; first is 0 when nobody waited."""

    first: int
    message_count: int
    elapsed_s: float

    def receipt(self, place: int) -> Receipt:
        """The one at that place."""
        if not self.first:
            return UNKNOWN
        return _receipt((f"{self.first + place:012x}", self.elapsed_s))


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
