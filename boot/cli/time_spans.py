"""A span of time on the command line: 90, 90s, 10m, 2h or 3d."""

import re
from typing import Any

import click

__all__ = ["SPAN"]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)")


class _Span(click.ParamType[float]):
    name = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """In seconds."""
        match = _SPAN.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no time such as 90s, 10m, 2h or 3d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


SPAN = _Span()
