"""Entries of a node's log: for people and in JSON, rotated, and while they are written."""

import gzip
import json
import os
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.log_search import Chosen, entries_of, files_of, follow, lines_for_people
from hms.boot.rotated_files import number_of

START_S = 1_777_622_400
"""2026-05-01 08:00 UTC."""


def written(second):
    """As the node's lines for people have it: the local time."""
    at = datetime(2026, 5, 1, 8, 0, second, 250_000, UTC).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S},250"


TEXT = (
    f"{written(1)} INFO hms.node: node N1 is ready\n"
    f"{written(2)} ERROR hms.server.lane: a worker failed\n"
    "Traceback (most recent call last):\n"
    "  ValueError: no \x1b[2Jcoffee\n"
    f"{written(3)} DEBUG hms.refusals: 12-7: HMS-4001 no queue\n"
    f"{written(4)} WARNING server shop [17]: slow\n"
)
JSON = {
    "ts": "2026-05-01T08:00:05.250Z",
    "level": "WARNING",
    "event": "alert_begins",
    "logger": "hms.alerts",
    "text": "alert store_low begins: low",
    "request": "2-1",
}


@pytest.fixture
def log_file(tmp_path):
    """A node's log, rotated twice; the oldest is compressed."""
    file = tmp_path / "N1.log"
    oldest, older = tmp_path / "N1.log.2.gz", tmp_path / "N1.log-20260501"
    oldest.write_bytes(gzip.compress(TEXT.encode()))
    older.write_text(json.dumps(JSON) + "\n{not json}\n")
    file.write_text(f"{written(6)} INFO hms.node: draining\n")
    (tmp_path / "N1.logs").write_text("of somebody else")
    for at, path in enumerate((oldest, older, file)):
        os.utime(path, (START_S + at, START_S + at))
    (tmp_path / "hms.conf").write_text(f'[node.N1]\nstore = "s"\nlog_file = "{file}"\n')
    return file


def said(log_file, *words, code=0):
    line = ["log", "search", "--config", str(log_file.parent / "hms.conf"), *words]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == code, done.output
    return done.output


def test_entries_are_read_in_the_order_in_which_they_were_written(log_file):
    """Of rotated files, compressed or not; a traceback belongs to what it explains."""
    found = list(entries_of(files_of(log_file)))
    assert [(one.level, one.event, len(one.lines)) for one in found] == [
        ("INFO", "hms.node", 1),
        ("ERROR", "hms.server.lane", 3),
        ("DEBUG", "hms.refusals", 1),
        ("WARNING", "server shop [17]", 1),
        ("WARNING", "alert_begins", 2),
        ("INFO", "hms.node", 1),
    ]
    start_ms = START_S * 1000
    assert [one.at_ms - start_ms for one in found] == [1250, 2250, 3250, 4250, 5250, 6250]
    assert found[0].fields["ts"] == "2026-05-01T08:00:01.250Z"


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), "123456"),
        (("--level", "warning"), "245"),
        (("--event", "hms.server"), "2"),
        (("--event", "hms.serv"), ""),
        (("--event", "node_ready"), "1"),
        (("--event", "node_draining"), "6"),
        (("--event", "refused"), "3"),
        (("--event", "alert_begins"), "5"),
        (("--event", "hms.alerts"), "5"),
        (("--request", "12-7"), "3"),
        (("--request", "2-7"), ""),
        (("--request", "2-1"), "5"),
        (("--since", "2026-05-01T08:00:04.250"), "456"),
        (("--until", "2026-05-01T08:00:02.250+00:00"), "1"),
        (("--since", "10s"), ""),
        (("COFFEE", "worker"), "2"),
        (("--limit", "1"), "6"),
    ],
)
def test_entries_are_chosen_by_what_an_operator_knows(log_file, words, seconds):
    """The request of a ticket, the hour of a complaint, a word."""
    rows = said(log_file, "--json", *words).splitlines()
    times = [json.loads(row)["ts"][18] for row in rows if row.startswith("{")]
    assert "".join(times) == seconds


def test_lines_of_strangers_move_no_cursor_and_what_is_missing_is_told(log_file):
    """Also a file of a node that never wrote one, and a time that is none."""
    shown = said(log_file, "--level", "ERROR")
    assert r"ValueError: no \x1b[2Jcoffee" in shown
    assert len(shown.splitlines()) == 3
    assert "the last 1; --limit shows more" in said(log_file, "--limit", "1")
    assert "no time" in said(log_file, "--since", "soon", code=2)
    (log_file.parent / "N1.log.2.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    shown = said(log_file, "--level", "INFO", code=1)
    assert "N1.log.2.gz cannot be read to its end" in shown
    assert "draining" in shown, "one damaged file hides no other"
    for path in log_file.parent.glob("N1.log*"):
        path.unlink()
    assert "journalctl -u" in said(log_file, code=1)


def test_what_is_compressed_meanwhile_is_read_once_and_in_order(log_file):
    """A copy that is not whole yet stands beside its file; numbers tell the order where the clock
    went back."""
    folder, past = log_file.parent, "N1.log-20260501T0{}0000Z-00000{}"
    older, newer = folder / past.format(9, 8), folder / past.format(1, 9)
    older.write_text(f"{written(7)} INFO hms.node: older\n")
    newer.write_text(f"{written(8)} INFO hms.node: newer\n")
    older.with_name(f"{older.name}.gz").write_bytes(b"half")
    os.utime(older, (START_S + 20, START_S + 20))
    os.utime(newer, (START_S + 10, START_S + 10))
    files = files_of(log_file)
    assert [one for one in files if number_of(one)] == [older, newer]
    older.with_name(f"{older.name}.gz").write_bytes(gzip.compress(older.read_bytes()))
    older.unlink()
    found = [one.lines[0].rpartition(" ")[2] for one in entries_of(files)]
    assert [word for word in found if word in {"older", "newer"}] == ["older", "newer"]


def test_files_that_end_before_the_time_that_is_asked_for_are_not_read(log_file):
    """The last ten minutes are a look at one file, however many there are."""
    (log_file.parent / "N1.log.2.gz").write_bytes(b"not read")
    os.utime(log_file.parent / "N1.log.2.gz", (START_S - 3600, START_S - 3600))
    assert "draining" in said(log_file, "--since", "2026-05-01T08:00:00")


def test_a_log_is_followed_over_rotations(log_file):
    """A line that is written in two parts is one; a traceback has the level of its entry; what the
    node writes to a new file is not missed, nor what stands in an emptied one."""

    def append(text):
        with log_file.open("a") as file:
            file.write(text)

    def rotate():
        log_file.rename(log_file.with_suffix(".log.1"))

    steps = iter(
        [
            lambda: append(f"{written(7)} ERR"),
            lambda: append("OR hms.node: lost\n"),
            lambda: append("  a traceback\n"),
            rotate,
            lambda: append(f"{written(8)} INFO hms.node: new\n"),
            lambda: os.truncate(log_file, 0),
            lambda: append(f"{written(9)} INFO hms.node: x\n"),
        ]
    )

    entries = follow(log_file, lambda _seconds: next(steps)())
    found = [next(entries) for _ in range(4)]
    entries.close()
    assert [(one.level, one.lines[-1].rpartition(" ")[2]) for one in found] == [
        ("ERROR", "lost"),
        ("ERROR", "traceback"),
        ("INFO", "new"),
        ("INFO", "x"),
    ]
    assert Chosen(level="ERROR").has(found[1])


def test_json_is_shown_as_text_with_all_that_it_says(log_file):
    """A file that is an object a line is no page to read at night."""
    entry = JSON | {"node": "N1", "boot": "ab", "traceback": "Traceback\n  ValueError: no"}
    (log_file.parent / "N1.log-20260501").write_text(json.dumps(entry) + "\n")
    assert said(log_file, "begins", "--since", "2026-05-01T08:00:05").splitlines() == [
        "2026-05-01T08:00:05.250Z WARNING alert_begins: alert store_low begins: low request=2-1",
        "Traceback",
        "  ValueError: no",
    ]


def test_the_end_of_a_log_is_read_by_people_whatever_is_in_it():
    """What hms boot shows of a node that ended without a word: JSON, and a trace of Python."""
    lines = [json.dumps(JSON), "Traceback (most recent call last):", "MemoryError"]
    assert lines_for_people(["a cut line", *lines]) == [
        "a cut line",
        "2026-05-01T08:00:05.250Z WARNING alert_begins: alert store_low begins: low request=2-1",
        *lines[1:],
    ]
