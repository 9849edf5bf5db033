"""hms errors: what an error means and what to do."""

import json
from typing import Any

import click

from hms.boot.kinds import did_you_mean
from hms.errors.catalogue import BY_NUMBER

__all__ = ["errors"]


@click.group()
def errors() -> None:
    """What an error means and what to do."""


@errors.command("list")
@click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")
def list_(is_json: bool) -> None:
    """All errors of the catalogue, one on a line."""
    described = [_describe(kind) for kind in BY_NUMBER.values()]
    if is_json:
        click.echo(json.dumps(described))
        return
    for error in described:
        click.echo(f"{error['number']}  {error['symbol']:12}  {error['name']}: {error['text']}")


@errors.command()
@click.argument("code")
@click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")
def show(code: str, is_json: bool) -> None:
    """Explain CODE: HMS-4012, 4012, a class such as QueueFull, or TPENOENT or its number."""
    found = _find(code)
    if is_json:
        click.echo(json.dumps([_describe(kind) for kind in found]))
        return
    for kind in found:
        error = _describe(kind)
        click.echo(f"{error['number']} {error['name']} ({error['symbol']}, {error['code']})")
        click.echo(f"  says  {error['text']}")
        click.echo(f"  do    {error['cure']}")
        if error["shell"]:
            click.echo(f"        in a shell: {error['shell']}")


def _find(code: str) -> list[type[Any]]:
    """The errors that a code, symbol or name stands for."""
    word = code.upper().removeprefix("HMS-")
    found = [
        kind
        for number, kind in BY_NUMBER.items()
        if word in {str(number), kind.symbol, str(kind.code)} or code == kind.__name__
    ]
    if not found:
        names = tuple(kind.__name__ for kind in BY_NUMBER.values())
        symbols = tuple({kind.symbol for kind in BY_NUMBER.values()})
        hint = did_you_mean(code, names + symbols)
        raise click.ClickException(f"there is no error {code}{hint}; hms errors list shows all")
    return found


def _describe(kind: type[Any]) -> dict[str, Any]:
    return {
        "number": f"HMS-{kind.number}",
        "name": kind.__name__,
        "symbol": kind.symbol,
        "code": kind.code,
        "text": kind.text,
        "cure": kind.cure_text,
        "shell": kind.shell_text,
    }
