"""Health from outside: the state file, and what it means in each state of a node."""

import os
from dataclasses import asdict

import pytest

from hms.boot.config import load
from hms.boot.monitoring.health import health_of
from hms.boot.monitoring.notify import Notifier
from hms.boot.monitoring.state_file import STATE_BYTES, StateFile, read_state, state_file_of
from hms.boot.monitoring.vitals import STILL_S, Vitals
from hms.boot.supervise import identify
from hms.server.progress import Progress

NOW_S = 1000.0


@pytest.fixture
def node(tmp_path):
    file = tmp_path / "hms.conf"
    file.write_text("[node.N1]\n")
    return load(file).node()


@pytest.fixture
def say(node):
    """Have the state file say something of this very process."""

    def write(state, **more):
        said = {
            "node": "N1",
            "process": asdict(identify(os.getpid())),
            "state": state,
            "since_s": NOW_S - 30,
            "began_s": NOW_S - 40,
            "written_s": NOW_S,
            "watchdog_s": 30.0,
            "done_bytes": 0,
            "total_bytes": 0,
            "reason": "",
            "hung": [],
            "checks": {},
            "alerts": [],
        }
        file = StateFile(state_file_of(node))
        file.write(said | more)
        file.close()
        return health_of(node, NOW_S)

    return write


def _alert(name):
    return {"alert": name, "destination": "", "text": "so it is", "since_ms": 1}


@pytest.mark.parametrize(
    ("state", "more", "live", "ready", "text"),
    [
        ("starting", {}, True, False, "starting"),
        (
            *("recovering", {"done_bytes": 40, "total_bytes": 100}),
            *(True, False, "recovering 40 %, 60 s left"),
        ),
        ("ready", {}, True, True, "ready"),
        ("ready", {"alerts": [_alert("store_low")]}, True, True, "ready, alerts: store_low"),
        ("draining", {}, True, False, "draining"),
        (
            *("standby", {"reason": "2 of 3 copies"}),
            *(True, False, "stands by, waits for 2 of 3 copies"),
        ),
        ("failed", {"reason": "sync: EIO"}, False, False, "failed: sync: EIO"),
        ("ready", {"hung": ["log"]}, False, False, "no progress for 30 s: log"),
        (
            *("ready", {"written_s": NOW_S - 31}),
            *(False, False, "the process has not said anything for 31 s"),
        ),
    ],
)
def test_each_state_of_a_node_has_its_meaning(say, state, more, live, ready, text):
    """Who restarts a node that recovers, or that is full, makes an outage of an alarm."""
    health = say(state, **more)

    assert (health.is_live, health.is_ready, health.text) == (live, ready, text)


@pytest.mark.parametrize("alert", ["store_full", "store_low", "memory_high", "producers_blocked"])
def test_a_node_in_alarm_is_ready_but_not_for_producers(say, alert):
    """Consumers have to get through, or nothing ever makes room (P10)."""
    health = say("ready", alerts=[_alert(alert), _alert("stuck_queue")])

    assert (health.is_ready, health.is_ready_for_producers) == (True, False)
    assert health.text_for_producers == f"in alarm: {alert}"


def test_a_node_that_is_gone_is_down_whatever_its_file_says(node, say):
    """After kill -9 the file still says ready."""
    assert health_of(node).text == "not running"
    gone = {"pid": 4_000_000, "started": 1, "machine_boot": "never"}
    health = say("ready", process=gone)

    assert (health.state, health.is_live, health.is_ready) == ("down", False, False)


def test_a_file_that_is_not_whole_says_nothing(tmp_path):
    """Half a file is what a reader may find who comes while it is written."""
    path = tmp_path / "state"
    file = StateFile(path)
    file.write({"state": "ready", "alerts": [_alert("memory_high")] * 500})
    assert len(path.read_bytes()) == STATE_BYTES
    said = read_state(path)
    assert said["alerts_count"] == 500
    assert 0 < len(said["alerts"]) < 500
    file.write({"state": "draining", "alerts": []})
    assert read_state(path)["state"] == "draining"
    file.close()
    path.write_bytes(path.read_bytes().replace(b"draining", b"draimimg"))
    assert read_state(path) is None
    path.write_bytes(b"nonsense")
    assert read_state(path) is None


class Ear(Notifier):
    """What a supervisor would hear."""

    def __init__(self):
        super().__init__({})
        self.told = []

    def say(self, *words):
        self.told.extend(words)


def test_a_boot_gets_more_time_for_as_long_as_it_comes_on(tmp_path):
    """One that hangs was given a minute more each second, for good."""
    ear, now = Ear(), [0.0]
    vitals = Vitals("N1", StateFile(tmp_path / "state"), 30, ear, clock=lambda: now[0])

    def extends():
        ear.told.clear()
        vitals._tell()
        assert any(word.startswith("STATUS=") for word in ear.told)
        assert "WATCHDOG=1" not in ear.told
        return any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in ear.told)

    assert extends()
    now[0] = STILL_S - 1
    vitals.recovering(40, 100)
    now[0] += STILL_S - 1
    assert extends()
    now[0] += 2
    assert not extends()
    vitals.recovering(41, 100)
    assert extends()


def test_who_stood_by_is_watched_while_it_recovers(tmp_path):
    """A supervisor killed a take-over that had more than its watchdog's time to read."""
    ear = Ear()
    file = tmp_path / "state"
    vitals = Vitals("N1", StateFile(file), 30, ear, is_watched=True)
    vitals.recovering(40, 100)
    assert "WATCHDOG=1" in ear.told
    ear.told.clear()
    vitals.stands_by("2 of 3 copies")
    assert ear.told[0] == "READY=1"
    assert "WATCHDOG=1" in ear.told
    assert (read_state(file)["state"], read_state(file)["reason"]) == ("standby", "2 of 3 copies")
    ear.told.clear()
    vitals.goes_on()
    assert (read_state(file)["state"], read_state(file)["reason"]) == ("starting", "")
    assert "WATCHDOG=1" in ear.told


def test_a_thread_that_hangs_is_named_and_the_watchdog_is_not_fed(tmp_path, caplog):
    """What the vitals' thread sees it tells, though nobody else of the node can."""
    ear, now, counts = Ear(), [0.0], {"log": 1}
    path, told = tmp_path / "state", ear.told
    vitals = Vitals("N1", StateFile(path), 30, ear)
    vitals.recovering(40, 100)
    assert read_state(path)["state"] == "recovering"
    assert "STATUS=recovering 40 %" in told
    vitals.ready(Progress({"log": lambda: counts["log"]}, clock=lambda: now[0]), list)
    assert {"READY=1", "WATCHDOG=1"} <= set(told)

    told.clear()
    now[0] = 31.0
    vitals._tell()
    assert (read_state(path)["hung"], told) == (["log"], [])
    assert "no progress for 30 s: log" in caplog.text
    counts["log"] = 3
    vitals._tell()
    assert (read_state(path)["hung"], told) == ([], ["WATCHDOG=1"])
    vitals.draining()
    assert "STOPPING=1" in told
    vitals.stop()
    assert read_state(path)["state"] == "stopped"
