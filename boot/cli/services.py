"""hms call and hms serve: TP services from the shell."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.receiving import plain
from hms.boot.cli.target import Target, target_options
from hms.boot.supervise import environment
from hms.client.bodies import decode_body
from hms.errors.catalogue import ServiceCallFailed
from hms.errors.tree import HmsError
from hms.wire.packed_messages import KIND_NONE, KIND_TEXT
from hms.wire.structures import ResultHead, make_error

__all__ = ["call", "serve"]

TPSUCCESS = 2


@click.command()
@target_options
@click.argument("service")
@click.argument("data", required=False)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), default=30, show_default=True)
def call(target: Target, service: str, data: str | None, timeout_s: float) -> None:
    """Call SERVICE with DATA and print its answer; - reads standard input."""
    sent = sys.stdin.buffer.read() if data == "-" else (data or "").encode()
    kind = KIND_NONE if data is None else KIND_TEXT
    try:
        sent.decode()
    except UnicodeDecodeError as fault:
        raise click.ClickException(f"the data is no UTF-8 text: {fault}") from fault
    with target.connection() as connection:
        head, answer = connection.run_service(service, sent, kind, timeout_s)
    if head.rval != TPSUCCESS:
        raise _failure(service, head)
    said: Any = plain(decode_body(head.kind, answer))
    text = said if isinstance(said, str) else json.dumps(said)
    target.say(text, {"answer": said, "rcode": head.rcode})


def _failure(service: str, head: ResultHead) -> HmsError:
    """What the service or its server failed with."""
    if head.error_number:
        return make_error(head.error_number, head.error_fields)
    return ServiceCallFailed(service=service, detail=f"it returned TPFAIL, rcode {head.rcode}")


@click.command()
@target_options
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option(
    "--path",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where modules are looked for, first of all; the current folder by default.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    help="So many calls run at once, each in a thread of its own; 1 by default.",
)
def serve(
    target: Target, modules: tuple[str, ...], folders: tuple[Path, ...], threads: int
) -> None:
    """Run the services of MODULEs until a signal ends it.

    It becomes a process of its own, which has loaded nothing of the node: a folder of yours may be
    named like one of ours.
    """
    command = [sys.executable, "-P", "-m", "tpmon.server", "--connect", target.resolve()]
    command += ["--threads", str(threads)]
    for folder in folders or (Path(),):
        command += ["--path", str(folder.absolute())]
    sys.stdout.flush()
    os.execve(command[0], [*command, *modules], environment())  # noqa: S606 - no shell is wanted
