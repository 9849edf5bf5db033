"""What a handler does with a letter next (PUBSUB §15.6): no connection, no clock.

The first rule that means the letter is tried as often as it says, then the next one that does. What
no rule takes stays, as with ACTION(IGNORE), and is remembered. A restart forgets all of it.
"""

from collections import Counter
from dataclasses import dataclass, field

from hms.client.letter_rules.rule_patterns import LetterFields
from hms.client.letter_rules.rules_table import IGNORE, Rule, Table

__all__ = ["RuleCounts", "Walk", "destination_of", "node_of"]


@dataclass(slots=True)
class _Memo:
    """A letter that was seen and not removed. at: the rule; None: it stays."""

    letter: LetterFields
    at: int | None
    attempts: int = 0
    due_s: float = 0


@dataclass(slots=True)
class RuleCounts:
    """Of each rule, by its place: letters that it meant, actions done and actions failed."""

    matched: Counter[int] = field(default_factory=Counter)
    done: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)


class Walk:
    """The letters of one queue under one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.counts = RuleCounts()
        self.foreign: set[str] = set()
        """Messages that are no dead letters: never matched, told of now and then (DL-07)."""
        self._memos: dict[str, _Memo] = {}

    def see(self, letter: LetterFields, now_s: float) -> bool:
        """A letter is there; whether it was not known."""
        if not letter.is_letter:
            is_new = letter.id not in self.foreign
            self.foreign.add(letter.id)
            return is_new
        known = self._memos.get(letter.id)
        if known is not None:
            known.letter = letter
            return False
        self._memos[letter.id] = memo = _Memo(letter, 0, due_s=now_s)
        self._go_to(memo, 0, now_s)
        return True

    def due(self, now_s: float) -> list[tuple[LetterFields, Rule]]:
        """What is to be done now. What is ignored is done with."""
        found = []
        for memo in self._memos.values():
            while memo.at is not None and self.table.rules[memo.at].action == IGNORE:
                self.counts.done[memo.at] += 1
                memo.at = None
            if memo.at is not None and memo.due_s <= now_s:
                found.append((memo.letter, self.table.rules[memo.at]))
        return found

    def next_due_s(self) -> float | None:
        """When an action is tried again; None when nothing is left to be tried."""
        times = [memo.due_s for memo in self._memos.values() if memo.at is not None]
        return min(times, default=None)

    def done(self, letter_id: str) -> None:
        """Its action took effect."""
        memo = self._memos.pop(letter_id)
        assert memo.at is not None
        self.counts.done[memo.at] += 1

    def failed(self, letter_id: str, now_s: float) -> None:
        """Its action did not."""
        memo = self._memos[letter_id]
        assert memo.at is not None
        self.counts.failed[memo.at] += 1
        memo.attempts += 1
        if memo.attempts < self.table.rules[memo.at].attempts_max:
            memo.due_s = now_s + self.table.control.retry_s
        else:
            self._go_to(memo, memo.at + 1, now_s)

    def gone(self, letter_id: str) -> None:
        """Somebody else has taken it."""
        self._memos.pop(letter_id, None)
        self.foreign.discard(letter_id)

    def keep(self, letter_ids: set[str]) -> None:
        """These are all that are there: the others are forgotten."""
        for one in [known for known in self._memos if known not in letter_ids]:
            del self._memos[one]
        self.foreign &= letter_ids

    @property
    def left(self) -> list[str]:
        """Letters that stay: no rule takes them, or each that does has failed."""
        return [one for one, memo in self._memos.items() if memo.at is None]

    def _go_to(self, memo: _Memo, first: int, now_s: float) -> None:
        rules = self.table.rules
        matching = (i for i in range(first, len(rules)) if rules[i].matches(memo.letter))
        memo.at, memo.attempts, memo.due_s = next(matching, None), 0, now_s
        if memo.at is not None:
            self.counts.matched[memo.at] += 1


def destination_of(rule: Rule, letter: LetterFields) -> str:
    """The queue to which a rule forwards a letter; "" when its stand-in says none."""
    stands_for = {"&DESTQ": "DESTQ", "&REPLYQ": "REPLYQ"}.get(rule.to_queue)
    return letter.texts.get(stands_for, "") if stands_for else rule.to_queue


def node_of(rule: Rule, letter: LetterFields) -> str:
    """And the node; "" is this one."""
    stands_for = {"&DESTQM": "DESTQM", "&REPLYQM": "REPLYQM"}.get(rule.to_node)
    return letter.texts.get(stands_for, "") if stands_for else rule.to_node
