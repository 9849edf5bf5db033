"""The log of a real node is rotated by itself, with its server processes, logrotate and crashes."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.rotated_files import number_of
from hms.testing import node as booted
from tests.support.waiting import wait_until

CONFIG = {
    "hms": {"queue": {"orders": {}}},
    "node": {"node1": {"log_file": "node.log", "log_max_bytes": "16 KiB", "log_files": 100}},
    "server": {
        "printing": {
            "module": "printing_services",
            "MIN": 1,
            "MAX": 1,
            "python_path": [str(Path(__file__).parent)],
        }
    },
}
LINES = 400
"""About 28 KiB: more than a file."""


def numbered(folder):
    return sorted(folder.glob("node.log-*Z-*"))


def last_number(folder):
    """A file and what is being made of it are one."""
    return max((number_of(path) for path in numbered(folder)), default=0)


def test_no_line_is_lost_doubled_or_cut_by_size_sighup_and_crashes(node):
    """Lines of a server process, which has the file open as long as it lives: printed before and
    behind each rotation, by size, by logrotate's way, and in a life that a crash ends."""
    folder, total = node.log_file.parent, 0

    def is_rotated(before):
        """What is printed before the server has heard of the new file goes to the one before."""
        nonlocal total
        with hms.connect(node.address) as connection:
            asked = {"first": total, "count": LINES}
            total = connection.call("PRINT", asked, timeout_s=60).data["next"]
        return last_number(folder) > before

    for turn in range(4):
        before = last_number(folder)
        wait_until(lambda before=before: is_rotated(before), pause_s=0.5)
        if turn == 2:
            node.kill()
            node.boot()
        elif turn % 2:
            node.log_file.rename(folder / f"node.log.{turn}")
            os.kill(node.pid, signal.SIGHUP)
            wait_until(lambda: node.log_file.exists() and "begins anew" in node.log)
    wait_until(lambda: all(path.suffix == ".gz" for path in numbered(folder)))
    node.stop()
    lines = []
    for path in folder.glob("node.log*"):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        assert not text or text.endswith("\n"), path
        lines += [line for line in text.splitlines() if "printed" in line]
    words = [line.split() for line in lines]
    assert {(word, padding) for word, _, padding in words} == {("printed", "x" * 60)}
    assert sorted(int(number) for _, number, _ in words) == list(range(total))
    config = ["--config", str(node.config_file), "--node", node.name]
    found = CliRunner().invoke(main, ["log", "search", *config, "--limit", "1000000"]).output
    assert found.count("printed") == total
    assert found.count("is ready") == 2


def test_a_node_with_a_full_log_disk_boots_works_and_counts_what_it_does_not_say(node):
    """P10: the log is the least of what a node is for. What a service prints is no error of it."""
    node.stop()
    words = ["-P", "-m", "hms.boot.node", "--config", str(node.config_file), "--node", node.name]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        process = subprocess.Popen([sys.executable, *words], stdout=full, stderr=full)
    try:
        with hms.connect(node.address, connect_timeout_s=60) as connection:
            asked = {"first": 0, "count": 3}
            wait_until(lambda: "PRINT" in str(connection.administer("service.list")))
            assert connection.call("PRINT", asked, timeout_s=60).data == {"next": 3}
            connection.session().producer("orders").send(b"kept")
            assert connection.administer("status")["log_lines_dropped"] > 0
            assert connection.administer("queue.show", {"name": "orders"})["waiting"] == 1
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_log_is_rotated_by_its_age_and_the_oldest_go():
    """A quiet node has its past in files too; an empty log is none."""
    old = {"log_file": "node.log", "log_age_s": 0.5, "log_files": 2}
    with booted(config={"node": {"node1": old}, "hms": {"queue": {"orders": {}}}}) as node:
        folder = node.log_file.parent
        for number in range(1, 5):

            def is_rotated(number=number):
                with hms.connect(node.address) as connection:
                    connection.administer("log.level", {"level": "INFO", "name": "hms.x"})
                return last_number(folder) >= number

            wait_until(is_rotated, pause_s=0.3)

        def kept():
            return {number_of(path) for path in numbered(folder)}

        wait_until(lambda: len(kept()) == 2 and all(p.suffix == ".gz" for p in numbered(folder)))
        assert max(kept()) - min(kept()) == 1
        assert node.stop() == 0


@pytest.fixture
def journal_of_another(monkeypatch):
    """As of a shell in a unit of systemd."""
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")


def test_a_log_file_has_the_time_also_below_a_unit_of_systemd(journal_of_another, node):
    """Its variable goes to all that is started there."""
    said = [json.loads(line) for line in node.log.splitlines()]
    assert all("ts" in one for one in said)
    assert [one["text"] for one in said].count("node node1 is ready") == 1
