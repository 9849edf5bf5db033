"""hms dlq at a terminal: what it asks, and what it refuses before it asks a node."""

import sys
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.cli.dead_letters import _together
from hms.boot.cli.messages import confirm


@pytest.mark.parametrize("command", ["list", "count", "return", "purge"])
def test_an_origin_without_its_kind_is_refused(command):
    """It fitted no letter, and at night nothing to return looks like good news."""
    said = CliRunner().invoke(main, ["dlq", command, "--origin", "orders"])

    assert said.exit_code == 2
    assert "write queue:orders or topic:orders" in said.output


@pytest.mark.parametrize("command", ["list", "count", "return", "purge"])
def test_a_reason_that_no_letter_can_have_is_refused_with_the_nearest(command):
    """A slip of the finger found no letter, as if there were none."""
    said = CliRunner().invoke(main, ["dlq", command, "--reason", "REDELIVRY_LIMIT"])

    assert said.exit_code == 2
    assert "did you mean 'REDELIVERY_LIMIT'" in said.output
    said = CliRunner().invoke(main, ["dlq", command, "--reason", "full disk"])
    assert "known are REDELIVERY_LIMIT, REJECTED" in said.output


def test_a_table_that_is_no_text_is_told_with_line_and_column(tmp_path):
    """As every other fault of one."""
    rules = tmp_path / "rules"
    rules.write_bytes("* caf\u00e9\nACTION(\u00e9".encode() + b"\xff)\n")
    said = CliRunner().invoke(main, ["dlq", "check", str(rules), "--offline"])
    assert (said.exit_code, f"{rules}:2:9: byte 0xff is no UTF-8" in said.output) == (1, True)


@pytest.mark.parametrize(("count", "is_asked"), [(0, False), (2, True)])
def test_nobody_is_asked_about_nothing(monkeypatch, count, is_asked):
    """Who said no to the empty HMS.DLQ was never asked about the queue with the letters."""
    asked = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))

    confirm("return", lambda: SimpleNamespace(count=count, ids=["1", "2"][:count]), is_sure=False)

    assert bool(asked) == is_asked


def test_letters_of_one_group_stand_together_the_largest_first():
    """In a list by time a wave of one reason hides between the letters of others."""
    reasons = ("EXPIRED", "REJECTED", "EXPIRED", "REJECTED", "QUEUE_FULL", "REJECTED")
    hours = (0, 0, 1, 0, 0, 2)
    rows = [
        {"id": number, "reason": reason, "at": 1_800_000_000_000 + hour * 3_600_000}
        for number, (reason, hour) in enumerate(zip(reasons, hours, strict=True))
    ]

    assert [row["id"] for row in _together(rows, None)] == [0, 1, 2, 3, 4, 5]
    assert [row["id"] for row in _together(rows, "reason")] == [1, 3, 5, 0, 2, 4]
    by_hour = _together(rows, "hour")
    assert [row["id"] for row in by_hour] == [0, 1, 3, 4, 2, 5]
    assert len({row["hour"] for row in by_hour}) == 3
