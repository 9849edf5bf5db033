"""The handler: carries out a rules table on the dead letters of a queue, over a connection.

Each action is one command of the node on one letter, with what it was and what it becomes in one
record; of a letter that is not there any more it does nothing. So any number of handlers may work
on one queue, and one that is killed at any step leaves each letter in one place.

What is forwarded to another node is done when that node has it. What it refuses is back in the
queue then, and the rule has failed. A letter whose node is cut off meanwhile is on its way: nobody
waits for it longer than FORWARD_WAIT_S, and it is seen anew when it comes back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hms.client.letter_rules.letter_fields import ASKED, fields_of
from hms.client.letter_rules.rule_patterns import LetterFields
from hms.client.letter_rules.rule_walk import Walk, destination_of, node_of
from hms.client.letter_rules.rules_table import DISCARD, RETRY, Rule, Table
from hms.errors.catalogue import DestinationNotFound, NotSupported
from hms.errors.tree import HmsError

__all__ = ["Done", "RulesHandler"]

DEAD_LETTER_QUEUE = "HMS.DLQ"
POLL_S = 1.0
FORWARD_WAIT_S, FORWARD_POLL_S = 10.0, 0.02
FORWARDED_AT_ONCE = 200
OUT = ("in_flight", "prepared")
"""States of letters that others have."""
EVERY = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Done:
    """One action. fault: why it failed; "" when it took effect; node: another one that got it."""

    letter: str
    line: int
    action: str
    to: str = ""
    fault: str = ""
    node: str = ""


class _Forwarded(NamedTuple):
    """A letter that is on its way to a queue of another node."""

    letter: LetterFields
    rule: Rule
    to: str
    node: str


class RulesHandler:
    """Works on one queue. now_s: a clock that runs evenly; time_ms: the time of day; sleep: waits
    so many seconds; told: is called with each action; new_table: gives another table, or None."""

    def __init__(
        self,
        connection: Any,
        table: Table,
        queue: str = "",
        *,
        now_s: Callable[[], float],
        time_ms: Callable[[], int],
        sleep: Callable[[float], object],
        told: Callable[[Done], object] = lambda _: None,
        new_table: Callable[[], Table | None] = lambda: None,
    ) -> None:
        self.queue = queue or table.control.input_queue or DEAD_LETTER_QUEUE
        self.walk = Walk(table)
        self._connection = connection
        self._now_s, self._sleep, self._told, self._new_table = now_s, sleep, told, new_table
        self._time_ms = time_ms
        self._after = 0
        self._forwarded: list[_Forwarded] = []
        self._paid_s: dict[int, float] = {}
        """When a rule with a rate may act again, by its line."""

    def run(self) -> None:
        """Until the table's WAIT says that it ends; work that is due to be tried again is waited
        for."""
        wait_s = self.walk.table.control.wait_s
        idle_since_s, rescan_s = self._now_s(), 0.0
        while True:
            table = self._new_table()
            if table is not None:
                self.walk, self._after, rescan_s = Walk(table), 0, 0.0
                wait_s = table.control.wait_s
            now_s = self._now_s()
            is_whole = now_s >= rescan_s
            if is_whole:
                rescan_s = now_s + self.walk.table.control.retry_s
            has_worked = self.scan(is_whole=is_whole)
            has_worked |= self.act() > 0
            now_s = self._now_s()
            if has_worked:
                idle_since_s = now_s
                continue
            due_s = self.walk.next_due_s()
            if due_s is None and wait_s is not None and now_s - idle_since_s >= wait_s:
                return
            ends_s = [now_s + POLL_S, *([due_s] if due_s is not None else [])]
            if due_s is None and wait_s is not None:
                ends_s.append(idle_since_s + wait_s)
            self._sleep(max(0.0, min(ends_s) - now_s))

    def scan(self, *, is_whole: bool) -> bool:
        """Look at what came since, or at everything; whether a letter is new."""
        self._after = 0 if is_whole else self._after
        before, seen, is_new = self._after, set[str](), False
        fits = self._fits(before)
        for row in self._rows(""):
            seen.add(row["id"])
            known = frozenset(text for text, ids in fits.items() if row["id"] in ids)
            name = str(self._connection.node_name)
            letter = fields_of(row, name, self._time_ms(), known)
            is_new |= self.walk.see(letter, self._now_s())
        if is_whole:
            self.walk.keep(seen)
        return is_new

    def _fits(self, after: int) -> dict[str, set[str]]:
        found = {}
        for selector in self.walk.table.selectors:
            found[selector] = {row["id"] for row in self._rows(selector)}
            self._after = after
        return found

    def _rows(self, selector: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        has_more, end = True, 0
        while has_more:
            arguments = {
                "place": f"queue:{self.queue}",
                "properties": " ".join(ASKED),
                "selector": selector,
                "after": self._after,
                "end": end,
            }
            said = self._connection.administer("message.list", arguments)
            rows += [row for row in said["messages"] if row["state"] not in OUT]
            has_more, end = said["has_more"], said["end"]
            self._after = max(self._after, said["after"])
        return rows

    def act(self) -> int:
        """Do what is due; how many letters were done with, or failed."""
        count = 0
        for letter, rule in self.walk.due(self._now_s()):
            if not self._may_act(rule):
                continue
            count += 1
            self._try(letter, rule)
            if len(self._forwarded) >= FORWARDED_AT_ONCE:
                self._await_forwarded()
        self._await_forwarded()
        return count

    def _try(self, letter: LetterFields, rule: Rule) -> None:
        is_forward = rule.action not in (DISCARD, RETRY)
        to, node = (destination_of(rule, letter), node_of(rule, letter)) if is_forward else ("", "")
        node = "" if node == self._connection.node_name else node
        try:
            is_done = self._act(rule, letter, to, node)
        except HmsError as error:
            self._fail(_Forwarded(letter, rule, to, node), str(error))
            return
        if not is_done:
            self.walk.gone(letter.id)
        elif node:
            self._forwarded.append(_Forwarded(letter, rule, to, node))
        else:
            self._done(_Forwarded(letter, rule, to, node))

    def _await_forwarded(self) -> None:
        """Until the other nodes have answered."""
        until_s = self._now_s() + FORWARD_WAIT_S
        while self._forwarded:
            ids = " ".join(one.letter.id for one in self._forwarded)
            asked = {"place": f"queue:{self.queue}", "ids": ids}
            said = self._connection.administer("message.forwarded", asked)
            under_way = set(said["ids"]) if self._now_s() < until_s else set()
            ended = [one for one in self._forwarded if one.letter.id not in under_way]
            self._forwarded = [one for one in self._forwarded if one.letter.id in under_way]
            for one in ended:
                if one.letter.id in said["refused"]:
                    self._fail(one, said["refused"][one.letter.id])
                else:
                    self._done(one)
            if self._forwarded:
                self._sleep(FORWARD_POLL_S)

    def _may_act(self, rule: Rule) -> bool:
        if not rule.rate:
            return True
        now_s = self._now_s()
        if self._paid_s.get(rule.line, 0.0) > now_s:
            return False
        self._paid_s[rule.line] = now_s + 1 / rule.rate
        return True

    def _done(self, one: _Forwarded) -> None:
        letter, rule, to, node = one
        self.walk.done(letter.id)
        self._told(Done(letter.id, rule.line, rule.action, to, node=node))

    def _fail(self, one: _Forwarded, text: str) -> None:
        letter, rule, to, node = one
        self.walk.failed(letter.id, self._now_s())
        self._told(Done(letter.id, rule.line, rule.action, to, text, node))

    def _act(self, rule: Rule, letter: LetterFields, to: str, node: str) -> bool:
        """Whether it took effect; False when the letter is not there any more. HmsError."""
        place: dict[str, Any] = {"place": f"queue:{self.queue}", "ids": letter.id}
        if rule.action == DISCARD:
            return bool(self._connection.administer("message.delete", place)["count"])
        if rule.is_with_context:
            place["is_from_sender"] = True
        if rule.action == RETRY:
            return self._sent_back({**place, "returns_max": EVERY}, letter)
        if not to:
            raise DestinationNotFound(kind="queue", destination=rule.to_queue)
        where = {**place, "to": to, **({"node": node} if node else {})}
        if not rule.keeps_header:
            return self._sent_back({**where, "returns_max": EVERY}, letter)
        return self._moved(self._connection.administer("message.move", where), to)

    def _moved(self, said: dict[str, Any], to: str) -> bool:
        for why in said.get("left", {}):
            raise NotSupported(feature=f"a move to {to} ({why})", instead="See the letter.")
        return bool(said["count"])

    def _sent_back(self, asked: dict[str, Any], letter: LetterFields) -> bool:
        said = self._connection.administer("dlq.return", asked)
        if said["left"]:
            why = next(iter(said["left"])).replace("_", " ")
            origin = letter.texts.get("DESTQ", "")
            raise NotSupported(feature=f"a return to {origin} ({why})", instead="See the letter.")
        return bool(said["count"])
