"""hms top: rates between two looks, in 80 columns, recorded and played."""

import json

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.live_view.pages import PAGES
from hms.boot.monitoring.rates import Rates, lines_of
from tests.unit.boot.test_web_server import ANSWER


def _look(now_ms, sent, name="orders"):
    said = json.loads(ANSWER)
    said |= {"now_ms": now_ms, "held_bytes": 5, "max_memory_bytes": 10, "disk_free_bytes": 3 << 30}
    said["durable"]["counters"]["sent"] = sent
    row = said["rows"][0]
    row[0] = name
    row[said["columns"].index("sent")] = sent
    row[said["columns"].index("oldest_ms")] = now_ms - 7000
    said["commit"] = {"bounds": [0.001, 0.01], "counts": [99 * sent, sent, 0], "sum": 1}
    return said


def test_rates_are_what_changed_in_the_time_between():
    """A count since boot says nothing of now."""
    rates = Rates()
    assert rates.view(_look(1000, 10)) is None
    view = rates.view(_look(3000, 30))
    assert (view["sent_per_s"], view["commit_p50_ms"], view["commit_p99_ms"]) == (10.0, 1.0, 1.0)
    (row,) = view["destinations"]
    assert (row["destination"], row["sent_per_s"], row["oldest_s"]) == ("orders", 10.0, 7)
    assert (view["memory_percent"], view["alerts"]) == (50, ["memory_high"])


def test_a_view_fits_a_terminal_and_no_name_moves_its_cursor():
    """80 by 24 is what a serial console has."""
    rates = Rates()
    rates.view(_look(1000, 10, "\x1b[2J" + "x" * 100))
    lines = lines_of(rates.view(_look(2000, 20, "\x1b[2J" + "x" * 100)))
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_nothing_of_a_busy_nodes_heading_is_cut():
    """Rows were 89 characters of 80: the last title read `d`, and large figures went missing."""
    rates = Rates()
    rates.view(_look(1000, 10))
    view = rates.view(_look(2000, 20))
    view |= {"messages": 10**9, "in_flight": 10**8, "connections": 10_000}
    view |= {f"{name}_per_s": 123_456.7 for name in ("sent", "acknowledged", "redelivered")}

    lines = lines_of(view)

    assert max(map(len, lines)) <= 80
    said = "\n".join(lines)
    assert "GiB free" in said
    assert "99 % 1 ms" in said
    assert next(line for line in lines if line.startswith("destination")).endswith(" dead")


def test_how_long_messages_waited_and_were_held_is_of_the_time_between():
    """Durable ones and others together; a recording of a version that did not tell tells 0."""
    bounds, rates = [0.001, 0.01, 0.1], Rates()

    def look(now_ms, slow):
        kinds = [
            [word, {"bounds": bounds, "counts": [5, slow, 0, 0]}] for word in ("true", "false")
        ]
        return {**_look(now_ms, 1), "delivery_latency": kinds}

    rates.view(look(1000, 0))
    view = rates.view(look(2000, 7))
    assert (view["wait_p50_ms"], view["wait_p99_ms"], view["held_p99_ms"]) == (10, 10, 0)
    assert "waited 50 % 10 ms 99 % 10 ms" in "\n".join(lines_of(view))
    view = rates.view(_look(3000, 1))
    assert view["wait_p99_ms"] == 0


def test_a_paused_destination_says_so_in_its_row():
    """A queue that stands still because somebody wanted it is no fault."""
    rates = Rates()
    look = _look(1000, 1)
    look["rows"][0][look["columns"].index("paused")] = "PRODUCTION"
    rates.view(look)
    assert "queue paused" in "\n".join(lines_of(rates.view(look)))


SERVICE = {"name": "pay", "servers": 2, "idle": 1, "waiting": 3, "calls": 9, "failed": 1}
SERVICE |= {"per_s": 1.5, "p50_ms": 1.25, "p95_ms": 2.0, "p99_ms": 30.0}
LINK = {"node": "n2", "presence": "up", "heard_s_ago": 0.25, "pending_bytes": 2048}
ENDED = {"alert": "stuck_queue", "destination": "orders", "since_ms": 1000, "text": "x" * 99}


@pytest.mark.parametrize(
    ("page", "said", "cells"),
    [
        ("services", None, ("pay", "2", "1", "3", "1.5", "1.25", "2", "30", "9", "1")),
        ("cluster", None, ("n2", "up", "0.2 s ago", "2.0 KiB", "0", "0", "0", "0.0 s")),
        ("alerts", {"active": [ENDED], "ended": []}, ("stuck_queue", "orders")),
    ],
)
def test_a_page_has_a_cell_for_each_column_and_80_columns(page, said, cells):
    """A row with a cell too few would end the view."""
    found = PAGES[page].rows({"services": [SERVICE], "links": [LINK]}, said)
    assert found[0].cells[: len(cells)] == cells
    assert len(found[0].cells) == len(PAGES[page].columns)
    assert sum(width for _, width in PAGES[page].columns) <= 80


def test_a_recording_is_played_without_a_node(tmp_path):
    """What was seen at three in the morning is shown at ten."""
    file = tmp_path / "record"
    file.write_text("".join(json.dumps(_look(n * 1000, n * 5)) + "\n" for n in range(3)))
    done = CliRunner().invoke(main, ["top", "--play", str(file), "--json"])
    views = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [view["sent_per_s"] for view in views]) == (0, [5.0, 5.0])


@pytest.mark.parametrize("line", ["nonsense", "{}", "[]", "7", '{"rows": [], "columns": []}'])
def test_a_line_that_is_no_look_is_told_with_its_number(tmp_path, line):
    """A file may be of another kind, or cut by a full disk."""
    file = tmp_path / "record"
    file.write_text(f"{json.dumps(_look(1000, 5))}\n{line}\n")
    done = CliRunner().invoke(main, ["top", "--play", str(file)])
    assert (done.exit_code, "record:2:" in done.stderr) == (1, True), done.output
