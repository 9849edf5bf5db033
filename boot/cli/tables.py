"""Tables of the command line: which rows and columns of a listing are shown, and how.

A terminal gets a table that fits it, with a bold head and times such as "3 m ago"; a pipe gets the
same columns at full length, and times as they are written. Rows that are too wide for a terminal
when all columns were asked for are written one value on a line, as psql does.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from hms.boot.cli.cells import cell, time_cell, written_times
from hms.boot.cli.values import print_values

__all__ = ["WATCH", "TableView", "again_and_again", "has_own_view", "print_table", "table_options"]

COLUMNS_MAX = 6
"""So many columns are shown where a command names none."""
GAP = 2
"""Blanks between the columns of a terminal."""
CUT_TO = 16
"""A column is cut to so many characters at least where columns were not chosen for the width."""
_VIEW = "hms.table"
_COMPARISONS = ("!=", ">=", "<=", "=", ">", "<")

Row = Mapping[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class TableView:
    """What was asked of a table. filters: COLUMN=PATTERN and the like."""

    is_wide: bool = False
    columns: tuple[str, ...] = ()
    sort: str = ""
    filters: tuple[str, ...] = ()

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that fit, in the order that was asked for."""
        found = list(rows)
        for one in self.filters:
            fits = _condition(one, rows)
            found = [row for row in found if fits(row)]
        if self.sort:
            name = _known(self.sort.removeprefix("-"), rows)
            is_falling = self.sort.startswith("-")
            found.sort(key=lambda row: _order(row.get(name)), reverse=is_falling)
        return found

    def shown(self, rows: Sequence[Row], usual: Sequence[str]) -> list[str]:
        """The names of the columns: those that were asked for, all, or the command's own."""
        known = list(dict.fromkeys(name for row in rows for name in row))
        if self.columns:
            return [_known(name, rows) for name in self.columns]
        if self.is_wide:
            return known
        return [name for name in usual if name in known] or known[:COLUMNS_MAX]


def _known(name: str, rows: Sequence[Row]) -> str:
    known = list(dict.fromkeys(column for row in rows for column in row))
    if rows and name not in known:
        raise click.UsageError(f"there is no column {name!r}; there are {', '.join(known)}")
    return name


def _order(value: Any) -> tuple[bool, bool, float, str]:
    """Numbers by size, before texts; what is not there last."""
    if isinstance(value, int | float):
        return False, False, float(value), ""
    return value is None, True, 0.0, cell(value)


def _condition(text: str, rows: Sequence[Row]) -> Callable[[Row], bool]:
    """What `waiting>0`, `name=orders*` or `state!=READY` asks of a row."""
    found = [(at, sign) for sign in _COMPARISONS if (at := text.find(sign)) > 0]
    if not found:
        raise click.UsageError(f"--filter {text!r} is not of the form COLUMN=VALUE, !=, > or <")
    at, sign = min(found, key=lambda one: (one[0], -len(one[1])))
    name, wanted = _known(text[:at].strip(), rows), text[at + len(sign) :].strip()
    if sign in {"=", "!="}:
        return lambda row: fnmatchcase(cell(row.get(name)), wanted) is (sign == "=")
    try:
        limit = float(wanted)
    except ValueError as fault:
        raise click.UsageError(f"--filter {text!r}: {wanted!r} is no number") from fault

    def compares(row: Row) -> bool:
        value = row.get(name)
        if not isinstance(value, int | float):
            return False
        is_beyond = value > limit if sign[0] == ">" else value < limit
        return is_beyond or (len(sign) > 1 and value == limit)

    return compares


WATCH = click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Again every so many seconds (2), until Ctrl-C.",
)
_OPTIONS = (
    click.option("--wide", is_flag=True, help="Every column."),
    click.option("--columns", metavar="NAME,NAME", default="", help="These columns."),
    click.option("--sort", metavar="COLUMN", default="", help="By this column; -COLUMN falls."),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="COLUMN=VALUE",
        help="Rows that fit, such as 'name=ord*' or 'waiting>0'; may be repeated.",
    ),
    WATCH,
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that prints one table the options of tables."""

    def run(  # the names of the options
        wide: bool,
        columns: str,
        sort: str,
        filters: tuple[str, ...],
        watch_s: float | None,
        **rest: Any,
    ) -> Any:
        names = tuple(name for one in columns.split(",") if (name := one.strip()))
        view = TableView(wide, names, sort, filters)
        click.get_current_context().meta[_VIEW] = view
        return again_and_again(lambda: command(**rest), watch_s)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        option(run)
    return run


def again_and_again(show: Callable[[], Found], watch_s: float | None) -> Found:
    """What it returns, once; or shown every so many seconds until it is interrupted."""
    if watch_s is None:
        return show()
    found = _shown_alone(show)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(watch_s)
            found = _shown_alone(show)
    return found


def _shown_alone(show: Callable[[], Found]) -> Found:
    """On a screen that has nothing else."""
    if sys.stdout.isatty():
        click.clear()
    found = show()
    sys.stdout.flush()
    return found


def has_own_view() -> bool:
    """Whether other columns or rows are asked for than a command shows by itself."""
    view: TableView = click.get_current_context().meta.get(_VIEW, TableView())
    return view != TableView()


def print_table(
    rows: Sequence[Row],
    *,
    empty: str,
    is_json: bool,
    columns: Sequence[str] = (),
    times: Sequence[str] = (),
) -> None:
    """The rows as the options ask. columns: what is shown without --wide and --columns; times: the
    columns that hold times, in ms since 1970 UTC; JSON has them as texts."""
    context = click.get_current_context(silent=True)
    whole = TableView(is_wide=True)  # of a command without the options, nothing is hidden
    view: TableView = context.meta.get(_VIEW, whole) if context else whole
    found = view.select(rows)
    if is_json:
        chosen = [
            written_times({name: row.get(name) for name in view.columns or row}, times)
            for row in found
        ]
        click.echo(json.dumps(chosen, default=str))
        return
    if not found:
        click.echo(empty)
        return
    names, is_terminal = view.shown(found, columns), sys.stdout.isatty()
    lines = [
        [
            time_cell(row.get(name), is_relative=is_terminal)
            if name in times
            else cell(row.get(name))
            for name in names
        ]
        for row in found
    ]
    numbers = {at for at, name in enumerate(names) if name not in times and _is_number(found, name)}
    if not is_terminal:
        _print_plain(names, lines)
    elif (view.is_wide or view.columns) and not _fits(names, lines):
        _print_one_by_one(names, found, times)
    else:
        _print_on_terminal(names, lines, numbers)


def _fits(names: list[str], lines: list[list[str]]) -> bool:
    """Whether a terminal shows the columns when none is cut to less than CUT_TO."""
    widths = [max(map(len, column)) for column in zip(names, *lines, strict=True)]
    least = sum(min(width, CUT_TO) for width in widths) + GAP * (len(names) - 1)
    return least <= shutil.get_terminal_size().columns


def _print_one_by_one(names: list[str], rows: Sequence[Row], times: Sequence[str]) -> None:
    for at, row in enumerate(rows):
        if at:
            click.echo()
        print_values({name: row.get(name) for name in names}, times=times)


def _is_number(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row.get(name), int | float) for row in rows)


def _print_plain(names: list[str], lines: list[list[str]]) -> None:
    every = [names, *lines]
    widths = [max(len(line[at]) for line in every) for at in range(len(names))]
    for line in every:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _print_on_terminal(names: list[str], lines: list[list[str]], numbers: set[int]) -> None:
    """A table as wide as the terminal at most; what is too long ends with an ellipsis."""
    from rich.cells import cell_len  # noqa: PLC0415 - a pipe, and the help, load no rich
    from rich.console import Console  # noqa: PLC0415 - the same
    from rich.table import Table  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    widths = [max(map(cell_len, column)) for column in zip(names, *lines, strict=True)]
    _narrow(widths, console.width - GAP * (len(names) - 1))
    for at, (name, width) in enumerate(zip(names, widths, strict=True)):
        table.add_column(
            Text(name),
            justify="right" if at in numbers else "left",
            overflow="ellipsis",
            no_wrap=True,
            width=width,
        )
    for line in lines:
        table.add_row(*(Text(text) for text in line))
    console.print(table)


def _narrow(widths: list[int], room: int) -> None:
    """Make columns fit into so many characters: the widest gives way first, so that a long text
    does not cut the names and ids beside it."""
    while sum(widths) > room and (widest := max(widths)) > 1:
        widths[widths.index(widest)] -= 1
