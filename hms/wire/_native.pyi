# The compiled inner loops of packing.py; each answers None where that has to find a fault.
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

_R = TypeVar("_R", bound=tuple[int, ...])
_Pack: TypeAlias = bytes | memoryview

def unpack_rows(row: type[_R], pack: _Pack, count: int, offset: int, /) -> list[_R] | None: ...
def slice_payloads(pack: _Pack, rows: Sequence[_R], offset: int, /) -> list[bytes] | None: ...
def unpack_delivered(
    row: type[_R], pack: _Pack, count: int, offset: int, /
) -> list[tuple[_R, bytes, bytes]] | None: ...
def message_columns(
    runs: Sequence[tuple[_Pack | None, int, int, int]],
    wanted: int,
    fields_of: Callable[[bytes], tuple[Any, ...]],
    /,
) -> tuple[Any, ...] | None: ...
