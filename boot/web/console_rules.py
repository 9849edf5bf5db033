"""Rules tables for dead letters in the console: their faults, and what each letter would get.

The same reader and the same matcher as the handler's look at the table and at the letters that wait
now. Nothing is done to them; what a table would have done in the past is for hms dlq simulate.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from hms.boot.cli.letter_rules import missing_queues, no_text
from hms.boot.counts import counted
from hms.boot.entries import LETTERS
from hms.boot.web.console_orders import Refused
from hms.boot.web.console_sessions import ConsoleSession
from hms.boot.web.http_server import Request
from hms.boot.web.markup import alert, area, button, field, form, link, table, text, typed
from hms.boot.web.page_group import PageGroup, Shown
from hms.client.letter_rules.letter_fields import ASKED, fields_of
from hms.client.letter_rules.rule_tokens import Fault
from hms.client.letter_rules.rule_walk import destination_of, node_of
from hms.client.letter_rules.rules_handler import DEAD_LETTER_QUEUE
from hms.client.letter_rules.rules_table import Rule, Table, check_table
from hms.engine.selector.selector_fields import checked_selector
from hms.errors.catalogue import NotAuthorized

__all__ = ["Rules", "RulesFile"]

TABLE_BYTES_MAX = 48 << 10
"""Of a table that is shown to be changed; a form takes no more, as it is sent."""
LETTERS_MAX = 1000
SHOWN = 100


class RulesFile(Protocol):
    """A table that the node has carried out, as hms.conf says."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def rules(self) -> Path:
        """Where it is."""

    @property
    def queue(self) -> str:
        """Whose letters it is for; "": as the table says."""


class Rules:
    """files: tables that the node has carried out; time_ms: the time of day."""

    def __init__(self, files: Iterable[RulesFile], time_ms: Callable[[], int]) -> None:
        self._files = {one.name: one for one in files}
        self._time_ms = time_ms
        self.group = PageGroup({"/rules": self._page}, {"/rules": self._tried})

    def _page(self, request: Request, session: ConsoleSession) -> Shown:
        name = request.argument("name")
        with session.connection() as connection:
            servers = {one["name"]: one for one in connection.administer("server.list")}
        parts: list[Any] = []
        rows = []
        for own, file in self._files.items():
            found, faults, fault = _read(file)
            server = servers.get(f"{LETTERS}{own}", {})
            rows.append(
                {
                    "handler": link("/rules", own, name=own),
                    "rules": len(found.rules) if found else 0,
                    "faults": len(faults) or fault,
                    "processes": len(server.get("pids", ())),
                    "restarts": server.get("restarts", ""),
                    "file": file.rules,
                }
            )
        parts.append(table(rows, "Tables that the node has carried out", "hms.conf has no [dlq]."))
        given, queue = "", ""
        if name in self._files:
            file = self._files[name]
            given, queue = _text_of(file), file.queue
            parts += _checked(check_table(given, checked_selector))
        elif name:
            parts.append(alert(f"hms.conf has no [dlq.{name}]."))
        parts.append(_asked(session, given, queue))
        return "Rules for dead letters", parts

    def _tried(self, request: Request, session: ConsoleSession) -> Shown:
        """What a table would do, now."""
        given = request.form.get("rules", [""])[-1].replace("\r\n", "\n")
        queue = request.form.get("queue", [""])[-1].strip()
        if not given.strip():
            raise Refused("The table is missing.")
        found, faults = check_table(given, checked_selector)
        parts = _checked((found, faults))
        if found is not None:
            parts += self._letters(session, found, queue)
        parts.append(_asked(session, given, queue))
        return "Rules for dead letters", parts

    def _letters(self, session: ConsoleSession, found: Table, queue: str) -> list[Any]:
        place = queue or found.control.input_queue or DEAD_LETTER_QUEUE
        with session.connection() as connection:
            missing = _missing(connection, found)
            every = connection.admin.messages(f"queue:{place}")
            rows = every.where(limit=LETTERS_MAX).list(ASKED)
            fits = {
                one: {row["id"] for row in every.where(selector=one, limit=LETTERS_MAX).list()}
                for one in found.selectors
            }
            node = str(connection.node_name)
        counts, listed, foreign = Counter[int](), list[dict[str, Any]](), 0
        for row in rows:
            known = frozenset(one for one, ids in fits.items() if row["id"] in ids)
            letter = fields_of(row, node, self._time_ms(), known)
            if not letter.is_letter or row["state"] in ("in_flight", "prepared"):
                foreign += 1
                continue
            at = next((n for n, rule in enumerate(found.rules) if rule.matches(letter)), -1)
            counts[at] += 1
            if len(listed) < SHOWN:
                rule = found.rules[at] if at >= 0 else None
                listed.append(
                    {
                        "letter": link("/message", row["id"], place=f"queue:{place}", id=row["id"]),
                        "reason": row["properties"].get("$DeadReason", ""),
                        "origin": row["properties"].get("$DeadOrigin", ""),
                        "line": rule.line if rule else "",
                        "action": _action(rule, letter) if rule else "stays: no rule takes it",
                    }
                )
        of_rules = [
            {"line": rule.line, "action": rule.action, "letters": counts[at]}
            for at, rule in enumerate(found.rules)
        ]
        said = f"Nothing is done to the letters. {counts[-1]} of them no rule takes"
        if foreign:
            said += f"; {counted(foreign, 'message')} are in flight or no dead letters"
        of_queue = ["--queue", queue] if queue else []
        command = shlex.join(["hms", "dlq", "simulate", "FILE", *of_queue])
        caption = f"The first {len(listed)} letters of {place}"
        if len(rows) == LETTERS_MAX:
            said += f"; of the first {LETTERS_MAX:,} messages"
        return [
            *missing,
            text(f"{said}."),
            table(of_rules, "By rule", ""),
            table(listed, caption, f"No dead letter in {place}."),
            text("What the table would have done with the letters of the past (Spark):"),
            typed(command),
        ]


def _action(rule: Rule, letter: Any) -> str:
    to, node = destination_of(rule, letter), node_of(rule, letter)
    target = f" to {to or '(no such queue)'}" if rule.to_queue else ""
    return f"{rule.action}{target}{f' at {node}' if node and rule.to_node else ''}"


def _read(file: RulesFile) -> tuple[Table | None, list[Fault], str]:
    """The table, its faults, and why it could not be read."""
    try:
        found, faults = check_table(_text_of(file), checked_selector)
    except Refused as why:
        return None, [], str(why)
    return found, faults, ""


def _text_of(file: RulesFile) -> str:
    try:
        if file.rules.stat().st_size > TABLE_BYTES_MAX:
            raise Refused(f"It has more than {TABLE_BYTES_MAX >> 10} KiB: use hms dlq check.")
        return file.rules.read_bytes().decode()
    except OSError as fault:
        raise Refused(f"It cannot be read: {fault.strerror}.") from fault
    except UnicodeDecodeError as fault:
        raise Refused(no_text(fault)) from fault


def _checked(checked: tuple[Table | None, list[Fault]]) -> list[Any]:
    """What is wrong with a table, or seldom meant, each with its place."""
    found, faults = checked
    parts: list[Any] = []
    if faults:
        parts.append(alert(f"The table has {counted(len(faults), 'fault')}: no handler takes it."))
        parts.append(_placed(faults, "Faults"))
    elif found is not None:
        rules, warnings = counted(len(found.rules), "rule"), found.warnings
        parts.append(text(f"{rules}, no fault, {counted(len(warnings), 'warning')}."))
        parts.append(_placed(warnings, "Warnings"))
    return parts


def _placed(faults: Any, caption: str) -> Any:
    rows = [one._asdict() for one in faults[:SHOWN]]
    more = f", the first {SHOWN} of {len(faults)}" if len(faults) > SHOWN else ""
    return table(rows, f"{caption}{more}", "")


def _missing(connection: Any, found: Table) -> list[Any]:
    """Warnings of queues that are not there, as far as the user may see which there are."""
    try:
        known = {one["name"] for one in connection.administer("queue.list", {"fields": "name"})}
    except NotAuthorized:
        return []
    missing = missing_queues(found, known)
    return [_placed(missing, "Queues that it forwards to")] if missing else []


def _asked(session: ConsoleSession, given: str, queue: str) -> Any:
    asked = [
        area("rules", "Rules table", given),
        field("queue", "Queue, else INPUTQ of the table", queue),
        button("Check, and say what each letter would get"),
    ]
    return form("/rules", asked, {"token": session.token})
