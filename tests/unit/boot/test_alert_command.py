"""A command that is told of alerts: in order, once, again after a failure, one at a time."""

import os
import stat
import sys

import pytest

from hms.boot.monitoring import alert_command
from hms.boot.monitoring.alert_command import AGAIN_S, COMMAND_S, WAITING_MAX, AlertCommand, Change
from tests.support.waiting import wait_until


class Rig:
    """A command whose node and time stand here."""

    def __init__(self, *words):
        self.now_s = 100.0
        self.command = AlertCommand(
            "n1", words, lambda: {"PATH": os.environ["PATH"]}, lambda: self.now_s
        )

    def put(self, name, *, begins=True, destination="queue:a", text="why"):
        self.command.put(Change(begins, name, destination, text))

    def look(self, later_s=0.0):
        self.now_s += later_s
        self.command.look()

    def told(self):
        """Looks until nothing runs and nothing is due."""

        def is_over():
            self.look()
            return self.command._process is None

        wait_until(is_over)


@pytest.fixture
def script(tmp_path):
    """It keeps what it is told, a line each, and ends as the file `code` says."""
    made = tmp_path / "page"
    made.write_text(
        f"#!{sys.executable}\nimport json, sys, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "with (folder / 'told').open('a') as out:\n    print(json.dumps(sys.argv[1:]), file=out)\n"
        "code = folder / 'code'\nsys.exit(int(code.read_text()) if code.exists() else 0)\n"
    )
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return made


def is_group(number):
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def lines(script):
    file = script.with_name("told")
    return file.read_text().splitlines() if file.exists() else []


def test_begin_and_end_are_told_in_order_with_what_they_are_about(script):
    """Names that strangers chose are words of their own, and no line of them is another."""
    rig = Rig(str(script), "--to", "night")
    rig.put("stuck_queue", text="a\nb \x1b[2J", destination="queue:x; rm -rf /")
    rig.told()
    rig.put("stuck_queue", begins=False)
    rig.put("store_low", destination="")
    wait_until(lambda: rig.look() or len(lines(script)) == 3)
    rig.told()
    first = (
        '["--to", "night", "begins", "n1", "stuck_queue", "queue:x; rm -rf /", "a b \\\\x1b[2J"]'
    )
    assert lines(script)[0] == first
    assert '"ends", "n1", "stuck_queue"' in lines(script)[1]
    assert '"begins", "n1", "store_low", ""' in lines(script)[2]
    assert rig.command.fault == ""


def test_a_failure_is_told_and_tried_again(script):
    """The pager's network may be down for a minute."""
    script.with_name("code").write_text("7")
    rig = Rig(str(script))
    rig.put("store_low")
    rig.told()
    assert rig.command.fault.endswith("ended with 7")
    rig.look(AGAIN_S - 1)
    assert len(lines(script)) == 1
    script.with_name("code").write_text("0")
    rig.look(2)
    rig.told()
    assert len(lines(script)) == 2
    assert rig.command.fault == ""
    rig.look(AGAIN_S)
    rig.told()
    assert len(lines(script)) == 2, "once"


def test_what_ended_before_it_was_told_is_not_told(script):
    """An alert that comes and goes each second wakes nobody a hundred times."""
    rig = Rig(str(script))
    for _ in range(3):
        rig.put("slow_sync")
        rig.put("slow_sync", begins=False)
    rig.put("other")
    rig.told()
    assert len(lines(script)) == 1


def test_the_begin_that_is_being_told_has_its_end(tmp_path):
    """Whoever was woken hears that it is over, also of one that begins again meanwhile."""
    rig = Rig("/bin/sh", "-c", "exit 0")
    rig.put("a")
    rig.look()
    assert rig.command._process is not None
    for begins in (False, True, False):
        rig.put("a", begins=begins)
    assert [one.begins for one in rig.command._waiting] == [True, False]
    rig.command.close()


def test_one_that_hangs_is_ended_and_what_is_too_much_is_counted(tmp_path):
    """The node waits for nobody."""
    rig = Rig("/bin/sh", "-c", "sleep 600; true")
    for n in range(WAITING_MAX + 5):
        rig.put(f"alert{n}")
    rig.look()
    process = rig.command._process
    rig.look(COMMAND_S)
    assert process.poll() is not None
    wait_until(lambda: not is_group(process.pid))  # what it began has ended too
    assert rig.command.fault == "/bin/sh took more than 30 s; 5 others were left out"
    rig = Rig("/nowhere/at/all")
    rig.put("a")
    rig.look()
    assert rig.command.fault == "/nowhere/at/all: No such file or directory"
    rig.put(alert_command.NOT_TOLD)
    assert len(rig.command._waiting) == 1, "that the command fails is not told by it"


def test_without_a_command_nothing_is_kept():
    """The default."""
    rig = Rig()
    rig.put("a")
    rig.look()
    assert not rig.command._waiting
