"""Pages of the console about backups: those in the node's folder, how old the last is, what a
verification has found, and making one.

A backup is made by a process of its own, which reads the store and writes the folder. The node
seals its log for who has begun it, with the login of the console's session: the process asks for
it, as it has no rights at the node.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hms.boot.counts import counted
from hms.boot.web.background_runs import Run, Runs
from hms.boot.web.console_audit import run_text
from hms.boot.web.console_orders import Form, Order, Refused, number_of
from hms.boot.web.console_pages import Shown, box
from hms.boot.web.console_sessions import ConsoleSession
from hms.boot.web.http_server import Answer, Request
from hms.boot.web.markup import (
    Html,
    alert,
    button,
    choice,
    field,
    form,
    link,
    shown,
    table,
    text,
    time_text,
)
from hms.boot.web.node_place import NodePlace
from hms.boot.web.page_group import PageGroup, see_other
from hms.errors.catalogue import BackupRefused
from hms.errors.tree import HmsError
from hms.history.backups.backup_chain import backups_in, chain_of
from hms.history.backups.backup_creation import remove_left
from hms.history.backups.backup_manifest import read_manifest
from hms.history.seals import seal

__all__ = ["BackupPages"]

ROWS = 25
ALERTS = ("backup_overdue", "ship_lag")
HOUR_MS = 3_600_000
MAKES = "make a backup"
BUSY = "Something is made or verified already; look again in a while."
SEALS_S = 60.0
IN_THE_LOG = (".log", ".pinned", ".audit")
Row = dict[str, Any]


class BackupPages:
    """place: of the node; runs: what makes or verifies one; clock: seconds since 1970."""

    def __init__(
        self, place: NodePlace, runs: Runs, clock: Callable[[], float] = time.time
    ) -> None:
        self._place, self._runs, self._clock = place, runs, clock
        self.pages = {"/backups": self._backups}
        self.orders: Mapping[str, Order] = {
            "verify_backup": Order("Verify", self._preview, self._verify, lambda _: "/backups")
        }
        self.group = PageGroup({"/backup": self._question}, {"/backup": self._make})

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
            return "Backups", [*parts, text(self._unknown())]
        if folder.exists() and not os.access(folder, os.R_OK | os.X_OK):
            said = f"hms web may not read {folder}."
            return "Backups", [*parts, Html(f'<p class="bad">{shown(said)}</p>')]
        every = sorted(backups_in(folder), reverse=True)
        before = request.argument("before")
        known = [path for path in every if path.name < before] if before else every
        rows = [self._row(path) for path in known[:ROWS]]
        parts += [self._age(every), *self._made(), text(link("/backup", "Make a backup"))]
        parts += _list(rows, len(every), folder, token)
        if len(known) > ROWS:
            older = link("/backups", "Older backups", before=known[ROWS - 1].name)
            parts.append(Html(f"<p>{older}</p>"))
        return "Backups", parts

    def _age(self, every: Sequence[Path]) -> Html:
        """Of the last one of this node, and whether it was recovered when it was made."""
        for path, created_ms in self._own(every):
            hours = max(0.0, self._clock() * 1000 - created_ms) / HOUR_MS
            return text(f"The last one of {self._place.name} is {hours:.1f} h old: {path.name}.")
        said = f"There is none of {self._place.name} among the last {ROWS}." if every else ""
        return Html(f'<p class="bad">{shown(said)}</p>') if said else Html()

    def _own(self, every: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """Those of this node among the last, the newest first, and when they were made."""
        for path in every[:ROWS]:
            try:
                one = read_manifest(path)
            except BackupRefused:
                continue
            if one.node == self._place.name:
                yield path, one.created_ms

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
            raise Refused(BUSY)
        return f"{path.name} is verified; look again in a while."

    # making one

    def _unknown(self) -> str:
        return f"Where they are is not known: set backups in [node.{self._place.name}]."

    def _folder(self) -> Path:
        """Where one can be made; Refused says why not."""
        node = self._place.node()
        if node.database is not None:
            raise Refused("The store is in a database: use the database's own tools.")
        if node.backups is None:
            raise Refused(self._unknown())
        there = next(path for path in (node.backups, *node.backups.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise Refused(f"hms web may not write to {there}: use hms backup create.")
        return node.backups

    def _question(self, _request: Request, session: ConsoleSession) -> tuple[str, list[Any]]:
        with session.connection() as connection:
            connection.administer("alert.list")  # who may see the page of backups
        folder, store = self._folder(), self._place.node().store
        free = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
        size = sum(_size(path) for path in store.glob("*") if path.suffix in IN_THE_LOG)
        said = (
            f"The node seals its log, and a process of its own copies it to {folder} and recovers "
            f"the copy: at most {counted(size, 'byte')}, and the files of messages; "
            f"{counted(free, 'byte')} are free there."
        )
        asked: list[Any] = [field("rate", "MiB a second at most; nothing: as fast as it goes")]
        if last := next(self._own(sorted(backups_in(folder), reverse=True)), None):
            asked.insert(0, choice("follows", f"Only what came after {last[0].name}"))
        parts = [*asked, button("Make a backup")]
        back = text(link("/backups", "All backups"))
        made = form("/backup", parts, {"token": session.token})
        return "Make a backup", [text(said), *self._made(), made, back]

    def _make(self, request: Request, session: ConsoleSession) -> Answer:
        given = {name: values[-1].strip() for name, values in request.form.items()}
        rate = number_of(given["rate"]) if given.get("rate") else 0
        if rate is None:
            raise Refused("A rate is a number of MiB a second.")
        folder = self._folder()
        last = next(self._own(sorted(backups_in(folder), reverse=True)), None)
        base = last[0].name if given.get("follows") and last is not None else ""
        if self._runs.is_busy:
            raise Refused(BUSY)
        request.take_time(SEALS_S)
        first = [_sealed(session, folder, base)]  # now: its user may not be permitted to

        def answers() -> Mapping[str, Any]:
            if first:
                return {"offset": first.pop()}
            try:
                return {"offset": _sealed(session, folder, base)}
            except HmsError as fault:
                return {"fault": str(fault)}

        where = ["--config", str(self._place.path), "--node", self._place.name]
        words = [sys.executable, "-P", "-m", "hms.boot", "backup", "create", "--json", *where]
        words += ["--attended", "--to", str(folder), *(["--since", base] if base else [])]
        words += ["--rate", str(rate)] if rate else []

        def ended(pid: int) -> None:
            remove_left(folder, pid)  # of one that was killed

        if not self._runs.begin(MAKES, words, answers, ended):
            raise Refused(BUSY)
        return see_other("/backups", "A backup is being made; look again in a while.")

    def _made(self) -> list[Html]:
        """What became of the last one that was begun here."""
        run = self._runs.of(MAKES)
        if run is None:
            return []
        if run.code is None:
            done, total = run.progress.get("done", 0), run.progress.get("total", 0)
            how = f"{done} of {counted(total, 'byte')} are copied"
            how = "it is recovered" if total and done == total else how
            return [text(f"A backup is being made since {_at(run.began_s)}: {how}.")]
        if not run.said:
            return [alert(f"{_at(run.ended_s)}: no backup was made: {run.fault}")]
        said = run.said
        return [
            text(
                f"{_at(run.ended_s)}: made {Path(said['backup']).name} in {said['seconds']} s: "
                f"{counted(said['bytes'], 'byte')}, up to {said['lsn']}, "
                f"{counted(said['waiting'], 'message')} wait."
            )
        ]


_COLUMNS = ("node", "at", "age, h", "follows", "up to", "bytes", "waiting")


def _list(rows: Sequence[Row], count: int, folder: Path, token: str) -> list[Html]:
    caption = f"{len(rows)} of {counted(count, 'backup')} in {folder}, the newest first"
    listed = table(rows, caption, f"There is no backup in {folder}.")
    chosen = [listed, button("Verify", "verify_backup")]
    return [form("/order", chosen, {"token": token}) if rows else listed]


def _sealed(session: ConsoleSession, folder: Path, base: str) -> int:
    """Over a connection of its own: a node may need a while for the next segment."""
    with closing(session.open()) as connection:
        return seal(connection, "backup.create", to=str(folder), base=base)


def _at(seconds: float) -> str:
    return time_text(int(seconds * 1000))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # it has another name by now


def _key(path: Path) -> str:
    return f"backup {path.name}"


def _verdict(run: Run) -> str:
    said = run.said
    return f"good, up to {said.get('lsn')}, {counted(said.get('waiting', 0), 'message')} wait"
