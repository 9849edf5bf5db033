"""A rules table, read and checked (PUBSUB §15.2 to 15.5).

All faults of a table are told at once, each with its line and column. A table without faults may
have warnings: what is legal, and seldom meant.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from hms.client.letter_rules.rule_lines import LINE_MAX, Entry, entries_of
from hms.client.letter_rules.rule_patterns import (
    Comparison,
    Field,
    LetterFields,
    NumberPattern,
    Selected,
    TextPattern,
)
from hms.client.letter_rules.rule_symbols import NUMBER_MAX, SYMBOLS
from hms.client.letter_rules.rule_tokens import Fault, Part, TableSyntaxError, parts_of
from hms.errors.catalogue import RulesTableFaulty, SelectorSyntaxError

__all__ = ["Control", "Rule", "Table", "check_table", "read_table"]

DISCARD, IGNORE, RETRY, FWD = "DISCARD", "IGNORE", "RETRY", "FWD"
ACTIONS = (DISCARD, IGNORE, RETRY, FWD)
CONTROL = ("INPUTQ", "INPUTQM", "RETRYINT", "WAIT", "EXTENSIONS", "LENGTHS")
NAME_MAX = 255
DIGITS_MAX = 11
TEXTS = {
    "APPLIDAT": 32,
    "APPLNAME": 28,
    "DESTQ": 48,
    "DESTQM": 48,
    "FORMAT": 8,
    "REPLYQ": 48,
    "REPLYQM": 48,
    "USERID": 12,
}
"""With the length that IBM's fields have."""
EXTENSIONS = ("AGE", "COUNT", "RETURNS", "RATE", "SELECTOR")
OF_ACTION = ("ACTION", "FWDQ", "FWDQM", "HEADER", "PUTAUT", "RETRY")
RULE_WORDS = (*TEXTS, *SYMBOLS, *OF_ACTION, *EXTENSIONS)
_COMPARED = re.compile(r"([<>=])(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Control:
    """The control entry. wait_s None: for ever; input_queue, input_node "": not said."""

    input_queue: str = ""
    input_node: str = ""
    retry_s: int = 60
    wait_s: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. attempts_max: in all, for a letter; rate: so many actions a second, 0 any."""

    line: int
    action: str
    patterns: tuple[Field, ...] = ()
    to_queue: str = ""
    to_node: str = ""
    keeps_header: bool = True
    is_with_context: bool = False
    attempts_max: int = 1
    rate: int = 0

    def matches(self, letter: LetterFields) -> bool:
        """Whether it means a letter."""
        return all(pattern.matches(letter) for pattern in self.patterns)

    @property
    def is_for_all(self) -> bool:
        """Whether it means every letter."""
        every = (TextPattern, NumberPattern)
        return all(isinstance(p, every) and p.value in ("*", None) for p in self.patterns)


@dataclass(frozen=True, slots=True)
class Table:
    """A table without faults."""

    control: Control
    rules: tuple[Rule, ...]
    warnings: tuple[Fault, ...] = ()

    @property
    def selectors(self) -> list[str]:
        """Those that its rules ask for."""
        every = [one for rule in self.rules for one in rule.patterns]
        return sorted({one.selector for one in every if isinstance(one, Selected)})


CheckSelector = Callable[[str], object]
"""Raises SelectorSyntaxError; what a client imports knows no selectors."""


@dataclass(slots=True)
class _Reading:
    """What was read so far. is_ibm: fields have IBM's lengths."""

    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    control: Control = field(default_factory=Control)
    rules: list[Rule] = field(default_factory=list)
    has_extensions: bool = False
    is_ibm: bool = False
    check_selector: CheckSelector = lambda _: None

    def fault(self, part: Part, text: str, *, of_value: bool = True) -> None:
        """Something is wrong with a keyword or its value."""
        at = part.value_at if of_value else part.at
        self.faults.append(Fault(at.line, at.column, part.keyword, text))


def read_table(
    text: str, name: str = "rules", check_selector: CheckSelector = lambda _: None
) -> Table:
    """A table from its text; RulesTableFaulty, which has every fault."""
    table, faults = check_table(text, check_selector)
    if table is None:
        lines = "\n".join(f"{name}:{fault}" for fault in faults)
        raise RulesTableFaulty(report=lines)
    return table


def check_table(
    text: str, check_selector: CheckSelector = lambda _: None
) -> tuple[Table | None, list[Fault]]:
    """The table, None when it has faults, and these."""
    reading = _Reading(check_selector=check_selector)
    for at, entry in enumerate(entries_of(text)):
        _read_entry(reading, entry, is_first=at == 0)
    if not reading.rules and not reading.faults:
        last = text.count("\n") + 1
        reading.faults.append(Fault(last, 1, "", "the table has no rule"))
    if reading.faults:
        return None, sorted(reading.faults)
    _look_over(reading, text)
    warnings = tuple(sorted(reading.warnings))
    return Table(reading.control, tuple(reading.rules), warnings), []


def _read_entry(reading: _Reading, entry: Entry, *, is_first: bool) -> None:
    parts: dict[str, Part] = {}
    before = len(reading.faults)
    try:
        for part in parts_of(entry):
            if part.keyword in parts:
                reading.fault(part, "it stands in this entry already", of_value=False)
            elif part.keyword not in (*CONTROL, *RULE_WORDS):
                reading.fault(part, _unknown(part.keyword), of_value=False)
            else:
                parts[part.keyword] = part
    except TableSyntaxError as error:
        reading.faults.append(error.fault)
    control = [part for word, part in parts.items() if word in CONTROL]
    of_rule = [part for word, part in parts.items() if word not in CONTROL]
    if control and not is_first:
        reading.fault(control[0], "the control entry is the first of a table", of_value=False)
    elif control and of_rule:
        reading.fault(of_rule[0], "the control entry has no keywords of a rule", of_value=False)
    elif control:
        _read_control(reading, parts)
    else:
        _read_rule(reading, entry, parts, is_whole=len(reading.faults) == before)


def _unknown(word: str) -> str:
    near = get_close_matches(word, (*CONTROL, *RULE_WORDS), 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no such keyword{hint}"


# control


def _read_control(reading: _Reading, parts: dict[str, Part]) -> None:
    given: dict[str, object] = {}
    for word, name in (("INPUTQ", "input_queue"), ("INPUTQM", "input_node")):
        if word in parts:
            given[name] = _name(reading, parts[word], may_be_blank=True)
    if "RETRYINT" in parts:
        given["retry_s"] = _number(reading, parts["RETRYINT"], 1)
    if (wait := parts.get("WAIT")) is not None:
        words = {"YES": None, "NO": 0}
        is_word = wait.value in words
        given["wait_s"] = words[wait.value] if is_word else _number(reading, wait, 0)
    for word, wanted in (("EXTENSIONS", ("YES", "NO")), ("LENGTHS", ("IBM", "HMS"))):
        if word in parts and parts[word].value not in wanted:
            reading.fault(parts[word], f"it is {' or '.join(wanted)}")
    reading.has_extensions = "EXTENSIONS" in parts and parts["EXTENSIONS"].value == "YES"
    reading.is_ibm = "LENGTHS" in parts and parts["LENGTHS"].value == "IBM"
    reading.control = Control(**given)  # type: ignore[arg-type]


def _number(reading: _Reading, part: Part, least: int) -> int:
    if part.value.isascii() and part.value.isdigit() and len(part.value) <= DIGITS_MAX:
        value = int(part.value)
        if least <= value <= NUMBER_MAX:
            return value
    words = "YES, NO or " if part.keyword == "WAIT" else ""
    reading.fault(part, f"it is {words}a number from {least} to {NUMBER_MAX}")
    return least


# rules


def _read_rule(reading: _Reading, entry: Entry, parts: dict[str, Part], *, is_whole: bool) -> None:
    patterns = [
        found
        for word, part in parts.items()
        if word not in OF_ACTION and (found := _pattern(reading, part)) is not None
    ]
    action = parts.get("ACTION")
    if action is None:
        if is_whole:
            reading.faults.append(Fault(entry.line, 1, "ACTION", "it is missing in this rule"))
        return
    if action.value not in ACTIONS:
        near = get_close_matches(action.value, ACTIONS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        reading.fault(action, f"it is {', '.join(ACTIONS)}{hint}")
        return
    is_forward = action.value == FWD
    for word in ("FWDQ", "FWDQM", "HEADER"):
        if word in parts and not is_forward:
            reading.fault(parts[word], f"it goes with ACTION({FWD}) only", of_value=False)
    if is_forward and "FWDQ" not in parts:
        reading.fault(action, "FWDQ is missing: where to")
    rate = parts.get("RATE")
    reading.rules.append(
        Rule(
            entry.line,
            action.value,
            tuple(patterns),
            _target(reading, parts.get("FWDQ"), ("&DESTQ", "&REPLYQ")),
            _target(reading, parts.get("FWDQM"), ("&DESTQM", "&REPLYQM")),
            _choice(reading, parts.get("HEADER"), ("YES", "NO")) != "NO",
            _choice(reading, parts.get("PUTAUT"), ("DEF", "CTX")) == "CTX",
            _number(reading, parts["RETRY"], 1) if "RETRY" in parts else 1,
            _number(reading, rate, 1) if rate is not None else 0,
        )
    )


def _choice(reading: _Reading, part: Part | None, words: tuple[str, str]) -> str:
    if part is not None and part.value not in words:
        reading.fault(part, f"it is {' or '.join(words)}")
    return "" if part is None else part.value


def _target(reading: _Reading, part: Part | None, stand_ins: tuple[str, str]) -> str:
    if part is None:
        return ""
    if part.value.startswith("&") and not part.is_quoted:
        if part.value not in stand_ins:
            reading.fault(part, f"of the names with & it knows {' and '.join(stand_ins)}")
        return part.value
    return _name(reading, part, may_be_blank=part.keyword == "FWDQM")


def _name(reading: _Reading, part: Part, *, may_be_blank: bool) -> str:
    value = part.value.rstrip(" ")
    if not value and not may_be_blank:
        reading.fault(part, "a name is needed")
    if "*" in value or "?" in value:
        reading.fault(part, "no wildcards are allowed here")
    _check_length(reading, part, value, 48)
    _warn_of_case(reading, part)
    return value


def _check_length(reading: _Reading, part: Part, value: str, of_ibm: int) -> None:
    limit = of_ibm if reading.is_ibm or part.keyword == "FORMAT" else NAME_MAX
    length = len(value.replace("*", ""))
    if length > limit:
        reading.fault(part, f"{length} letters are more than the {limit} of the field")


def _warn_of_case(reading: _Reading, part: Part) -> None:
    if part.was_lower:
        at, text = part.value_at, f"without quotes it is {part.value}; names of HMS have case"
        reading.warnings.append(Fault(at.line, at.column, part.keyword, text))


def _pattern(reading: _Reading, part: Part) -> Field | None:
    if part.keyword in EXTENSIONS:
        return _extension(reading, part)
    if part.keyword in SYMBOLS:
        return _numeric(reading, part)
    _check_length(reading, part, part.value, TEXTS[part.keyword])
    if part.keyword in ("DESTQ", "REPLYQ"):
        _warn_of_case(reading, part)
    return TextPattern(part.keyword, part.value)


def _extension(reading: _Reading, part: Part) -> Field | None:
    if not reading.has_extensions:
        reading.fault(part, "it needs EXTENSIONS(YES) in the control entry", of_value=False)
        return None
    if part.keyword == "RATE":
        return None
    if part.keyword == "SELECTOR":
        return _selector(reading, part)
    found = _COMPARED.fullmatch(part.value)
    if found is None:
        reading.fault(part, "it is <, > or = with a number, such as >3600")
        return None
    return Comparison(part.keyword, found[1], int(found[2]))


def _selector(reading: _Reading, part: Part) -> Field | None:
    """The node judges letters by it, and would refuse each look at them."""
    try:
        reading.check_selector(part.value)
    except SelectorSyntaxError as fault:
        reading.fault(part, str(fault))
        return None
    return Selected(part.value)


def _numeric(reading: _Reading, part: Part) -> NumberPattern:
    value = part.value.strip(" ")
    known = SYMBOLS[part.keyword]
    if value == "*":
        return NumberPattern(part.keyword, None)
    if value in known:
        return NumberPattern(part.keyword, known[value])
    if value.isascii() and value.isdigit():
        if len(value) <= DIGITS_MAX and int(value) <= NUMBER_MAX:
            return NumberPattern(part.keyword, int(value))
        reading.fault(part, f"a number is at most {NUMBER_MAX}")
    else:
        near = get_close_matches(value, known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        reading.fault(part, f"it is a number, a name of one, or * alone{hint}")
    return NumberPattern(part.keyword, None)


# looked over


def _look_over(reading: _Reading, text: str) -> None:
    add: Callable[[Fault], None] = reading.warnings.append
    for number, line in enumerate(text.split("\n"), 1):
        if len(line.rstrip()) > LINE_MAX:
            add(Fault(number, LINE_MAX + 1, "", f"more than {LINE_MAX} letters"))
    _look_behind(reading.rules, add)
    for rule in reading.rules:
        if rule.action == IGNORE:
            add(Fault(rule.line, 1, "ACTION", "what is ignored stays: forward it instead"))


def _look_behind(rules: Iterable[Rule], add: Callable[[Fault], None]) -> None:
    for_all: Rule | None = None
    for rule in rules:
        if for_all is not None and for_all.attempts_max == 1 and for_all.action != RETRY:
            text = f"it stands behind the rule of line {for_all.line}, which means every letter"
            add(Fault(rule.line, 1, "", text))
        for_all = for_all or (rule if rule.is_for_all else None)
    if for_all is None:
        add(Fault(1, 1, "", "no rule means every letter: some may stay for ever"))
