"""What the commands of bench/ share: which workloads, how often, where, and what is printed."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from hms.boot.bench.pairs import Row, compare, rows_markdown, rows_text
from hms.boot.bench.systems import HMS, NullSystem, System
from hms.boot.bench.workloads import WORKLOADS, Workload

__all__ = ["main", "parser", "said", "show", "workloads"]


def parser(text: str) -> argparse.ArgumentParser:
    """The options that all commands take."""
    made = argparse.ArgumentParser(description=text)
    made.add_argument("workload", nargs="*", help=f"of {', '.join(WORKLOADS)}; all if none")
    made.add_argument("--runs", type=int, default=5)
    made.add_argument("--count", type=int, help="messages, instead of the workload's own")
    made.add_argument("--size", type=int, help="bytes of a message")
    made.add_argument("--clients", type=int, default=1, help="producers of W2, consumers of W3")
    made.add_argument("--window", type=int, help="unconfirmed messages of a producer")
    made.add_argument("--rate", type=float, help="messages a second of W4r")
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    made.add_argument("--markdown", action="store_true", help="print the table for a page")
    made.add_argument("--json", type=Path, help="write the rows there too")
    return made


def workloads(options: argparse.Namespace) -> list[Workload]:
    """The workloads that were named, changed as was said."""
    unknown = set(options.workload) - WORKLOADS.keys()
    if unknown:
        sys.exit(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    named = ("count", "size", "window", "rate")
    changes = {name: value for name in named if (value := getattr(options, name))}
    chosen = [WORKLOADS[name] for name in options.workload or WORKLOADS]
    return [replace(one, **changes).with_clients(options.clients) for one in chosen]


def said(line: str) -> None:
    """A line about what goes on."""
    print(line, file=sys.stderr, flush=True)


def show(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Print the table, and write the rows where they were wanted."""
    print(rows_markdown(rows) if options.markdown else rows_text(rows))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")


def main() -> None:
    """Each workload on HMS and on the null broker, in turn."""
    options = parser("Measure HMS beside its physical limit.").parse_args()
    systems: list[System] = [HMS, NullSystem()]
    rows: list[Row] = []
    for workload in workloads(options):
        rows += compare(systems, workload, options.data, options.runs, said)
    show(options, rows)
