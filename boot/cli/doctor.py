"""hms doctor and hms capacity."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.time_spans import SIZE, SPAN

if TYPE_CHECKING:
    from hms.boot.doctor.findings import Finding

__all__ = ["capacity", "doctor"]

ASK_S = 15.0

FAILED, WARNED = 1, 3


@click.command()
@target_options
@click.option("--fix", is_flag=True, help="Take the rights of others from store and keys.")
@click.option("--syncs", type=click.IntRange(10, 10_000), default=200, show_default=True)
@click.option(
    "--backups",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its backups are.  [default: backups of the node]",
)
def doctor(target: Target, fix: bool, syncs: int, backups: Path | None) -> None:
    """Whether machine, disk and configuration are fit for the node: ok, warn or fail, and the cure.

    Exit code 0: all well; 1: something failed; 3: there are warnings. It changes nothing without
    --fix; its syncs are done in a folder of their own beside the store, which is removed. A node
    that runs is asked for its dead letters, those of its cluster for their clocks.
    """
    from hms.boot.doctor.checks import Patient, Verdict, examine  # noqa: PLC0415 - not for --help
    from hms.boot.doctor.findings import found  # noqa: PLC0415
    from hms.boot.doctor.machine import Machine  # noqa: PLC0415
    from hms.errors.catalogue import ConfigError  # noqa: PLC0415

    if target.address:
        raise click.UsageError("hms doctor examines this machine, by --config")
    if not target.path.is_file():
        target.config()  # which says so
    try:
        config = target.config()
    except ConfigError as error:
        why = "the node does not boot with it"
        faulty = found("hms.configuration", Verdict.FAIL, str(error), why, "Correct it.")
        _tell(target, [faulty])
        click.get_current_context().exit(FAILED)

    def ask(node: str, verb: str) -> Any:
        return replace(target, node_name=node, timeout_s=ASK_S).administer(verb)

    patient = Patient(
        config, config.node(target.node_name), Machine(), syncs=syncs, ask=ask, backups=backups
    )
    findings = list(examine(patient))
    for one in findings:
        if fix and one.paths:
            for path in one.paths:
                path.chmod(path.stat().st_mode & 0o770)
    _tell(target, findings)
    verdicts = {one.verdict for one in findings}
    if Verdict.FAIL in verdicts:
        click.get_current_context().exit(FAILED)
    if Verdict.WARN in verdicts:
        click.get_current_context().exit(WARNED)


def _tell(target: Target, findings: "list[Finding]") -> None:
    rows = [
        {
            "check": one.check,
            "verdict": str(one.verdict),
            "value": one.value,
            "why": one.why,
            "cure": one.cure,
        }
        for one in findings
    ]
    if target.is_json:
        show_table(target, rows, empty="")
    else:
        for row in rows:
            click.echo(f"{row['verdict']:5} {row['check']:24} {row['value']}")
            if row["why"]:
                click.echo(f"      {row['why']}. {row['cure']}")


@click.command()
@target_options
@click.option("--rate", type=click.FloatRange(0), required=True, help="Messages a second.")
@click.option("--size", type=click.IntRange(0), required=True, help="Bytes of body and head.")
@click.option(
    "--durable", type=click.FloatRange(0, 1), default=1.0, help="Share of persistent ones."
)
@click.option("--backlog", type=click.IntRange(0), default=0, help="Messages that wait at most.")
@click.option("--retention", "retention_s", type=SPAN, default="1d", help="Of the history.")
@click.option("--disk", type=SIZE, default=0, help="Of the disk, such as 100GiB: when it is full.")
@click.option("--memory", "memory_max", type=SIZE, default="1GiB", help="max_memory_bytes.")
@click.option("--clients", type=click.IntRange(0), default=10, help="Connections.")
def capacity(target: Target, **given: Any) -> None:
    """What a load takes: memory, log, history, disk, network and processors; how long a boot reads,
    and what is full first when no consumer is left."""
    from hms.boot.doctor.capacity import Load, estimate  # noqa: PLC0415 - not for --help

    show_values(target, estimate(Load(**given)))
