# The compiled inner loops of packing.py; each answers None where that has to find a fault.
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

_R = TypeVar("_R", bound=tuple[int, ...])
_Pack: TypeAlias = bytes | memoryview

def unpack_rows(row: type[_R], pack: _Pack, count: int, offset: int, /) -> list[_R] | None: ...
def slice_payloads(pack: _Pack, rows: Sequence[_R], offset: int, /) -> list[bytes] | None: ...
def unpack_delivered(
    row: type[_R], pack: _Pack, count: int, offset: int, /
) -> list[tuple[_R, bytes, bytes]] | None: ...
