"""The page of the console about backups: those in the node's folder, how old the last is, and what
a verification has found."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hms.boot.counts import counted
from hms.boot.web.background_runs import Run, Runs
from hms.boot.web.console_audit import run_text
from hms.boot.web.console_orders import Form, Order, Refused
from hms.boot.web.console_pages import Shown, box
from hms.boot.web.http_server import Request
from hms.boot.web.markup import Html, button, form, link, shown, table, time_text
from hms.boot.web.node_place import NodePlace
from hms.errors.catalogue import BackupRefused
from hms.history.backups.backup_chain import backups_in, chain_of
from hms.history.backups.backup_manifest import read_manifest

__all__ = ["BackupPages"]

ROWS = 25
ALERTS = ("backup_overdue", "ship_lag")
HOUR_MS = 3_600_000
Row = dict[str, Any]


class BackupPages:
    """place: of the node; runs: what verifies a backup; clock: seconds since 1970."""

    def __init__(
        self, place: NodePlace, runs: Runs, clock: Callable[[], float] = time.time
    ) -> None:
        self._place, self._runs, self._clock = place, runs, clock
        self.pages = {"/backups": self._backups}
        self.orders: Mapping[str, Order] = {
            "verify_backup": Order("Verify", self._preview, self._verify, lambda _: "/backups")
        }

    def _backups(self, connection: Any, request: Request, token: str) -> Shown:
        alerts = [
            {
                "alert": one["alert"],
                "since": time_text(one["since_ms"]),
                "why": one["text"],
            }
            for one in connection.administer("alert.list")["active"]
            if one["alert"] in ALERTS
        ]
        parts: list[Any] = [table(alerts, "Alerts", "No alert about backups.")]
        folder = self._place.node().backups
        if folder is None:
            text = f"Where they are is not known: set backups in [node.{self._place.name}]."
            return "Backups", [*parts, Html(f"<p>{shown(text)}</p>")]
        if folder.exists() and not os.access(folder, os.R_OK | os.X_OK):
            text = f"hms web may not read {folder}."
            return "Backups", [*parts, Html(f'<p class="bad">{shown(text)}</p>')]
        every = sorted(backups_in(folder), reverse=True)
        before = request.argument("before")
        known = [path for path in every if path.name < before] if before else every
        rows = [self._row(path) for path in known[:ROWS]]
        parts += [self._age(every), *_list(rows, len(every), folder, token)]
        if len(known) > ROWS:
            older = link("/backups", "Older backups", before=known[ROWS - 1].name)
            parts.append(Html(f"<p>{older}</p>"))
        return "Backups", parts

    def _age(self, every: Sequence[Path]) -> Html:
        """Of the last one of this node, and whether it was recovered when it was made."""
        for path in every[:ROWS]:
            try:
                one = read_manifest(path)
            except BackupRefused:
                continue
            if one.node == self._place.name:
                hours = max(0.0, self._clock() * 1000 - one.created_ms) / HOUR_MS
                said = f"The last one of {one.node} is {hours:.1f} h old: {path.name}."
                return Html(f"<p>{shown(said)}</p>")
        text = f"There is none of {self._place.name} among the last {ROWS}." if every else ""
        return Html(f'<p class="bad">{shown(text)}</p>') if text else Html()

    def _row(self, path: Path) -> Row:
        verdict = run_text(self._runs.of(_key(path)), _verdict) if self._is_run(path) else ""
        row: Row = {"choose": box(path.name), "name": path.name}
        try:
            one = read_manifest(path)
        except BackupRefused as fault:
            return {**row, **dict.fromkeys(_COLUMNS, ""), "verified": shown(str(fault))}
        made = "no: shipped" if one.is_shipped else "when it was made"
        return {
            **row,
            "node": one.node,
            "at": time_text(one.created_ms),
            "age, h": f"{max(0.0, self._clock() * 1000 - one.created_ms) / HOUR_MS:.1f}",
            "follows": one.base or "none: it is full",
            "up to": one.until_lsn - 1,
            "bytes": sum(file.bytes for file in one.files),
            "waiting": sum(one.counts.values()),
            "verified": verdict or made,
        }

    def _is_run(self, path: Path) -> bool:
        return self._runs.of(_key(path)) is not None

    def _chosen(self, given: Form) -> Path:
        """One that is there: a name from a form leads nowhere else."""
        names = [one for one in given.get("id", []) if one]
        if len(names) != 1:
            raise Refused("Choose one backup.")
        folder = self._place.node().backups
        known = {} if folder is None else {path.name: path for path in backups_in(folder)}
        if names[0] not in known:
            raise Refused("There is no such backup.")
        return known[names[0]]

    def _preview(self, connection: Any, given: Form) -> str:
        connection.administer("alert.list")  # who may see the page
        chain = chain_of(self._chosen(given))
        size = sum(file.bytes for _, one in chain for file in one.files)
        return (
            f"Reads {counted(len(chain), 'backup')}, {counted(size, 'byte')}, and recovers the log"
            " in a process of its own; nothing is changed."
        )

    def _verify(self, connection: Any, given: Form) -> str:
        path = self._chosen(given)
        connection.administer("backup.verify", {"backup": str(path)})
        about = ["--json", "--config", str(self._place.path), "--node", self._place.name]
        words = [sys.executable, "-P", "-m", "hms.boot", "backup", "verify", *about, str(path)]
        if not self._runs.begin(_key(path), words):
            raise Refused("Something is verified already; look again in a while.")
        return f"{path.name} is verified; look again in a while."


_COLUMNS = ("node", "at", "age, h", "follows", "up to", "bytes", "waiting")


def _list(rows: Sequence[Row], count: int, folder: Path, token: str) -> list[Html]:
    caption = f"{len(rows)} of {counted(count, 'backup')} in {folder}, the newest first"
    listed = table(rows, caption, f"There is no backup in {folder}.")
    chosen = [listed, button("Verify", "verify_backup")]
    return [form("/order", chosen, {"token": token}) if rows else listed]


def _key(path: Path) -> str:
    return f"backup {path.name}"


def _verdict(run: Run) -> str:
    said = run.said
    return f"good, up to {said.get('lsn')}, {counted(said.get('waiting', 0), 'message')} wait"
