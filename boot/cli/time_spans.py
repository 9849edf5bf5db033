"""A span of time on the command line: 90, 90s, 10m, 2h or 3d; and a size: 4096, 64MiB, 1 TiB."""

import re
from typing import Any

import click

__all__ = ["SIZE", "SPAN"]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZES = {"": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40}
_SIZE = re.compile(r"(\d{1,18}) ?([kmgt]ib|)")
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


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """In bytes."""
        match = _SIZE.fullmatch(str(value).casefold())
        if match is None:
            self.fail(f"{value!r} is no size such as 4096, 64MiB or 1TiB", param, ctx)
        return int(match[1]) << _SIZES[match[2]]


SIZE = _Size()
