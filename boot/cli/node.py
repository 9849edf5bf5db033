"""hms boot, hms down and hms status."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import click

from hms.boot.cli.cells import timed, written_time
from hms.boot.cli.target import HEALTH_TELLS, Target, interruptible, show_values, target_options
from hms.boot.cli.values import value_options
from hms.boot.counts import counted
from hms.boot.entries import Config, Node
from hms.boot.log_folder import log_folder
from hms.boot.roles import role_of
from hms.boot.supervise import boot_node, end_node, find, run_in_foreground
from hms.errors.catalogue import ConnectionRefused

__all__ = ["boot", "down", "status"]

_USUAL = (
    ("node", "running", "pid", "role", "version", "listen", "uptime_s", "security", "alerts"),
    ("connections", "sessions", "services", "queues", "topics"),
    ("waiting", "in_flight", "waiting_bytes", "max_memory_bytes"),
    ("kind", "path", "live_bytes", "log_bytes", "pinned_bytes", "disk_free_bytes"),
)
"""What `hms status` shows without --wide, beside what is not 0 and stands not below."""
_INNER = frozenset(
    (
        *("last_lsn", "durable_lsn", "segments", "history_segments", "history_bytes"),
        *("pinned_segments", "appended_bytes", "rewritten_bytes"),
        *("write_amplification", "reserve_bytes", "lock_holds", "lock_held_max_ms"),
        *("lock_held_max_cpu_ms", "lock_held_max_by", "lock_held_max_of", "deleted_at_boot"),
    )
)


@click.command()
@target_options
@click.option("--warm", "start", flag_value="WARM", help="Recover everything, whatever BOOT says.")
@click.option("--cold", "start", flag_value="COLD", help="Delete what the store holds first.")
@click.option("--yes", "is_sure", is_flag=True, help="Delete without a question on a terminal.")
@click.option(
    "--standby", is_flag=True, help="Wait until the store can be taken over; returns at once."
)
@click.option("--foreground", is_flag=True, help="Stay the node's process instead of returning.")
@click.option(
    "--timeout", "timeout_s", type=float, default=120, show_default=True, help="Seconds to wait."
)
def boot(
    target: Target,
    start: str | None,
    is_sure: bool,
    standby: bool,
    foreground: bool,
    timeout_s: float,
) -> None:
    """Start the node and return when it is ready; exit code 1 tells that it is not.

    Without --node every node of the configuration is booted.
    """
    _refuse_address(target)
    config = target.config()
    nodes = target.nodes(config)
    if start == "COLD" and not is_sure and sys.stdin.isatty():
        _ask(nodes)
    if foreground:
        if len(nodes) > 1:
            raise click.UsageError("--foreground runs one node: name it with --node")
        run_in_foreground(config, nodes[0], start, standby=standby)
    for node in nodes:
        goes_on = f"{node.name}, where it was begun, boots on: hms status tells of it"
        with _Bar(node) as bar, interruptible(goes_on):
            process = boot_node(config, node, start, timeout_s, bar.show, standby=standby)
        if waiting := role_of(node, process.pid):
            what = f"{node.name} stands by (process {process.pid})"
            text = f"{what}, waits for {waiting['waits_for']}"
            target.say(text, {"node": node.name, **waiting})
            continue
        said = {"node": node.name, "pid": process.pid, "listen": list(node.listen)}
        text = f"{node.name} is ready at {', '.join(node.listen)} (process {process.pid})"
        if start == "COLD":
            said["deleted"] = deleted = int(_asked(config, node)["deleted_at_boot"])
            text += f"; {counted(deleted, 'message')} deleted"
        target.say(text, said)


def _ask(nodes: Sequence[Node]) -> None:
    """Whether what the stores hold is to be deleted; nothing is asked where there is nothing."""
    held = [(node, size) for node in nodes if (size := _store_bytes(log_folder(node)))]
    for node, size in held:
        click.confirm(
            f"A COLD boot deletes all that {node.name} holds in {node.store} "
            f"({size >> 20} MiB). Go on?",
            abort=True,
            err=True,
        )


def _store_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


class _Bar:
    """A bar of how much of the store is read, on a terminal and when it takes its time."""

    def __init__(self, node: Node) -> None:
        self._label = f"{node.name} reads its store"
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def show(self, done: int, total: int) -> None:
        """So many bytes of so many."""
        if self._bar is None:
            self._bar = click.progressbar(
                length=max(total, done), label=self._label, file=sys.stderr
            )
        self._bar.update(min(done, self._bar.length) - self._bar.pos)


@click.command()
@target_options
@click.option("--now", "is_prompt", is_flag=True, help="Stop without draining.")
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def down(target: Target, is_prompt: bool, timeout_s: float) -> None:
    """Stop the node: it takes no new work, finishes what it has begun, and ends.

    Without --node every running node of the configuration is stopped.
    """
    _refuse_address(target)
    nodes = target.nodes(target.config())
    running = [node for node in nodes if find(node)] or nodes[:1]
    for node in running:
        with interruptible(f"{node.name}, where it was told, stops: hms status tells when it has"):
            process = end_node(node, is_prompt=is_prompt, timeout_s=timeout_s)
        said = {"node": node.name, "pid": process.pid, "stopped": True}
        target.say(f"{node.name} is stopped (process {process.pid})", said)


@click.command()
@target_options
@value_options
def status(target: Target) -> None:
    """Show whether the node runs and what it does; exit code 1 tells that it does not, or does not
    answer."""
    if target.address:
        _show_status(target, target.administer("status"))
        return
    config = target.config()
    found = [_look_at(config, node) for node in target.nodes(config)]
    for at, said in enumerate(found):
        if at and not target.is_json:
            click.echo()
        _show_status(target, said)
    if not all(said["running"] and "fault" not in said for said in found):
        click.get_current_context().exit(1)


def _show_status(target: Target, said: dict[str, Any]) -> None:
    if not target.is_json and (told := said.get("recovery")):
        said = {**said, "recovery": _recovery_lines(told)}
    if not target.is_json and isinstance(alerts := said.get("alerts"), list):
        said = {**said, "alerts": [_alert_line(alert) for alert in alerts]}
    if not target.is_json and "since_ms" in said:
        said = timed(said, "since_ms", "since")
    if not target.is_json and (last := (said.get("replication") or {}).get("last_take_over")):
        last = {"last_take_over": timed(last, "at_ms", "at")}
        said = {**said, "replication": said["replication"] | last}
    show_values(target, said, usual=_USUAL, inner=_INNER)


def _alert_line(alert: Mapping[str, Any]) -> dict[str, str]:
    """As the node's log has it, with the time of its begin."""
    name = " ".join(filter(None, (alert["alert"], alert["destination"])))
    return {f"{name}:": alert["text"], "since": written_time(alert["since_ms"])}


def _recovery_lines(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A line for each resource manager, and for each transaction that waits for one."""
    lines: list[dict[str, Any]] = []
    for one in told.get("resources", ()):
        rest = {name: value for name, value in one.items() if name not in ("name", "state")}
        rest["since"] = written_time(rest.get("since", 0) * 1000)
        lines.append(
            {one["name"]: one["state"], **{k: value for k, value in rest.items() if value}}
        )
    return lines + [dict(one) for one in told.get("transactions", ())]


def _look_at(config: Config, node: Node) -> dict[str, Any]:
    """What is known of a node from outside, and what it tells itself."""
    process = find(node)
    said: dict[str, Any] = {"node": node.name, "running": process is not None}
    if process is None:
        return {**said, "log": str(node.log_file)}
    said["pid"] = process.pid
    if role := role_of(node, process.pid):
        return said | role
    try:
        return said | _asked(config, node)
    except ConnectionRefused as fault:
        return said | {"fault": f"{fault.reason}; {HEALTH_TELLS}", "log": str(node.log_file)}


def _asked(config: Config, node: Node) -> dict[str, Any]:
    target = Target(config.path, node.listen[0], node.name, is_json=False)
    return dict(target.administer("status"))


def _refuse_address(target: Target) -> None:
    if target.address:
        raise click.UsageError("processes are started and stopped by --config, not by --connect")
