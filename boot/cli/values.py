"""The values of one thing on the command line, one on a line.

The usual ones come first, in groups; what is empty or 0 beside them is left out unless --wide asks
for it. A terminal gets times with how long ago they were and sizes in units; a pipe gets both as
they are written.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click

from hms.boot.cli.cells import ago, bytes_cell, cell, time_cell

__all__ = ["TIMES_OF_A_LETTER", "print_values", "value_options", "wide_is_asked"]

TIMES_OF_A_LETTER = ("$DeadTime",)
"""What a node says of a dead letter in ms since 1970 UTC."""
_WIDE = "hms.wide"

Values = Mapping[str, Any]


def value_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that prints the values of one thing the option --wide."""

    def run(is_wide: bool, **rest: Any) -> Any:
        click.get_current_context().meta[_WIDE] = is_wide
        return command(**rest)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    click.option("--wide", "is_wide", is_flag=True, help="Every value.")(run)
    return run


def wide_is_asked() -> bool:
    """Whether all is shown: with --wide, and of a command without that option."""
    context = click.get_current_context(silent=True)
    return bool(context is None or context.meta.get(_WIDE, True))


def print_values(
    values: Values,
    *,
    usual: Sequence[Sequence[str]] = (),
    inner: Collection[str] = (),
    times: Collection[str] = (),
    indent: str = "",
    is_exact: bool = False,
) -> None:
    """usual: groups of names that are shown always, in this order; inner: what only --wide shows;
    times: the names of what is in ms since 1970 UTC; is_exact: numbers stay as they are, as those
    of an application."""
    is_terminal = sys.stdout.isatty()
    groups = _groups(values, usual, inner)
    width = max((len(name) for group in groups for name in group), default=0)
    for at, group in enumerate(groups):
        if at:
            click.echo()
        for name in group:
            if name in times:
                text = _said_time(values[name], is_terminal=is_terminal)
            else:
                text = _said(name, values[name], is_exact=is_exact or not is_terminal)
            head = click.style(name.ljust(width), bold=True)
            more = "\n".ljust(len(indent) + width + 3)
            click.echo(f"{indent}{head}  {(text or '-').replace(chr(10), more)}")
    left_out = len(values) - sum(map(len, groups))
    if left_out and is_terminal:
        click.secho(f"\n{left_out} more with --wide", dim=True)


def _groups(
    values: Values, usual: Sequence[Sequence[str]], inner: Collection[str]
) -> list[list[str]]:
    """The names to show, group by group; what no group names stands in the last one."""
    groups = [[name for name in group if name in values] for group in usual]
    named = {name for group in groups for name in group}
    rest = [name for name in values if name not in named]
    if usual and not wide_is_asked():
        rest = [name for name in rest if name not in inner and not _is_nothing(values[name])]
    return [group for group in (*groups, rest) if group]


def _is_nothing(value: Any) -> bool:
    return value is None or value is False or value in (0, "", [], {}, ())


def _said_time(value: Any, *, is_terminal: bool) -> str:
    written = time_cell(value, is_relative=False)
    if is_terminal and written and isinstance(value, int | float):
        return f"{written} ({time_cell(value, is_relative=True)})"
    return written


def _said(name: str, value: Any, *, is_exact: bool) -> str:
    if not is_exact and isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "\n".join(cell({key: item for key, item in one.items() if item}) for one in value)
    if not is_exact and isinstance(value, int | float) and not isinstance(value, bool):
        if name == "bytes" or name.endswith("_bytes"):
            return bytes_cell(value)
        if name.endswith("_bytes_per_s"):
            return f"{bytes_cell(value)}/s"
        if name == "uptime_s":
            return ago(value).removesuffix(" ago")
    return cell(value)
