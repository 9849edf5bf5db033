"""The commands over the history."""

import importlib
import json
import sys
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner
from history_records import append, message, open_journal, ranges_record, sent_record

from hms.errors.catalogue import (
    ConnectionLost,
    StoreFormatUnknown,
    StoreUnavailable,
)
from hms.history import ReplayReport, replay_command
from hms.history.census import Census
from hms.history.command import history
from hms.records import RecordType
from hms.store.journal import segment_walk


@pytest.fixture
def store(tmp_path):
    """Two messages sent, one acknowledged."""
    journal = open_journal(tmp_path / "store")
    append(journal, sent_record([message(), message()], at_ms=1000))
    append(journal, ranges_record(RecordType.ACKNOWLEDGED, (1, 1), at_ms=2000))
    journal.close()
    return tmp_path / "store"


def run(*arguments, **settings):
    return CliRunner().invoke(history, [str(a) for a in arguments], **settings)


def test_info_counts_what_happened_at_each_destination(store):
    """The first question of whoever looks for a lost message, answered without Spark."""
    told = run("info", "--path", store)

    assert told.exit_code == 0
    assert told.output.splitlines() == [
        "destination   event         count",
        "queue:orders  acknowledged      1",
        "queue:orders  sent              2",
    ]


def test_info_answers_programs_in_json(store):
    """Scripts read counts, not tables."""
    told = run("info", "--path", store, "--json", "--from", "1000", "--to", "2000")

    assert json.loads(told.output) == [
        {"destination": "orders", "destination_kind": "queue", "event": "sent", "count": 2}
    ]


def test_info_of_an_empty_window_says_so(store):
    """An empty table looks like a failure."""
    assert run("info", "--path", store, "--destination", "other").output == "Nothing happened.\n"


def test_the_store_is_found_by_whoever_knows_the_configuration(store, tmp_path):
    """Operators name one file for all commands."""
    told = run("info", "--config", tmp_path / "my.conf", obj=lambda _: ("tcp://x", store))

    assert "queue:orders" in told.output


def test_without_any_place_the_usage_names_the_options():
    """Exit code 2 is for a wrong command line."""
    told = run("info")

    assert told.exit_code == 2
    assert "--path" in told.output


REPLAY = ("replay", "--path", "p", "--connect", "tcp://x", "--destination", "orders", "--into", "o")
REPORT = ReplayReport("r", 2, 0, 0, 0, 101, 102, 0.5)


def test_replay_passes_on_what_was_asked(monkeypatch):
    """The command adds nothing of its own to the function."""
    asked = []
    monkeypatch.setattr(replay_command, "replay", lambda *a, **k: asked.append((a, k)) or REPORT)

    told = run(*REPLAY, "--from", "1", "--to", "2", "--selector", "a = 1", "--rate", "5")

    assert told.exit_code == 0
    ((given, named),) = asked
    assert given == (None, "p")
    assert [named.pop(name) for name in ("master", "show", "takes_copies")] == [None, None, False]
    assert named.pop("address") == "tcp://x"
    assert [named.pop(name) for name in ("from_", "to", "rate", "run_id")] == ["1", "2", 5.0, ""]
    assert named == {"destination": "orders", "into": "o", "selector": "a = 1"}
    assert told.output == (
        "2 messages sent and confirmed (offsets 101 to 102) in 0.5 s, 4 a second; run r.\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sent": 0, "before": 7}, "Run r was complete before, with 7 messages; nothing was sent."),
        ({"sent": 0}, "Nothing in the history fits; nothing was sent."),
        ({"before": 7}, "7 more were sent by earlier attempts of this run."),
        ({"copies": 3}, "3 were left out: a replay had brought them (--copies takes them too)."),
        (
            {"files": 2},
            "2 were left out: their content was in files, which the history does not have.",
        ),
        ({"unmarked": 1}, "1 could not be marked with their origin, and went as is."),
    ],
)
def test_replay_says_what_else_there_is_to_know(monkeypatch, change, said):
    """Nothing is left out in silence."""
    report = replace(REPORT, **change)
    monkeypatch.setattr(replay_command, "replay", lambda *_, **__: report)

    assert said in run(*REPLAY).output


def test_replay_answers_programs_in_json(monkeypatch):
    """A nightly job checks the numbers."""
    monkeypatch.setattr(replay_command, "replay", lambda *_, **__: REPORT)

    assert json.loads(run(*REPLAY, "--json").output) == asdict(REPORT)


def test_a_dry_run_counts_and_needs_no_node(monkeypatch):
    """Who replays a year looks first."""
    rows = [Census("queue:orders", "queue:o", 1200, 3, 5, 9)]
    monkeypatch.setattr(replay_command, "preview", lambda *_, **__: rows)
    monkeypatch.setattr(replay_command, "replay", lambda *_, **__: pytest.fail("sent"))
    asked = ("replay", "--path", "p", "--destination", "orders", "--into", "o", "--dry-run")

    assert run(*asked).output.splitlines() == [
        "destination   into     messages  copies left out  first offset  last offset",
        "queue:orders  queue:o     1,200                3             5            9",
        "1,200 messages would be sent.",
    ]
    assert json.loads(run(*asked, "--json").output) == [asdict(rows[0])]


def test_a_dry_run_says_what_cannot_be_sent(monkeypatch):
    """Who replays a queue of file messages must not learn it afterwards."""
    rows = [Census("queue:orders", "queue:o", 7, 0, 5, 9, files=2)]
    monkeypatch.setattr(replay_command, "preview", lambda *_, **__: rows)
    asked = ("replay", "--path", "p", "--destination", "orders", "--into", "o", "--dry-run")

    assert run(*asked).output.splitlines()[-1] == (
        "7 messages would be sent. 2 would be left out: their content was in files, which the "
        "history does not have."
    )


def test_a_failed_replay_tells_how_far_it_came(monkeypatch):
    """The operator must know what was sent already."""

    def fail(*_, **__):
        error = ConnectionLost(address="tcp://x", reason="test")
        error.add_note("7 messages up to offset 9 were sent and confirmed.")
        raise error

    monkeypatch.setattr(replay_command, "replay", fail)
    told = run(*REPLAY)

    assert isinstance(told.exception, ConnectionLost)
    assert "7 messages up to offset 9" in told.output


def test_a_rate_of_nothing_is_a_wrong_command_line():
    """It would never end."""
    assert run(*REPLAY, "--rate", "0").exit_code == 2


@pytest.fixture
def no_spark(monkeypatch):
    """Starting Spark is a fault of the test."""
    for module in ("replay", "census", "watch", "reports.every"):
        name = f"hms.history.{module}"
        importlib.import_module(name)
        found = sys.modules[name]  # the package gives some of these names to functions
        monkeypatch.setattr(found, "borrowed_session", lambda *_: pytest.fail("started"))


COMMANDS = (
    REPLAY[:1] + REPLAY[3:],
    ("replay", "--destination", "a", "--into", "b", "--dry-run"),
    ("report", "audit"),
    ("report", "latency"),
    ("watch", "--once"),
)


@pytest.mark.parametrize("asked", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("what", ["nothing", "other files", "newer"])
def test_what_is_no_good_store_is_told_before_spark_starts(
    store, tmp_path, no_spark, monkeypatch, asked, what
):
    """A wrong path must not look like an empty history, nor a newer store like a damaged one."""
    more = ("--checkpoint", tmp_path / "c") if asked[0] == "watch" else ()
    path, error = spoiled(store, tmp_path, what, monkeypatch)
    told = run(*asked, "--path", path, *more)

    assert isinstance(told.exception, error), told.output


def spoiled(store, folder, what, monkeypatch):
    """A path that is no good store, and the error that says so."""
    if what == "nothing":
        return folder / "none", StoreUnavailable
    if what == "other files":
        (folder / "files").mkdir()
        (folder / "files" / "readme.txt").write_text("no log")
        return folder / "files", StoreUnavailable
    monkeypatch.setattr(segment_walk, "FORMATS", segment_walk.FORMATS[:-1])
    return store, StoreFormatUnknown


def test_every_command_is_listed_with_what_it_does():
    """Most of them are loaded when they are used; the help must not need that."""
    told = run("--help").output

    assert "Send messages again, each once." in told
    assert "Count what happened, by destination." in told
