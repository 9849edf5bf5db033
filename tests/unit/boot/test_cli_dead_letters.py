"""hms dlq at a terminal: what it asks, and what it refuses before it asks a node."""

import sys
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.cli.messages import confirm


@pytest.mark.parametrize("command", ["list", "count", "return", "purge"])
def test_an_origin_without_its_kind_is_refused(command):
    """It fitted no letter, and at night nothing to return looks like good news."""
    said = CliRunner().invoke(main, ["dlq", command, "--origin", "orders"])

    assert said.exit_code == 2
    assert "write queue:orders or topic:orders" in said.output


@pytest.mark.parametrize(("count", "is_asked"), [(0, False), (2, True)])
def test_nobody_is_asked_about_nothing(monkeypatch, count, is_asked):
    """Who said no to the empty HMS.DLQ was never asked about the queue with the letters."""
    asked = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))

    confirm("return", lambda: SimpleNamespace(count=count, ids=["1", "2"][:count]), is_sure=False)

    assert bool(asked) == is_asked
