"""Tables of the command line: rows, columns, order, times, and the width of a terminal."""

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from hms.boot.cli import tables
from hms.boot.cli.cells import ago, time_cell
from hms.boot.cli.tables import print_table, table_options
from hms.boot.cli.target import Target, show_values
from hms.boot.cli.values import print_values, value_options


@pytest.fixture
def on_a_terminal(monkeypatch, capsys):
    """What something prints on a terminal of 80 columns."""

    def shown(print_it):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", "80")
        print_it()
        return click.unstyle(capsys.readouterr().out)

    return shown


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


def test_a_long_text_cuts_no_id_beside_it(on_a_terminal):
    """The ids of dead letters were cut, and no command that takes one could be typed."""
    row = {"id": "0100000002a8", "reason": "REJECTED", "origin": "queue:orders", "text": "no " * 90}

    said = on_a_terminal(lambda: print_table([row], empty="none", is_json=False))

    assert "0100000002a8  REJECTED  queue:orders  no no" in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_all_columns_that_do_not_fit_are_written_one_by_one(on_a_terminal):
    """22 columns of one character each, all of them an ellipsis, were no table."""
    rows = [{f"column_{n}": n * 10**9 for n in range(22)}] * 2

    said = on_a_terminal(lambda: print_table(rows, empty="none", is_json=False))

    assert said.count("column_21  21000000000") == 2
    assert "…" not in said


STATUS = {"node": "N", "waiting": 0, "bytes": 2048, "lsn": 7, "doubt": 0, "since": 1_000}


@pytest.fixture
def values():
    """Run a command that prints the values of one thing, with the option --wide."""

    def run(*words):
        @click.command()
        @value_options
        def show():
            print_values(STATUS, usual=(("node",), ("waiting", "bytes")), inner=("lsn",))

        return CliRunner().invoke(show, words).output

    return run


def test_the_usual_values_come_first_and_nothing_is_left_out(values):
    """43 lines, of which 20 said 0, hid the five that a person looks for."""
    assert [line.split() for line in values().splitlines()] == [
        ["node", "N"],
        [],
        ["waiting", "0"],
        ["bytes", "2048"],
        [],
        ["since", "1000"],
    ]
    assert all(name in values("--wide") for name in STATUS)


def test_a_terminal_gets_sizes_in_units_and_times_with_their_age(on_a_terminal):
    """1073741824 and 1795622607544 had to be worked out by hand."""
    shown = {"bytes": 1536, "at": 1_700_000_000_000}

    size, at = on_a_terminal(lambda: print_values(shown, times=("at",))).splitlines()

    assert size == "bytes  1.5 KiB"
    assert at.startswith("at     2023-11-14T22:13:20.000+00:00 (")
    assert "1536" in on_a_terminal(lambda: print_values(shown, is_exact=True))


def test_a_terminal_has_a_line_for_each_holder(on_a_terminal):
    """Who holds how many messages of a queue stood in one line of 100 characters each."""
    holders = [{"client_id": "bar", "priority": 0, "count": 2}, {"client_id": "till", "count": 1}]

    said = on_a_terminal(lambda: print_values({"held_by": holders}))

    assert said == "held_by  client_id bar, count 2\n         client_id till, count 1\n"


def test_json_has_times_as_texts(table):
    """As each list had them before one place wrote them."""
    said = table(rows=[{"at": 1_700_000_000_000, "n": 1}], times=("at",), is_json=True)
    assert json.loads(said.output) == [{"at": "2023-11-14T22:13:20.000+00:00", "n": 1}]


def test_a_moment_of_one_thing_is_a_time_for_people_and_ms_for_programs(capsys):
    """`hms client show` and `transaction show` told of 1795866236958."""
    shown = {"id": 1, "since_ms": 1_700_000_000_000}
    for is_json in (False, True):
        show_values(Target(Path(), None, None, is_json=is_json), shown)
    text, _, data = capsys.readouterr().out.rpartition("{")
    assert text.split() == ["id", "1", "since", "2023-11-14T22:13:20.000+00:00"]
    assert json.loads("{" + data) == shown


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


def test_what_is_shown_again_and_again_ends_well_when_it_is_interrupted(monkeypatch):
    """Its help names that as its end; the exit code is of what was shown last."""

    class Pauses:
        def __init__(self):
            self.left = 2

        def sleep(self, _seconds):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(tables, "time", Pauses())
    shown = iter([True, True, False])

    assert tables.again_and_again(lambda: next(shown), 1.0) is False
    assert list(shown) == []
