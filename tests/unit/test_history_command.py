"""The commands over the history."""

import json

import pytest
from click.testing import CliRunner
from history_records import append, message, open_journal, ranges_record, sent_record

from field_buffer.catalogue import ConnectionLost
from hms.history import ReplayReport, command
from hms.history.command import history
from hms.records import RecordType


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


def test_replay_passes_on_what_was_asked(monkeypatch):
    """The command adds nothing of its own to the function."""
    asked = []
    report = ReplayReport(2, 2, 101, 102, 0.5)
    monkeypatch.setattr(command, "replay", lambda *a, **k: asked.append((a, k)) or report)

    told = run(*REPLAY, "--from", "1", "--to", "2", "--selector", "a = 1", "--rate", "5")

    assert told.exit_code == 0
    ((given, named),) = asked
    assert given == (None, "p")
    assert named.pop("master") == "local[2]"
    assert named.pop("address") == "tcp://x"
    assert [named.pop(name) for name in ("from_", "to", "rate")] == ["1", "2", 5.0]
    assert named == {"destination": "orders", "into": "o", "selector": "a = 1"}
    assert told.output == (
        "2 messages sent and confirmed (offsets 101 to 102) in 0.5 s, 4 a second.\n"
    )


def test_replay_answers_programs_in_json(monkeypatch):
    """A nightly job checks the numbers."""
    monkeypatch.setattr(command, "replay", lambda *_, **__: ReplayReport(0, 0, None, None, 1.0))

    assert json.loads(run(*REPLAY, "--json").output) == {
        "rows": 0,
        "sent": 0,
        "first_offset": None,
        "last_offset": None,
        "seconds": 1.0,
    }


def test_a_failed_replay_tells_how_far_it_came(monkeypatch):
    """The operator must know what was sent already."""

    def fail(*_, **__):
        error = ConnectionLost(address="tcp://x", reason="test")
        error.add_note("7 messages up to offset 9 were sent and confirmed before.")
        raise error

    monkeypatch.setattr(command, "replay", fail)
    told = run(*REPLAY)

    assert isinstance(told.exception, ConnectionLost)
    assert "7 messages up to offset 9" in told.output


def test_a_rate_of_nothing_is_a_wrong_command_line():
    """It would never end."""
    assert run(*REPLAY, "--rate", "0").exit_code == 2
