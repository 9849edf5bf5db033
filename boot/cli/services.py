"""hms call and hms serve: TP services from the shell."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.receiving import plain
from hms.boot.cli.sending import as_text, from_json, read_body
from hms.boot.cli.target import Target, target_options
from hms.boot.supervise import environment
from hms.errors.catalogue import ServiceCallFailed
from hms.errors.tree import HmsError
from hms.wire.structures import ResultHead, make_error

__all__ = ["call", "serve"]

TPSUCCESS = 2


@click.command()
@target_options
@click.argument("service")
@click.argument("data", required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), help="The data; - reads stdin.")
@click.option("--text", "kind", flag_value="text", help="A text; so it is without a kind.")
@click.option("--bytes", "kind", flag_value="bytes", help="The bytes as they are.")
@click.option("--map", "kind", flag_value="map", help="A map: the data is a JSON object.")
@click.option(
    "--fields", "kind", flag_value="fields", help="A field buffer: a JSON object of its fields."
)
@click.option(
    "--fdl",
    "tables",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A field table in FDL that names the fields; may be repeated.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="Seconds to connect and be answered.",
)
def call(
    target: Target,
    service: str,
    data: str | None,
    file: Path | None,
    kind: str | None,
    tables: tuple[Path, ...],
    timeout_s: float,
) -> None:
    """Call SERVICE with DATA and print its answer; - reads standard input."""
    from hms.client.core.service_data import decode_data, encode_data  # noqa: PLC0415 - not for help

    given = _data(data, file, kind, tables)
    code, sent = encode_data(given)
    with target.connection() as connection:
        left_s = min(timeout_s, target.left_s)
        head, answer = connection.run_service(service, sent, code, left_s)
    if head.rval != TPSUCCESS:
        if kind is None and isinstance(given, str) and given.lstrip().startswith("{"):
            click.echo("The data was sent as text. To send it as a map give --map.", err=True)
        raise _failure(service, head)
    said: Any = _plain_data(decode_data(head.kind, answer))
    text = said if isinstance(said, str) else json.dumps(said)
    target.say(text, {"answer": said, "rcode": head.rcode})


def _data(data: str | None, file: Path | None, kind: str | None, tables: tuple[Path, ...]) -> Any:
    """What is given to the service."""
    from field_buffer import FieldBuffer, fdl_load  # noqa: PLC0415 - not for --help
    from hms.errors.catalogue import FieldError  # noqa: PLC0415 - the same

    for table in tables:
        fdl_load(table)
    if data is None and file is None:
        return None
    given = read_body(data, file)
    if kind == "bytes":
        return given
    if kind in {None, "text"}:
        return as_text(given)
    value = from_json("map", given, f"--{kind}")
    try:
        return value if kind == "map" else FieldBuffer(value)
    except (FieldError, TypeError, ValueError) as fault:
        raise click.ClickException(f"the data is no field buffer: {fault}") from fault


def _plain_data(data: Any) -> Any:
    """What a service answered as JSON says it; of a field buffer each field's values."""
    from field_buffer import FieldBuffer  # noqa: PLC0415 - not for --help

    return plain(dict(data.items()) if isinstance(data, FieldBuffer) else data)


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
