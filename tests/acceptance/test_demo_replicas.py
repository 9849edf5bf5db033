"""The demonstration with three copies of one log, a short month, and how it refuses a silly number.

HMS_HA=full: the whole month.
"""

import os
import re

import pytest
from click.testing import CliRunner

from hms.boot.cli.demo import demo
from hms.boot.demo.replicas import DAYS, run
from hms.errors.catalogue import ArbiterUnavailable, InvalidArgument

IS_FULL = os.environ.get("HMS_HA") == "full"


@pytest.mark.skipif(not IS_FULL, reason="HMS_HA=full: it takes 20 s and more")
@pytest.mark.timeout(600)
def test_the_books_balance_after_the_machine_that_led_was_killed(capsys):
    """Nothing lost, nothing twice, and all three copies count again (must show 10)."""
    code = run(3, days=DAYS)
    said = capsys.readouterr().out

    assert code == 0, said
    assert "which led, was killed (kill -9)" in said
    assert "copies that count: a, b, c." in said
    counts = re.findall(r"^  [abc]( \(leads\))?: ([0-9,]+) sent flights$", said, re.MULTILINE)
    assert [leads for leads, _ in counts] == [" (leads)", ""]  # at the primary, at a standby
    (count,) = {int(number.replace(",", "")) for _, number in counts}
    assert f"{count:,} flights left New York" in said
    lines = [line.split() for line in said.splitlines() if line.startswith("FLIGHTS.")]
    assert [line[-1] for line in lines] == ["balance"] * 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--replicas", "1"], "a node has 2 to 7"),
        (["--replicas", "8"], "a node has 2 to 7"),
        (["--replicas", "3", "--nodes", "2"], "is in no cluster"),
    ],
)
def test_what_no_node_has_is_refused_before_anything_starts(words, told):
    """One copy is none to take over, and a node with copies is in no cluster."""
    result = CliRunner().invoke(demo, words)

    assert isinstance(result.exception, InvalidArgument)
    assert told in str(result.exception)


def test_without_an_arbiter_it_says_how_to_get_one(monkeypatch):
    """Nothing is started that could not decide who leads."""
    monkeypatch.setenv("PATH", "")
    result = CliRunner().invoke(demo, ["--replicas", "3"])

    assert isinstance(result.exception, ArbiterUnavailable)
    assert "etcd-server" in str(result.exception)
