"""hms top: rates between two looks, in 80 columns, recorded and played."""

import json

from click.testing import CliRunner

from hms.boot.cli import main
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


def test_a_recording_is_played_without_a_node(tmp_path):
    """What was seen at three in the morning is shown at ten."""
    file = tmp_path / "record"
    file.write_text("".join(json.dumps(_look(n * 1000, n * 5)) + "\n" for n in range(3)))
    done = CliRunner().invoke(main, ["top", "--play", str(file), "--json"])
    views = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [view["sent_per_s"] for view in views]) == (0, [5.0, 5.0])
    file.write_text("{}\nnonsense")
    done = CliRunner().invoke(main, ["top", "--play", str(file)])
    assert (done.exit_code, "record:2:" in done.stderr) == (1, True)
