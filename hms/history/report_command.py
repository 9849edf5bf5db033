"""hms history report: what happened, as tables, as a page for a browser, and for programs."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hms.errors.catalogue import HistoryError
from hms.history.command_options import (
    CONFIG,
    JSON,
    MASTER,
    PATH,
    TIMES,
    connects,
    options,
    resolved,
    table,
)
from hms.history.reports.every import REPORTS, make_report
from hms.history.reports.table import Report

__all__ = ["report_command"]

EXIT_NOT_GOOD = 3
"""What an audit ends with that does not add up."""

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("report")
@click.argument("name", type=click.Choice(list(REPORTS)))
@options(CONFIG, PATH, *TIMES, MASTER, JSON)
@connects("Of audit: the node that must have what waits.")
@click.option("--destination", default="", help="queue:NAME, topic:NAME, NAME or *; a comma list.")
@click.option("--html", type=_FILE, help="Write a page with curves to this file.")
@click.option("--csv", "csv_file", type=_FILE, help="Write the table to this file.")
@click.option("--parquet", type=_FILE, help="The same, as Parquet.")
def report_command(
    name: str,
    config: Path,
    path: str | None,
    is_json: bool,
    html: Path | None,
    csv_file: Path | None,
    parquet: Path | None,
    master: str | None,
    **asked: Any,
) -> None:
    """Report on what happened; audit ends with 3 when something does not add up."""
    path = path or str(resolved(config, "--path")[1])
    report = make_report(None, path, name, master=master, **asked)
    writers: list[tuple[Path | None, Callable[[Report], bytes]]] = [
        (html, lambda made: _page(made, path)),
        (csv_file, _csv),
        (parquet, _parquet),
    ]
    for file, write in writers:
        if file is not None:
            _write(file, write(report))
    click.echo(_json(report) if is_json else _text(report))
    if not report.is_good:
        click.get_current_context().exit(EXIT_NOT_GOOD)


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as fault:
        raise HistoryError(detail=f"{file} cannot be written: {fault.strerror}") from fault


def _text(report: Report) -> str:
    body = table(report.head, report.rows) if report.rows else "Nothing happened."
    return "\n".join([body, *report.notes])


def _json(report: Report) -> str:
    data = {"rows": report.as_dicts(), "notes": report.notes, "is_good": report.is_good}
    return json.dumps(data)


def _page(report: Report, path: str) -> bytes:
    from hms.history.reports.html import as_html  # noqa: PLC0415 - where it is asked for

    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return as_html(report, f"History of {path}, {now}").encode()


def _csv(report: Report) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(report.head)
    writer.writerows(report.rows)
    return out.getvalue().encode()


def _parquet(report: Report) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - an optional package
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional package

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(report.as_dicts()), out)
    return out.getvalue()
