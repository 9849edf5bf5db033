"""The units that ship, and the words that a supervisor hears of a node."""

import re
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import hms
from hms.testing import node as booted
from tests.support.project import ROOT
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.syscall_filter import allowed
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


@contextmanager
def heard_at(path):
    """Words as they come: the kernel keeps ten datagrams, and drops what a node says beyond."""
    words = []

    def hear():
        while said := ear.recv(4096):
            words.extend(said.decode().splitlines())

    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(str(path))
        thread = threading.Thread(target=hear)
        thread.start()
        try:
            yield words
        finally:
            with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as last:
                last.sendto(b"", str(path))
            thread.join()


def test_a_supervisor_hears_how_a_node_does(tmp_path, monkeypatch):
    """READY when it serves, WATCHDOG while it comes on, STOPPING before it drains."""
    path = tmp_path / "notify"
    with heard_at(path) as words:
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with booted(config={"hms": {"queue": {"orders": {}}}}) as node:
            wait_until(lambda: "READY=1" in words)
            wait_until(lambda: "WATCHDOG=1" in words)
            with hms.connect(node.address) as connection:
                connection.session().producer("orders").send(b"x")
            assert "STOPPING=1" not in words
            assert node.stop() == 0
            wait_until(lambda: "STOPPING=1" in words)
    assert words.index("READY=1") < words.index("WATCHDOG=1") < words.index("STOPPING=1")
    assert any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in words[: words.index("READY=1")])


def test_a_secured_node_works_under_the_filter_of_its_unit(tmp_path, monkeypatch):
    r"""What the unit lets it ask of the kernel is enough: logins, messages, files, orders, a reload
    and a stop. All tests of a file under it:

    python -m tests.support.syscall_filter packaging/systemd/hms@.service \\
        python -m pytest tests/acceptance/test_messaging.py tests/acceptance/test_life.py
    """
    unit = ROOT / "packaging" / "systemd" / "hms@.service"
    filtered = [sys.executable, str(ROOT / "tests/support/syscall_filter.py"), str(unit)]
    may = ["produce queue:orders", "consume queue:orders"]
    monkeypatch.setenv("NOTIFY_SOCKET", "")
    with secured_node(tmp_path, document(u=may), command_prefix=filtered) as node:
        status = Path(f"/proc/{node.pid}/status").read_text()
        assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)
        (tmp_path / "body").write_bytes(bytes(3 << 20))
        with hms.connect(node.address, user="u", password=PASSWORD) as connection:
            session = connection.session(ack=hms.AckMode.CLIENT)
            out, inn = session.producer(hms.Queue("orders")), session.consumer(hms.Queue("orders"))
            for sent in (hms.Message(b"x"), hms.Message.file(tmp_path / "body")):
                out.send(sent)
                inn.receive(timeout_s=60).ack()
        with hms.connect(node.address) as connection:
            connection.administer("queue.pause", {"name": "orders"})
        node.kill()
        node.boot(warm=True)
        assert "refused" not in node.log
        assert node.stop() == 0
    assert allowed(unit).isdisjoint(
        {"mount", "ptrace", "init_module", "bpf", "setrlimit", "reboot"}
    )
