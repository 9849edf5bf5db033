"""hms top: what the node does, again and again; once for scripts; recorded and played for later."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.live_view.sources import NodeSource, Recording, Source, played
from hms.boot.monitoring.rates import COLUMNS, Rates, lines_of

__all__ = ["top"]

CLEAR = "\x1b[H\x1b[2J"
ROWS = 15


@click.command()
@target_options
@click.option("--every", "every_s", type=click.FloatRange(1, 3600), default=1, help="Seconds.")
@click.option("--once", is_flag=True, help="One look: rates are those of one second.")
@click.option("--count", type=click.IntRange(0), default=0, help="So many looks; 0: without end.")
@click.option("--sort", type=click.Choice(COLUMNS), default="messages", show_default=True)
@click.option("--filter", "names", default="*", show_default=True, help="Destinations, such as o*.")
@click.option("--rows", type=click.IntRange(1, 1000), default=ROWS, show_default=True)
@click.option("--record", type=click.Path(path_type=Path), help="Write what is seen to a file.")
@click.option(
    "--play",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Show such a file.",
)
@click.option("--plain", is_flag=True, help="A table without keys, as without the extra tui.")
def top(
    target: Target,
    every_s: float,
    once: bool,
    count: int,
    sort: str,
    names: str,
    rows: int,
    record: Path | None,
    play: Path | None,
    plain: bool,
) -> None:
    """Rates, memory, disk, alerts and the busiest destinations, until q or Ctrl-C.

    It asks the node for one answer a look. With --json each look is an object on a line. On a
    terminal, with the extra tui, it has keys: ? shows them.
    """
    if not (plain or once or count or target.is_json) and _has_keys():
        _view(target, every_s, names, sort, record, play)
        return
    looks = 2 if once else count + 1 if count else 0  # rates need one more
    seen = played(play) if play else _asked(target, names, every_s, looks)
    rates, shown = Rates(), 0
    file = record.open("w", encoding="utf-8") if record else None
    try:
        for said in seen:
            if file is not None:
                file.write(json.dumps(said) + "\n")
            view = rates.view(said)
            if view is None:
                continue  # rates need two looks
            shown += 1
            _show(target, view, sort, rows, is_alone=once)
            if once:
                break
    except KeyboardInterrupt:
        pass
    finally:
        if file is not None:
            file.close()
    if not shown:
        raise click.ClickException("nothing was seen: a recording has two looks at least")


def _asked(target: Target, names: str, every_s: float, looks: int) -> Iterator[dict[str, Any]]:
    pause: Callable[[float], None] = time.sleep
    with target.connection() as connection:
        number = 0
        while True:
            said = connection.administer("metrics.show", {"names": names, "limit": 1000})
            yield said
            number += 1
            if looks and number >= looks:
                return
            pause(every_s)


def _has_keys() -> bool:
    """Whether a person sits there, and the library is installed that draws the view."""
    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("textual") is not None


def _view(
    target: Target,
    every_s: float,
    names: str,
    sort: str,
    record: Path | None,
    play: Path | None,
) -> None:
    from hms.boot.live_view.app import LiveView  # noqa: PLC0415 - loads textual

    source: Source = Recording(play) if play else NodeSource(target.connection)
    if not play:
        source.ask("metrics.show")  # what is refused ends the command, before there is a screen
    LiveView(source, every_s=every_s, names=names, sort=sort, record=record).run()


def _show(target: Target, view: dict[str, Any], sort: str, rows: int, *, is_alone: bool) -> None:
    view["destinations"].sort(
        key=lambda row: row[sort], reverse=sort not in ("destination", "kind")
    )
    view["destinations"] = view["destinations"][:rows]
    if target.is_json:
        click.echo(json.dumps(view))
        return
    out: IO[str] = sys.stdout
    is_screen = out.isatty() and not is_alone
    click.echo((CLEAR if is_screen else "") + "\n".join(lines_of(view)))
