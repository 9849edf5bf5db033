"""hms security reload, diff and export: the security file beside what a running node obeys."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.cells import cell
from hms.boot.cli.security_target import document_of, path_of
from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted
from hms.boot.security_file import load_security, security_text
from hms.server.logins.plain_policy import (
    differences_of,
    is_secret,
    plain_policy,
    without_secrets,
)

__all__ = ["diff", "export", "reload"]


@click.command()
@target_options
def reload(target: Target) -> None:
    """Have the running node read the file now, and say what became of it; exit code 1 when it has a
    fault, and what held before holds. Certificates and secrets that it names are read anew."""
    said = target.administer("security.reload")
    changed = ", ".join(said["changed"]) or "nothing is other"
    text = f"version {said['version']} holds: {changed}"
    if said["closed"]:
        text += f"; {counted(said['closed'], 'connection, consumer or service')} closed"
    target.say(text, said)


@click.command()
@target_options
@click.argument("file", required=False, type=click.Path(path_type=Path))
def diff(target: Target, file: Path | None) -> None:
    """What is other in the security file than at the running node, or in FILE before it is put in
    its place; exit code 1 when something is. + is in the file alone, - at the node alone. Of a
    secret it says only that it is another one."""
    document = document_of(target) if file is None else load_security(file)
    told = target.administer("security.show")
    rows = differences_of(told["policy"], plain_policy(document))
    lines = [f"the file has version {document.version}, the node obeys version {told['version']}"]
    if told["rejected"]:
        lines.append(f"the node does not take it over: {told['rejected']}")
    lines += [line for row in rows for line in _lines(row)]
    versions = {"file": document.version, "running": told["version"]}
    target.say("\n".join(lines), {**versions, "rejected": told["rejected"], "differences": rows})
    if rows or document.version != told["version"]:
        click.get_current_context().exit(1)


@click.command()
@target_options
@click.option("--running", "is_running", is_flag=True, help="What the node obeys, not the file.")
def export(target: Target, is_running: bool) -> None:
    """Print the policy without its secrets, for a backup or a review: a file that could be used
    itself, with a comment for each secret that is left out."""
    path_of(target)
    if is_running:
        policy = target.administer("security.show")["policy"]
    else:
        policy = plain_policy(document_of(target))
    document, notes = without_secrets(policy)
    text = security_text(document, notes).removesuffix("\n")
    target.say(text, {"policy": plain_policy(document), "left_out": notes})


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    where = ".".join(part for part in (row["section"], row.get("key", "")) if part)
    if "is" in row:
        yield f"{'+' if row['is'] == 'new' else '-'} {where}"
    elif "added" in row:
        yield from (f"- {where}: {cell(one)}" for one in row["removed"])
        yield from (f"+ {where}: {cell(one)}" for one in row["added"])
        if not row["added"] and not row["removed"]:
            yield f"~ {where}: in another order"
    elif is_secret(row["running"]) and is_secret(row["file"]):
        yield f"~ {where}: another one"
    elif is_secret(row["file"]):
        yield f"+ {where}: set"
    elif is_secret(row["running"]):
        yield f"- {where}: taken away"
    else:
        yield f"~ {where}: {_value(row['running'])} -> {_value(row['file'])}"


def _value(value: Any) -> str:
    """None is what holds when nothing is said."""
    return "default" if value is None else cell(value)
