"""The units that ship, and the words that a supervisor hears of a node."""

import re
import socket
import subprocess
from contextlib import closing

import pytest

import hms
from hms.testing import node as booted
from tests.support.project import ROOT
from tests.support.waiting import wait_until

UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
EXPOSURE_MAX = 2.0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_right_and_lets_the_process_do_little(unit, tmp_path):
    """What a broken node could do to its machine is a figure of systemd."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX


def test_a_supervisor_hears_how_a_node_does(tmp_path, monkeypatch):
    """READY when it serves, WATCHDOG while it comes on, STOPPING before it drains."""
    path = tmp_path / "notify"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(str(path))
        ear.settimeout(0)
        words = []

        def heard(word):
            try:
                while True:
                    words.extend(ear.recv(4096).decode().splitlines())
            except BlockingIOError:
                return word in words

        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with booted(config={"hms": {"queue": {"orders": {}}}}) as node:
            wait_until(lambda: heard("READY=1"))
            wait_until(lambda: heard("WATCHDOG=1"))
            with hms.connect(node.address) as connection:
                connection.session().producer("orders").send(b"x")
            assert "STOPPING=1" not in words
            assert node.stop() == 0
            wait_until(lambda: heard("STOPPING=1"))
    assert words.index("READY=1") < words.index("WATCHDOG=1") < words.index("STOPPING=1")
    assert any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in words[: words.index("READY=1")])
