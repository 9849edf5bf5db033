"""Schedules on a real node: sent once each over kills, listed, cancelled, from the shell too."""

import datetime as dt
import itertools
import json

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.testing import node

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(9)) + "[hms.topic.news]\n"
WAIT_S = 60
NAMES = ("$ScheduleName", "$ScheduleCount")


def _hms(running, *words):
    said = CliRunner().invoke(main, [*words, "--connect", running.address], prog_name="hms")
    assert said.exit_code == 0, said.output
    return said.output


def test_a_schedule_sends_until_it_is_cancelled(conn):
    """F-D4: a heart beat, a report, a bill: sent by the node, whoever is connected."""
    with conn.session() as session:
        out, inn = session.producer("queue:q0"), session.consumer("queue:q0")
        made = out.schedule("beat", b"tick", {"Type": "Beat"}, every_s=0.2)
        found = [inn.receive(timeout_s=WAIT_S) for _ in range(3)]
        listed = conn.schedules(kind="schedule", destination="queue:q0")
        conn.cancel_schedule("beat")

        assert (made.name, made.every_s, made.destination) == ("beat", 0.2, "queue:q0")
        assert [m.body for m in found] == [b"tick"] * 3
        assert [tuple(m.properties[n] for n in NAMES) for m in found] == [
            ("beat", number) for number in (1, 2, 3)
        ]
        assert [one.name for one in listed] == ["beat"]
        assert listed[0].sent >= 3
        assert found[0].properties["Type"] == "Beat"
        with pytest.raises(hms.HmsError, match="HMS-4041"):
            conn.schedule("beat")


def test_a_start_far_in_the_future_stops_nothing(running, conn):
    """The last moment that a calendar knows is fine; seconds and milliseconds mixed up are not."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)
    with conn.session() as session:
        out, inn = session.producer("queue:q8"), session.consumer("queue:q8")
        out.send(b"soon", delay_s=0.3)
        made = out.schedule("far", b"x", every_s=60, start=last)
        with pytest.raises(hms.HmsError, match="9999"):
            out.schedule("mixed up", b"x", every_s=60, start=last.timestamp() * 1000)

        assert made.next_time == last
        assert inn.receive(timeout_s=WAIT_S).body == b"soon"
    running.kill()
    running.boot(warm=True)
    with hms.connect(running.address) as again, again.session() as session:
        session.producer("queue:q8").send(b"later", delay_s=0.3)
        assert session.consumer("queue:q8").receive(timeout_s=WAIT_S).body == b"later"
        again.cancel_schedule("far")


def test_a_cron_expression_says_when_it_is_due_next(conn):
    """And one that never is, or is none, is refused by a typed error."""
    with conn.session() as session:
        out = session.producer("queue:q1")
        made = out.schedule("report", b"", cron="0 9 * * *", time_zone="Asia/Seoul")

        assert (made.next_time.hour, made.next_time.minute) == (0, 0)
        for cron in ("0 0 30 2 *", "x", "99 * * * *"):
            with pytest.raises(hms.HmsError, match="HMS-3040"):
                out.schedule("never", b"", cron=cron)
        with pytest.raises(hms.HmsError, match="HMS-4040"):
            out.schedule("report", b"", cron="0 10 * * *")
        other = out.schedule("report", b"", cron="0 10 * * *", replace=True)
    assert other.next_time.hour == 10
    conn.cancel_schedule("report")


def test_a_delayed_message_can_be_listed_and_taken_back(conn):
    """Who has sent it for next week may think again."""
    with conn.session() as session:
        out = session.producer("queue:q2")
        receipt = out.send(b"next week", delay_s=7 * 86_400)
        (listed,) = conn.schedules(destination="queue:q2")
        shown = conn.schedule(receipt.message_id)
        conn.cancel_schedule(receipt.message_id)

    assert (listed.name, listed.kind) == (receipt.message_id, "delayed")
    assert shown == listed
    assert conn.schedules(destination="queue:q2") == []
    assert conn.administer("queue.show", {"name": "q2"})["delayed"] == 0


def test_the_shell_creates_lists_shows_and_cancels(running):
    """Operators have no Python at hand."""
    _hms(running, "schedule", "create", "nightly", "queue:q3", "run", "--cron", "0 3 * * *")
    _hms(running, "send", "q3", "later", "--delay", "3600")
    listed = json.loads(_hms(running, "schedule", "list", "--json", "--destination", "queue:q3"))
    table = _hms(running, "schedule", "list")
    shown = _hms(running, "schedule", "show", "nightly")
    for one in listed:
        _hms(running, "schedule", "cancel", one["name"], "--yes")

    assert {one["kind"] for one in listed} == {"schedule", "delayed"}
    assert "0 3 * * *" in table
    assert "queue:q3" in shown
    assert json.loads(_hms(running, "schedule", "list", "--json")) == []


def test_a_transacted_session_has_no_schedules(conn):
    """A commit that could be rolled back, and a node that sends meanwhile, do not fit together."""
    with conn.session(transacted=True) as session:
        with pytest.raises(hms.HmsError, match="transacted"):
            session.producer("queue:q4").schedule("never", b"", every_s=1)
        session.rollback()


def test_each_occurrence_is_sent_once_over_kills(tmp_path):
    """Numbers without a gap and without a double, whatever moment the node died in."""
    with node(store=tmp_path / "store", config=CONFIG) as started:
        with hms.connect(started.address) as conn, conn.session() as session:
            session.producer("queue:q5").schedule("often", b"x", every_s=0.1, missed="ALL")
            first = session.consumer("queue:q6").receive(timeout_s=0.5)
        for _ in range(2):
            started.kill()
            started.boot(warm=True)
        with hms.connect(started.address) as conn, conn.session() as session:
            inn = session.consumer("queue:q5")
            found = [inn.receive(timeout_s=WAIT_S) for _ in range(30)]

    assert first is None
    assert [m.properties["$ScheduleCount"] for m in found] == list(range(1, 31))
    times = [m.properties["$ScheduledTime"] for m in found]
    assert {b - a for a, b in itertools.pairwise(times)} == {100}
    assert all(m.timestamp_ms >= m.properties["$ScheduledTime"] for m in found), "none early"
