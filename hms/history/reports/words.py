"""Values as people read them, and columns as wide as they must be."""

from collections.abc import Sequence

__all__ = ["shown", "table"]

_DECIMALS = 2


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they must be; numbers stand at the right."""
    lines = [tuple(head), *(tuple(map(shown, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [
        bool(rows) and all(row[i] is None or isinstance(row[i], int | float) for row in rows)
        for i in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            f"{cell:>{width}}" if right else f"{cell:{width}}"
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def shown(value: object) -> str:
    """A value as it stands in a table."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{_DECIMALS}f}"
    return "" if value is None else str(value)
