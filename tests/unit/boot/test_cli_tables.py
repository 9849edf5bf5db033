"""Tables of the command line: rows, columns, order, times, and the width of a terminal."""

import json
import sys

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from hms.boot.cli.cells import ago, time_cell
from hms.boot.cli.tables import print_table, table_options

ROWS = [
    {"name": "orders", "waiting": 12, "paused": "", "bytes": 4_000, "sort": "", "x": 1, "z": 9},
    {"name": "bills", "waiting": 0, "paused": "BOTH", "bytes": 0, "sort": "", "x": 2, "z": 8},
    {"name": "orders.late", "waiting": 3, "paused": "", "bytes": 70, "sort": "", "x": 3, "z": 7},
]


@pytest.fixture
def table():
    """Run a command with one table."""

    def run(*words, rows=ROWS, is_json=False, columns=("name", "waiting"), times=()):
        @click.command()
        @table_options
        def show():
            print_table(rows, empty="none", is_json=is_json, columns=columns, times=times)

        return CliRunner().invoke(show, words)

    return run


def lines(said):
    return [line.split() for line in said.output.splitlines()]


def test_a_pipe_gets_the_usual_columns_at_full_length(table):
    """287 columns were no table."""
    assert lines(table())[:2] == [["name", "waiting"], ["orders", "12"]]


def test_without_usual_columns_the_first_six_are_shown(table):
    """A new command needs no list of its own."""
    assert lines(table(columns=()))[0] == ["name", "waiting", "paused", "bytes", "sort", "x"]


@pytest.mark.parametrize(
    ("words", "head"),
    [(["--wide"], list(ROWS[0])), (["--columns", "z, name"], ["z", "name"])],
)
def test_the_columns_can_be_chosen(table, words, head):
    """What is not shown is a word away."""
    assert lines(table(*words))[0] == head


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--sort", "waiting"], ["bills", "orders.late", "orders"]),
        (["--sort", "-name"], ["orders.late", "orders", "bills"]),
        (["--filter", "name=orders*"], ["orders", "orders.late"]),
        (["--filter", "paused!="], ["bills"]),
        (["--filter", "waiting>0", "--filter", "bytes<100"], ["orders.late"]),
        (["--filter", "waiting>=3"], ["orders", "orders.late"]),
    ],
)
def test_rows_are_chosen_and_ordered(table, words, names):
    """By any column, shown or not."""
    assert [line[0] for line in lines(table(*words))[1:]] == names


def test_json_has_every_column_unless_some_are_named(table):
    """Programs read it: what a terminal shows must not change it."""
    assert json.loads(table(is_json=True).output) == ROWS
    some = json.loads(table("--columns", "x", is_json=True).output)
    assert some == [{"x": 1}, {"x": 2}, {"x": 3}]


@pytest.mark.parametrize("words", [["--sort", "wating"], ["--columns", "q"], ["--filter", "name"]])
def test_a_wrong_word_is_told_with_what_there_is(table, words):
    """A mistyped column must not look like an empty table."""
    said = table(*words)

    assert said.exit_code == 2
    assert "there is no column" in said.output or "COLUMN=VALUE" in said.output


def test_a_terminal_of_80_columns_is_not_exceeded(table, monkeypatch, capsys):
    """Long names end with an ellipsis there, and the head is bold."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    rows = [{"name": "q" * 200, "waiting": 1, "about": "[red]not markup[/red]"}]

    print_table(rows, empty="none", is_json=False)

    said = capsys.readouterr().out
    plain = Console(force_terminal=False).render_str(said).plain
    assert "\x1b[1m" in said
    assert "…" in said
    assert "[red]" in said
    assert all(len(click.unstyle(line)) <= 80 for line in said.splitlines()), plain


def test_a_long_text_cuts_no_id_beside_it(monkeypatch, capsys):
    """The ids of dead letters were cut, and no command that takes one could be typed."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    row = {"id": "0100000002a8", "reason": "REJECTED", "origin": "queue:orders", "text": "no " * 90}

    print_table([row], empty="none", is_json=False)

    said = click.unstyle(capsys.readouterr().out)
    assert "0100000002a8  REJECTED  queue:orders  no no" in said
    assert all(len(line) <= 80 for line in said.splitlines())


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (192, "3 m 12 s ago"),
        (7_200, "2 h ago"),
        (-5_400, "in 1 h 30 m"),
        (200_000, "2 d 7 h ago"),
    ],
)
def test_a_terminal_tells_how_long_ago(seconds, said):
    """Two units are enough."""
    assert ago(seconds) == said


def test_a_pipe_tells_when():
    """A program wants the time itself."""
    assert time_cell(1_700_000_000_000, is_relative=False) == "2023-11-14T22:13:20.000+00:00"
    assert time_cell(0, is_relative=True) == ""
    assert time_cell(1_000, is_relative=True, now_ms=61_000) == "1 m ago"
