"""Pages of the console about the audit: its records, the newest first, and whether it is whole.

The records are read from the store, as by hms audit; whether somebody may is asked of the node.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hms.boot.audit_checks import verify_command
from hms.boot.counts import counted
from hms.boot.log_folder import log_folder
from hms.boot.stores import tables_of
from hms.boot.web.background_runs import Run, Runs
from hms.boot.web.console_orders import Form, Order, Refused
from hms.boot.web.console_pages import Shown
from hms.boot.web.http_server import Request
from hms.boot.web.markup import Html, button, field, form, join, link, shown, table, time_text
from hms.boot.web.node_place import NodePlace
from hms.errors.catalogue import NotAuthorized, NotSupported
from hms.history.audit_pages import AuditLog, AuditPage, Wanted, page_of_tables
from hms.records.audit import AuditEntry, details_of, result_of, why_of

__all__ = ["AuditPages", "run_text"]

ROWS = 100
DIGITS_MAX = 18
FIELDS = ("user", "command", "resource", "result")
VERIFY = "audit"
OPEN = Html("<p>This node is open: nothing is recorded. hms config secure has it audit.</p>")


class AuditPages:
    """place: of the node; runs: what verifies its audit."""

    def __init__(self, place: NodePlace, runs: Runs) -> None:
        self._place, self._runs = place, runs
        self._logs: dict[Path, AuditLog] = {}
        self.pages = {"/audit": self._audit, "/record": self._record}
        self.orders: Mapping[str, Order] = {
            "verify_audit": Order("Verify", self._preview, self._verify, lambda _: "/audit")
        }

    def _audit(self, connection: Any, request: Request, token: str) -> Shown:
        head = _head(connection)
        if head is None:
            return "Audit", [OPEN]
        asked = {name: request.argument(name).strip() for name in FIELDS}
        found = self._page(lambda one: _is_wanted(one, asked), _number(request, "before"))
        rows = [
            {
                "number": link("/record", one.number, number=one.number),
                "at": time_text(one.at_ms),
                "user": one.user,
                "from": one.source,
                "command": one.command,
                "action": one.action,
                "resource": one.resource,
                "result": result_of(one),
                "count": one.count,
            }
            for one in found.entries
        ]
        said = ("User", "Command has", "Resource has", "Result, such as ok or 1030")
        lines = [field(name, text, asked[name]) for name, text in zip(FIELDS, said, strict=True)]
        caption = f"{len(rows)} of {counted(head['number'], 'record')}, the newest first"
        return "Audit", [
            *_alerts(connection),
            Html(f"<p>{shown(run_text(self._runs.of(VERIFY), _verdict))}</p>"),
            form("/order", [button("Verify", "verify_audit")], {"token": token}),
            form("/audit", [*lines, button("Find")], {}, "get"),
            table(rows, caption, "No such record."),
            *_older(found, asked),
            Html(f"<p>To be kept elsewhere: {head['number']}:{shown(head['hash'])}</p>"),
        ]

    def _record(self, connection: Any, request: Request, _token: str) -> Shown:
        if _head(connection) is None:
            return "Audit", [OPEN]
        number = _number(request, "number")
        found = self._page(lambda one: one.number == number, number + 1, 1)
        back = Html(f"<p>{link('/audit', 'All records')}</p>")
        title = f"Record {number} of the audit"
        if not found.entries:
            return title, [back, Html("<p>There is no such record.</p>")]
        one, details = found.entries[0], details_of(found.entries[0])
        facts = {
            "at": time_text(one.at_ms),
            "user": one.user,
            "from": one.source,
            "command": one.command,
            "action": one.action,
            "resource": one.resource,
            "result": result_of(one),
            "count": one.count,
            "connection": details.connection or "",
            "client id": details.client_id,
            "why": why_of(one),
            "affected": "" if details.affected is None else details.affected,
            "before": _text(details.before),
            "after": _text(details.after),
            "previous": one.previous.hex(),
            "hash": one.hash.hex(),
        }
        rows = [{"what": name, "value": value} for name, value in facts.items()]
        words = Html(f"<h2>Arguments</h2><pre>{shown(one.arguments or '(none)')}</pre>")
        return title, [back, table(rows, "Record", ""), words]

    def _page(self, wanted: Wanted, before: int, limit: int = ROWS) -> AuditPage:
        config, node = self._place.config(), self._place.node()
        if node.database is None:
            folder = log_folder(node)
            if folder not in self._logs:
                self._logs = {folder: AuditLog(folder)}
            return self._logs[folder].page(wanted, before, limit)
        address, password = tables_of(config, node)
        return page_of_tables(address, password, wanted, before, limit)

    def _preview(self, connection: Any, _given: Form) -> str:
        number = connection.administer("audit.head")["number"]
        return (
            f"Reads all records up to number {number} in a process of its own; nothing is changed."
        )

    def _verify(self, connection: Any, _given: Form) -> str:
        connection.administer("audit.head")
        config, node = self._place.config(), self._place.node()
        if not self._runs.begin(VERIFY, verify_command(config, node)):
            raise Refused("Something is verified already; look again in a while.")
        return "The audit is verified; look again in a while."


def run_text(run: Run | None, verdict: Any) -> str:
    """What became of a verification; verdict: of what it said."""
    if run is None:
        return "It was not verified since this console was started."
    if run.code is None:
        return f"It is verified since {time_text(int(run.began_s * 1000))}."
    said = verdict(run) if run.said else f"it could not be verified: {run.fault}"
    return f"{time_text(int(run.ended_s * 1000))}: {said}"


def _verdict(run: Run) -> str:
    said = run.said
    if "records" in said:
        whole = counted(said["records"], "record is whole", "records are whole")
        return f"{whole}, from number {said['first']}"
    return f"BROKEN at record {said.get('broken', '?')}: {said.get('why', '')}"


def _head(connection: Any) -> dict[str, Any] | None:
    """The last record; None of a node that audits nothing. NotAuthorized."""
    try:
        found: dict[str, Any] = connection.administer("audit.head")
    except NotSupported:
        return None
    return found


def _alerts(connection: Any) -> list[Html]:
    """What the node itself has noticed, as far as the user may see it."""
    try:
        active = connection.administer("alert.list")["active"]
    except NotAuthorized:
        return []
    return [
        Html(f'<p class="bad">{shown(one["alert"])}: {shown(one["text"])}</p>')
        for one in active
        if one["alert"] == "audit_broken"
    ]


def _text(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items())


def _is_wanted(one: AuditEntry, asked: Mapping[str, str]) -> bool:
    return (
        asked["user"] in ("", one.user)
        and asked["command"] in one.command
        and asked["resource"] in one.resource
        and asked["result"] in ("", str(result_of(one)))
    )


def _older(found: AuditPage, asked: Mapping[str, str]) -> list[Html]:
    if not found.before:
        return []
    given = {name: value for name, value in asked.items() if value}
    cut = f"Looked at all from number {found.before} on. " if found.is_cut else ""
    further = link("/audit", "Older records", **given, before=found.before)
    return [Html(f"<p>{join([cut, further])}</p>")]


def _number(request: Request, name: str) -> int:
    text = request.argument(name)
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else 0
