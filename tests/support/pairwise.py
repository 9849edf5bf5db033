"""Pairwise: few rows in which every value of an axis meets every value of every other axis.

Most faults where features meet need two conditions, not five. Greedy and deterministic: a row
begins with a pair that no row has yet, and takes of each further axis what brings most new pairs.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

__all__ = ["pairwise"]

Row = dict[str, Any]


def pairwise(axes: Mapping[str, Sequence[Any]]) -> list[Row]:
    """The rows."""
    names = list(axes)
    open_pairs = dict.fromkeys(
        ((a, x), (b, y)) for a, b in combinations(names, 2) for x, y in product(axes[a], axes[b])
    )
    rows: list[Row] = []
    while open_pairs:
        row: Row = dict(next(iter(open_pairs)))
        for name in names:
            if name not in row:
                row[name] = max(axes[name], key=lambda v, n=name: _new(open_pairs, row, n, v))
        rows.append({name: row[name] for name in names})
        for pair in combinations([(name, row[name]) for name in names], 2):
            open_pairs.pop(pair, None)
    return rows


def _new(open_pairs: Mapping[Any, None], row: Row, name: str, value: Any) -> int:
    """How many pairs a row has with this value that no row has yet."""
    met = [(((n, v), (name, value)), ((name, value), (n, v))) for n, v in row.items()]
    return sum(any(pair in open_pairs for pair in both) for both in met)
