"""Lines of the log: what strangers choose cannot forge one, and what fails again is a line."""

import json
import logging
import os

import pytest

from hms.client.core.equal_events import EQUAL_MAX, EqualEvents
from hms.client.core.log_lines import form_of, make_formatter
from hms.client.core.repeated_failures import LINES_PER_S, PERIOD_S, RepeatedFailures


def _record(text, *arguments, **fields):
    record = logging.LogRecord("hms.node", logging.WARNING, "f.py", 1, text, arguments, None)
    vars(record).update(fields)
    return record


def test_an_event_is_an_object_on_a_line_with_its_fields():
    """What reads it asks for fields and splits no text."""
    form = make_formatter("JSON", {"node": "N1", "boot": "ab"})
    line = form.format(
        _record("alert\n%s", "x", event="alert_begins", alert="stuck_queue", args_=1)
    )
    said = json.loads(line)
    assert "\n" not in line
    assert (said["node"], said["boot"], said["level"]) == ("N1", "ab", "WARNING")
    assert (said["event"], said["text"], said["alert"]) == (
        "alert_begins",
        "alert\nx",
        "stuck_queue",
    )
    assert said["ts"].endswith("Z")
    assert "args_" not in said
    said = json.loads(form.format(_record("x")))
    assert (said["event"], said["logger"]) == ("hms.node", "hms.node")


def test_an_event_keeps_its_name_whatever_its_text_becomes():
    """With its arguments, in the sum of many, and as a failure that comes again."""
    form = make_formatter("JSON", {})

    def name_of(record):
        return json.loads(form.format(record))["event"]

    assert name_of(_record("node %s is ready", "N1")) == "node_ready"
    many = EqualEvents(clock=lambda: 0.0)
    for _ in range(EQUAL_MAX + 1):
        many.admits(_record("connection %s is lost: %s", "x", "it is silent"))
    (summary,) = many.over(at_once=True)
    assert summary.getMessage().startswith("1 more like this")
    assert name_of(summary) == "connection_lost"
    failures = RepeatedFailures()
    for _ in range(2):
        try:
            _failing(ValueError)
        except ValueError as error:
            again = _record("service %s failed", "PAY", name="tpmon.server")
            again.exc_info = type(error), error, error.__traceback__
        assert failures.filter(again)
    assert "(time 2)" in again.getMessage()
    assert name_of(again) == "service_failed"


def test_a_traceback_is_a_field():
    """Fifty lines in the midst of a file of objects are read by nothing."""
    try:
        _failing(ValueError)
    except ValueError as error:
        info = type(error), error, error.__traceback__
    record = _record("it failed")
    record.exc_info = info
    said = json.loads(make_formatter("JSON", {}).format(record))
    assert (said["error"], "boom" in said["traceback"]) == ("ValueError", True)


@pytest.mark.parametrize("where", ["a file", "the journal", "a file of a unit"])
def test_a_name_forges_no_line(where, tmp_path):
    """Nor moves the cursor of the terminal that shows it. What descends from a unit of systemd and
    writes to a file has the time in each line: the variable alone does not tell."""
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    about = os.fstat(fd)
    streams = {"a file": "", "the journal": f"{about.st_dev}:{about.st_ino}"}
    journal = streams.get(where, "8:123")
    form = make_formatter("TEXT", {}, {"JOURNAL_STREAM": journal}, fd)
    os.close(fd)
    line = form.format(
        _record("login of %s", "a\x1b[2J\r\n2026-01-01 00:00:00 CRITICAL all is lost")
    )
    assert line.splitlines()[1].startswith("  2026")
    assert "\\x1b[2J\\r" in line
    assert line.startswith("WARNING") is (where == "the journal")


def test_the_text_of_an_error_forges_no_line():
    """It may hold what a stranger sent."""
    try:
        _failing(lambda text: ValueError(f"{text}\x1b[2J\n2026-01-01 00:00:00 CRITICAL lost"))
    except ValueError as error:
        info = type(error), error, error.__traceback__
    record = _record("it failed")
    record.exc_info = info
    lines = make_formatter("TEXT", {}).format(record).splitlines()
    assert "\\x1b[2J" in lines[-2]
    assert lines[-1].startswith("  2026")


def _failing(kind):
    raise kind("boom\nof this")


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.getMessage(), bool(record.exc_info)))


@pytest.fixture
def lines():
    """A logger with the filter; its lines, a function that fails and a clock."""
    now, handler, logger = [0.0], _Lines(), logging.getLogger("hms.test.failures")
    repeated = RepeatedFailures(lambda: now[0])
    logger.addFilter(repeated)
    logger.addHandler(handler)

    def fail(kind=ValueError):
        try:
            _failing(kind)
        except ValueError:
            logger.exception("the listener of %s failed", "orders")

    yield handler.lines, fail, now
    logger.removeFilter(repeated)
    logger.removeHandler(handler)


def test_what_fails_again_is_a_line_with_its_count(lines):
    """25 failing messages, tried three times each, wrote 75 tracebacks in a second."""
    written, fail, now = lines
    for _ in range(75):
        fail()
    assert [has_traceback for _, has_traceback in written] == [True] + [False] * LINES_PER_S
    assert written[1] == ("the listener of orders failed: ValueError: boom of this (time 2)", False)
    now[0] += 1
    fail()
    text = "the listener of orders failed: ValueError: boom of this (time 76, 64 such lines were"
    assert written[-1][0].startswith(text)


def test_another_failure_and_one_after_a_while_have_their_traceback(lines):
    """What is new must not hide behind what is known."""
    written, fail, now = lines
    fail()
    fail(UnicodeError)
    now[0] += PERIOD_S
    fail()
    assert [has_traceback for _, has_traceback in written] == [True, True, True]


def test_lines_are_for_people_at_a_terminal_and_in_the_journal_and_json_elsewhere(tmp_path):
    """What collects a file asks for fields; who sees a terminal reads. A word of the configuration
    is obeyed, in small letters too."""
    ours, theirs = os.openpty()
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    about = os.fstat(fd)
    try:
        assert form_of("", {}, theirs) == "TEXT"
        assert form_of("", {}, fd) == "JSON"
        assert form_of("", {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}, fd) == "TEXT"
        assert form_of("", {"JOURNAL_STREAM": "8:1"}, fd) == "JSON"
        assert form_of("json", {}, theirs) == "JSON"
        assert form_of("TEXT", {}, fd) == "TEXT"
    finally:
        for one in (ours, theirs, fd):
            os.close(one)
