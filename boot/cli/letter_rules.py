"""hms dlq handle, check, reload and simulate: rules tables for dead letters, as of runmqdlq."""

import json
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

if TYPE_CHECKING:
    from hms.client.letter_rules.rules_table import Table

__all__ = ["check", "handle", "missing_queues", "no_text", "reload", "simulate"]

RELOAD_S = 60.0

_RULES = click.argument("rules", type=click.Path(path_type=Path, allow_dash=True, dir_okay=False))


@click.command()
@target_options
@_RULES
@click.option("--offline", is_flag=True, help="Do not ask the node whether queues exist.")
def check(target: Target, rules: Path, offline: bool) -> None:
    """Check a rules table: every fault with line and column, and what is seldom meant.

    RULES is a file, or - for standard input. Exit code 1 tells that there are faults.
    """
    from hms.client.letter_rules.rules_table import check_table  # noqa: PLC0415 - not for --help
    from hms.engine.selector.selector_fields import checked_selector  # noqa: PLC0415 - the same

    table, faults = check_table(_text(rules), checked_selector)
    warnings = list(table.warnings) if table is not None else []
    if table is not None and not offline:
        known = {one["name"] for one in target.administer("queue.list", fields="name")}
        warnings += missing_queues(table, known)
    count = len(table.rules) if table is not None else 0
    said = {
        "rules": count,
        "faults": [one._asdict() for one in faults],
        "warnings": [one._asdict() for one in warnings],
    }
    lines = [f"{rules}:{one}" for one in faults]
    lines += [f"{rules}:{one} (warning)" for one in warnings]
    lines.append(
        f"{rules}: {counted(count, 'rule')}, {counted(len(faults), 'fault')}, "
        f"{counted(len(warnings), 'warning')}"
    )
    target.say("\n".join(lines), said)
    if faults:
        sys.exit(1)


def missing_queues(table: "Table", known: Collection[str]) -> list[Any]:
    """Queues to which it forwards, and that the node does not have."""
    from hms.client.letter_rules.rule_tokens import Fault  # noqa: PLC0415 - not for --help

    wanted = {(rule.line, rule.to_queue) for rule in table.rules if not rule.to_node}
    return [
        Fault(line, 1, "FWDQ", f"there is no queue {name} now")
        for line, name in sorted(wanted)
        if name and not name.startswith("&") and name not in known
    ]


@click.command()
@target_options
@_RULES
@click.option("--queue", default="", help="Of this queue; else INPUTQ of the table, or HMS.DLQ.")
def handle(target: Target, rules: Path, queue: str) -> None:
    """Work on dead letters by a rules table, until its WAIT ends it; or Ctrl-C.

    SIGHUP reads the table again; one with faults changes nothing. Several may work on one queue.
    """
    from hms.client.letter_rules.rules_handler import RulesHandler  # noqa: PLC0415 - not for --help
    from hms.client.letter_rules.rules_table import read_table  # noqa: PLC0415 - the same
    from hms.engine.selector.selector_fields import checked_selector  # noqa: PLC0415 - the same

    table = read_table(_text(rules), str(rules), checked_selector)
    if table.control.input_node and not (target.address or target.node_name):
        target = Target(target.path, None, table.control.input_node, target.is_json)
    reload = _Reload(rules)
    with target.connection(client_name="hms dlq handle", reconnect=True) as connection:
        worker = RulesHandler(
            connection,
            table,
            queue,
            now_s=time.monotonic,
            time_ms=lambda: int(time.time() * 1000),
            sleep=time.sleep,
            told=_telling(target),
            new_table=reload.table,
        )
        try:
            worker.run()
        except KeyboardInterrupt:
            click.echo("interrupted; what was done is done", err=True)
        _say_counts(target, worker)


@click.command()
@target_options
@click.argument("name")
def reload(target: Target, name: str) -> None:
    """Have the node's handler [dlq.NAME] work by its rules table as it is now.

    A table with faults changes nothing: they are told, and the handler goes on by the old one.
    """
    from hms.boot.cli.servers import restarted  # noqa: PLC0415 - not for --help
    from hms.boot.entries import LETTERS  # noqa: PLC0415 - the same
    from hms.client.letter_rules.rules_table import read_table  # noqa: PLC0415 - the same
    from hms.engine.selector.selector_fields import checked_selector  # noqa: PLC0415 - the same

    known = target.config().letter_handlers
    if name not in known:
        names = ", ".join(known) or "none"
        raise click.UsageError(f"there is no [dlq.{name}] in {target.path}; it has {names}")
    rules = known[name].rules
    table = read_table(_text(rules), str(rules), checked_selector)
    restarted(target, f"{LETTERS}{name}", RELOAD_S)
    count = len(table.rules)
    target.say(f"{name} works by {counted(count, 'rule')} of {rules}", {"rules": count})


def _telling(target: Target) -> Callable[[Any], None]:
    def tell(one: Any) -> None:
        text = f"{one.letter} line {one.line} {one.action}"
        text += f" {one.to}" if one.to else ""
        text += f" at {one.node}" if one.node else ""
        text += f": failed: {one.fault}" if one.fault else ""
        said = {"letter": one.letter, "line": one.line, "action": one.action, "to": one.to}
        target.say(text, said | {"node": one.node, "fault": one.fault})

    return tell


def _say_counts(target: Target, worker: Any) -> None:
    counts, rules = worker.walk.counts, worker.walk.table.rules
    rows = [
        {
            "line": rule.line,
            "action": rule.action,
            "matched": counts.matched[at],
            "done": counts.done[at],
            "failed": counts.failed[at],
        }
        for at, rule in enumerate(rules)
    ]
    left, foreign = len(worker.walk.left), len(worker.walk.foreign)
    words = [
        f"line {one['line']} {one['action']}: {one['matched']} matched, {one['done']} done, "
        f"{one['failed']} failed"
        for one in rows
    ]
    words.append(f"{worker.queue}: {left} letters stay, {foreign} messages are no dead letters")
    target.say("\n".join(words), {"rules": rows, "left": left, "foreign": foreign})


class _Reload:
    """Reads the table again when the process is told to; the old one stays when it has faults."""

    def __init__(self, rules: Path) -> None:
        self._rules, self._is_wanted = rules, False
        if str(rules) != "-":
            signal.signal(signal.SIGHUP, self._want)

    def _want(self, *_: object) -> None:
        self._is_wanted = True

    def table(self) -> "Table | None":
        """A new one, once, when it was asked for and has no faults."""
        from hms.client.letter_rules.rules_table import read_table  # noqa: PLC0415 - as above
        from hms.engine.selector.selector_fields import checked_selector  # noqa: PLC0415 - the same
        from hms.errors.catalogue import RulesTableFaulty  # noqa: PLC0415 - the same

        if not self._is_wanted:
            return None
        self._is_wanted = False
        try:
            table = read_table(_text(self._rules), str(self._rules), checked_selector)
        except (OSError, RulesTableFaulty) as error:
            click.echo(f"{error}\n{self._rules}: the old table stays", err=True)
            return None
        click.echo(f"{self._rules}: {counted(len(table.rules), 'rule')} from now on", err=True)
        return table


def _text(rules: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(rules) == "-" else rules.read_bytes()
        return data.decode()
    except OSError as fault:
        raise click.ClickException(f"{rules} cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise click.ClickException(f"{rules}:{no_text(fault)}") from fault


def no_text(fault: UnicodeDecodeError) -> str:
    """Line, column and fault of bytes that are no UTF-8."""
    before = bytes(fault.object[: fault.start])
    line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode()) + 1
    return f"{line}:{column}: byte {fault.object[fault.start]:#04x} is no UTF-8"


@click.command()
@_RULES
@click.option("--config", "config_file", type=click.Path(path_type=Path), default="hms.conf")
@click.option("--store", type=click.Path(path_type=Path), help="The store; else of hms.conf.")
@click.option("--queue", default="", help="Of this queue; else INPUTQ of the table, or HMS.DLQ.")
@click.option("--from", "since", help="Letters that came at this time or later.")
@click.option("--until", help="Letters that came before this time.")
@click.option("--node", default="", help="The name of the node that had them, for DESTQM.")
@click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")
def simulate(rules: Path, config_file: Path, store: Path | None, queue: str, **rest: Any) -> None:
    """What a rules table would have done with the dead letters of the past (Spark)."""
    from hms.boot.cli.target import address_and_store  # noqa: PLC0415 - not for --help
    from hms.client.letter_rules.rules_table import read_table  # noqa: PLC0415 - the same
    from hms.engine.selector.selector_fields import checked_selector  # noqa: PLC0415 - the same
    from hms.history.rules_simulation import simulated  # noqa: PLC0415 - the same

    table = read_table(_text(rules), str(rules), checked_selector)
    place = store or address_and_store(config_file)[1]
    is_json = rest.pop("is_json")
    found = simulated(table, place, queue, **rest)
    if is_json:
        click.echo(json.dumps(found))
        return
    for one in found["rules"]:
        click.echo(
            f"line {one['line']} {one['action']}: {one['matched']} letters, "
            f"such as {' '.join(one['examples']) or 'none'}"
        )
    click.echo(f"{found['unmatched']} letters no rule takes, {found['again']} come back")
