"""hms doctor and hms capacity."""

from typing import Any

import click

from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.time_spans import SPAN

__all__ = ["capacity", "doctor"]

FAILED, WARNED = 1, 3


@click.command()
@target_options
@click.option("--fix", is_flag=True, help="Take the rights of others from store and keys.")
@click.option("--syncs", type=click.IntRange(10, 10_000), default=200, show_default=True)
def doctor(target: Target, fix: bool, syncs: int) -> None:
    """Whether machine, disk and configuration are fit for the node: ok, warn or fail, and the cure.

    Exit code 0: all well; 1: something failed; 3: there are warnings. It changes nothing without
    --fix; its syncs are done in a folder of their own beside the store, which is removed.
    """
    from hms.boot.doctor.checks import Patient, Verdict, examine  # noqa: PLC0415 - not for --help
    from hms.boot.doctor.machine import Machine  # noqa: PLC0415

    if target.address:
        raise click.UsageError("hms doctor examines this machine, by --config")
    config = target.config()
    patient = Patient(config, config.node(target.node_name), Machine(), syncs=syncs)
    findings = list(examine(patient))
    for one in findings:
        if fix and one.paths:
            for path in one.paths:
                path.chmod(path.stat().st_mode & 0o770)
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
    verdicts = {one.verdict for one in findings}
    if Verdict.FAIL in verdicts:
        click.get_current_context().exit(FAILED)
    if Verdict.WARN in verdicts:
        click.get_current_context().exit(WARNED)


@click.command()
@target_options
@click.option("--rate", type=click.FloatRange(0), required=True, help="Messages a second.")
@click.option("--size", type=click.IntRange(0), required=True, help="Bytes of body and head.")
@click.option(
    "--durable", type=click.FloatRange(0, 1), default=1.0, help="Share of persistent ones."
)
@click.option("--backlog", type=click.IntRange(0), default=0, help="Messages that wait at most.")
@click.option("--retention", "retention_s", type=SPAN, default="1d", help="Of the history.")
@click.option("--clients", type=click.IntRange(0), default=10, help="Connections.")
def capacity(target: Target, **given: Any) -> None:
    """What a load takes: memory, log, history, disk and network."""
    from hms.boot.doctor.capacity import Load, estimate  # noqa: PLC0415 - not for --help

    show_values(target, estimate(Load(**given)))
