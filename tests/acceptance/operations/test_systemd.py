"""The units that ship, and the words that a supervisor hears of a node."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.config import load
from hms.history.backups.backup_chain import backups_in
from hms.testing import node as booted
from tests.support.project import ROOT
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.supervisor import ear_at
from tests.support.syscall_filter import allowed
from tests.support.waiting import wait_until

SYSTEMD = ROOT / "packaging" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
PAGE = ROOT / "docs" / "reference" / "installation.md"
EXPOSURE_MAX = 2.0


def words_of(unit, key):
    """What a key of a unit has, each time it is there."""
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def test_the_page_of_an_installation_fits_the_units(tmp_path):
    """Where the file says that a node writes, its unit lets it; each unit is on the page. With
    paths left out the store would lie in /etc, and the node would not boot."""
    text = PAGE.read_text()
    (configured,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "hms.conf").write_text(configured)
    node = load(tmp_path / "hms.conf").node("NODE1")
    unit = SYSTEMD / "hms@.service"
    own = [f"/var/lib/{name}/" for name in words_of(unit, "StateDirectory")]
    own += [f"/run/{name}" for name in words_of(unit, "RuntimeDirectory")]
    for path in (node.store, node.runtime, node.log_file, node.security):
        assert any(str(path).startswith(folder) for folder in own), path
    for name in ("hms-ship@.service", "hms-backup@.service"):
        (folder,) = words_of(SYSTEMD / name, "ReadWritePaths")
        assert node.backups == Path(folder) / node.name
    for path in SYSTEMD.iterdir():
        assert f"`{path.name.partition('@')[0]}@" in text, path.name


def test_a_timer_and_what_it_begins_are_right(tmp_path):
    """The service of a timer is found by its name alone."""
    timer = SYSTEMD / "hms-backup@.timer"
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        str(timer),
        str(timer.with_suffix(".service")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    calendar = ["systemd-analyze", "calendar", *words_of(timer, "OnCalendar")]
    assert subprocess.run(calendar, capture_output=True, check=False).returncode == 0


def test_the_commands_of_the_nightly_backup_do_what_the_unit_says(tmp_path, monkeypatch):
    """Eight nights: seven backups, each verified, are left."""
    unit, place = SYSTEMD / "hms-backup@.service", tmp_path / "hms"
    with booted(config={"hms": {"queue": {"orders": {}}}}) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        for _ in range(8):
            for line in words_of(unit, "ExecStart"):
                words = line.replace("/var/backups/hms", str(place)).replace("%i", node.name)
                done = CliRunner().invoke(main, words.removeprefix("/usr/bin/env hms ").split())
                assert done.exit_code == 0, done.output
    assert len(backups_in(place / node.name)) == 7


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
    with ear_at(path) as ear:
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with booted(config={"hms": {"queue": {"orders": {}}}}) as node:
            wait_until(lambda: "READY=1" in ear.words)
            wait_until(lambda: "WATCHDOG=1" in ear.words)
            with hms.connect(node.address) as connection:
                connection.session().producer("orders").send(b"x")
            assert "STOPPING=1" not in ear.heard()
            assert node.stop() == 0
            wait_until(lambda: "STOPPING=1" in ear.words)
    words = ear.words
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
