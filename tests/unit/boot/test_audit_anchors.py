"""Anchors of the audit: sent once an hour, when they are durable, and told when they are not."""

import os
import socket
import stat
import sys

import pytest

from hms.boot import audit_anchors
from hms.boot.audit_anchors import AGAIN_S, COMMAND_S, EVERY_S, AuditAnchors, Head
from tests.support.waiting import wait_until


class Rig:
    """A node whose audit, log and time stand here."""

    def __init__(self, way, syslog_socket="/nowhere"):
        self.head, self.durable, self.now_s = Head(7, "ab" * 32, 20), 20, 100.0
        self.anchors = AuditAnchors(
            "n1",
            way,
            lambda: self.head,
            lambda: self.durable,
            lambda: {"PATH": os.environ["PATH"], "SHOWN": "yes"},
            lambda: self.now_s,
            str(syslog_socket),
        )

    def look(self, later_s=0.0):
        self.now_s += later_s
        self.anchors.look()

    def ended(self):
        """Looks until the command that runs has ended."""

        def is_over():
            self.look()
            return self.anchors._process is None

        wait_until(is_over)


@pytest.fixture
def script(tmp_path):
    """A command that keeps what it is told, and ends as the file `code` says."""
    made = tmp_path / "keep"
    made.write_text(
        f"#!{sys.executable}\nimport os, sys, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "shown = [k for k in ('SHOWN', 'HIDDEN') if k in os.environ]\n"
        "said = ' '.join([*sys.argv[1:], *shown])\n"
        "with (folder / 'kept').open('a') as out:\n    out.write(said + '\\n')\n"
        "code = folder / 'code'\nsys.exit(int(code.read_text()) if code.exists() else 0)\n"
    )
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return made


def kept(script):
    file = script.with_name("kept")
    return file.read_text().splitlines() if file.exists() else []


def test_the_system_log_gets_one_an_hour(tmp_path):
    """Where root of another machine may keep it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        log.settimeout(0)
        rig = Rig(["syslog"], tmp_path / "log")
        for later_s in (0, 1, EVERY_S - 2):
            rig.look(later_s)
        said = f"<86>hms[{os.getpid()}]: audit anchor n1 7:{'ab' * 32}".encode()
        assert log.recv(1000) == said
        with pytest.raises(BlockingIOError):
            log.recv(1000)
        rig.head = Head(8, "cd" * 32, 21)
        rig.durable = 21
        rig.look(1)
        assert b" 8:cdcd" in log.recv(1000)
    assert rig.anchors.fault == ""


def test_a_command_is_told_the_node_and_the_anchor(script, monkeypatch):
    """With the words that the configuration has, and no variable that holds a secret."""
    monkeypatch.setenv("HIDDEN", "secret")
    rig = Rig([str(script), "to"])
    rig.look()
    rig.ended()

    assert kept(script) == [f"to n1 7:{'ab' * 32} SHOWN"]
    assert rig.anchors.fault == ""


def test_what_is_not_durable_yet_is_not_sent(script):
    """A power cut would take it from the log, and the anchor tell an older store."""
    rig = Rig([str(script)])
    rig.durable = 19
    rig.look()
    rig.head = Head(9, "ef" * 32, 30)
    rig.look(1)
    assert rig.anchors._process is None
    rig.durable = 20
    rig.look(1)
    rig.ended()

    assert kept(script) == [f"n1 7:{'ab' * 32} SHOWN"]


def test_nothing_is_sent_of_an_audit_that_is_empty(script):
    """It begins with the first record."""
    rig = Rig([str(script)])
    rig.head = Head(0, "", 0)
    rig.look()
    assert rig.anchors._process is None
    rig.head = Head(1, "ab" * 32, 20)
    rig.look(1)
    rig.ended()

    assert len(kept(script)) == 1


def test_a_command_that_fails_is_told_and_tried_again_in_a_minute(script):
    """An anchor that is nowhere proves nothing."""
    script.with_name("code").write_text("3")
    rig = Rig([str(script)])
    rig.look()
    rig.ended()
    assert rig.anchors.fault == f"{script} ended with 3"
    script.with_name("code").unlink()
    rig.look(AGAIN_S - 1)
    assert rig.anchors._process is None
    rig.look(1)
    rig.ended()

    assert len(kept(script)) == 2
    assert rig.anchors.fault == ""


def test_a_command_that_hangs_is_ended(tmp_path):
    """The next one is not kept waiting."""
    rig = Rig(["/bin/sleep", "600"])
    rig.anchors._way = ("/bin/sh", "-c", "exec sleep 600")
    rig.look()
    process = rig.anchors._process
    rig.look(COMMAND_S + 1)

    assert process.returncode < 0
    assert "took more than 30 s" in rig.anchors.fault


@pytest.mark.parametrize("way", [["syslog"], ["/no/such/program"]])
def test_what_is_not_there_is_told(way):
    """No system log in a container, a program that was removed."""
    rig = Rig(way)
    rig.look()

    assert rig.anchors.fault == f"{way[0]}: No such file or directory"
    rig.anchors.close()
    assert audit_anchors.SYSLOG == "syslog"
