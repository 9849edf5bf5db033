"""The command line where no node is needed: help, configuration, errors, exit codes."""

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.config import sample
from hms.boot.monitoring.health import Health
from hms.errors.catalogue import BY_NUMBER

LOADED_BY_HELP = """
import sys
from hms.boot.cli import main
main(["--help"], standalone_mode=False)
heavy = {"zmq", "msgspec", "hms.client.connection", "tpmon", "apscheduler", "pyspark"}
print(sorted(set(sys.modules) & heavy))
"""

LOADED_BY_STATUS = """
import sys
from hms.boot.cli import main
main(["status"], standalone_mode=False)
heavy = {"hms.engine.engine", "hms.server.broker", "hms.store.journal", "tpmon", "apscheduler"}
print(sorted(set(sys.modules) & heavy), file=sys.stderr)
"""


@pytest.fixture
def hms(tmp_path, monkeypatch):
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words, **settings):
        return CliRunner().invoke(main, words, prog_name="hms", **settings)

    return run


def test_the_help_names_every_command(hms):
    """What is not listed is not found."""
    said = hms("--help")

    assert said.exit_code == 0
    assert all(f"  {name} " in said.output for name in main.list_commands(click.Context(main)))


def test_the_version_is_told(hms):
    """It is what whoever reports a fault is asked for first, without a node."""
    assert hms("--version").output == f"hms {version('hybrid-messaging')}\n"


def test_the_help_loads_no_messaging(project_root):
    """A command line that takes a second to answer is not used."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BY_HELP],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_status_loads_neither_engine_nor_store(project_root, tmp_path):
    """Reading hms.conf and asking a node needs none of what a node runs with."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BY_STATUS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(project_root)},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )

    assert done.stderr.splitlines()[-1] == "[]"


def test_an_unknown_command_is_a_wrong_use_and_names_the_nearest(hms):
    """Exit code 2 is for the one who typed it."""
    said = hms("staus")

    assert said.exit_code == 2
    assert "did you mean 'status'?" in said.output


def test_a_sample_is_written_checked_and_shown(hms, tmp_path):
    """The first three commands that anyone types."""
    assert hms("config", "init").exit_code == 0
    assert (tmp_path / "hms.conf").read_text() == sample()

    checked = hms("config", "check")
    assert (checked.exit_code, checked.output) == (
        0,
        "hms.conf is good: 1 node, 0 servers, 2 queues, 1 topic\n",
    )


def test_what_is_shown_is_a_configuration_itself(hms, tmp_path):
    """Defaults filled in and read again give the same."""
    text = sample() + '[hms.queue."a \\"b\\""]\n[service.S]\n[server.s]\nmodule = "m"\n'
    (tmp_path / "hms.conf").write_text(text)

    shown = hms("config", "show").output
    (tmp_path / "hms.conf").write_text(shown)

    assert hms("config", "show").output == shown
    assert tomllib.loads(shown) == json.loads(hms("config", "show", "--json").output)


def test_a_sample_does_not_replace_a_configuration(hms, tmp_path):
    """A configuration in use is worth more than a sample."""
    (tmp_path / "hms.conf").write_text("mine")

    assert hms("config", "init").exit_code == 1
    assert (tmp_path / "hms.conf").read_text() == "mine"
    assert hms("config", "init", "--force").exit_code == 0


def test_a_check_prints_one_fault_a_line_and_exits_with_one(hms, tmp_path):
    """Editors and CI read the lines."""
    (tmp_path / "hms.conf").write_text("[node.N1]\nBOT = 1\nMAXSESSION = 0\n")

    said = hms("config", "check")

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.splitlines() == [
        "hms.conf:2: [node.N1] unknown key 'BOT' (did you mean 'BOOT'?)",
        "hms.conf:3: [node.N1] MAXSESSION: 0 is out of range: 1 to 65535",
    ]
    assert len(json.loads(hms("config", "check", "--json").stdout)["faults"]) == 2


@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_configuration_is_found_by_option_or_variable(hms, tmp_path, how):
    """Services run with a folder of their own."""
    path = tmp_path / "other.conf"
    path.write_text("[node.N1]\n")

    words = ("--config", str(path)) if how == "option" else ()
    said = hms("config", "check", *words, env={"HMS_CONFIG": str(path)} if how != "option" else {})

    assert said.exit_code == 0


@pytest.mark.parametrize("command", ["boot", "down", "status"])
def test_without_a_configuration_the_reason_is_told(hms, command):
    """The text says what to do about it."""
    said = hms(command)

    assert (said.exit_code, said.stdout) == (1, "")
    assert "HMS-8001 hms.conf: there is no such file; hms config init writes one" in said.stderr


def test_a_node_that_does_not_run_is_told_with_exit_code_one(hms):
    """Scripts ask before they act."""
    hms("config", "init")

    status, down = hms("status"), hms("down")

    assert status.exit_code == 1
    assert "running  False" in status.output
    assert down.exit_code == 1
    assert "HMS-8004 node NODE1 is not running. Start it with hms boot." in down.stderr


def test_the_details_of_health_are_every_check_and_alert(hms, monkeypatch):
    """The page promised checks, and the command said `ready`."""
    hms("config", "init")
    alert = {"alert": "backlog", "destination": "orders", "text": "9 wait"}
    found = Health("N", "ready", True, True, "ready", [alert], {"main loop": 0.25})  # noqa: FBT003
    monkeypatch.setattr("hms.boot.cli.monitoring.health_of", lambda _: found)

    said = hms("health", "details").output.splitlines()

    assert said == [
        "N: ready",
        "  main loop: last progress 0.25 s ago",
        "  alert backlog orders: 9 wait",
    ]


@pytest.mark.parametrize("command", ["boot", "down"])
def test_processes_are_not_started_or_stopped_by_address(hms, command):
    """An address may be another machine's, later."""
    assert hms(command, "--connect", "tcp://127.0.0.1:1").exit_code == 2


@pytest.mark.parametrize("code", ["HMS-4012", "4012", "QueueFull", "hms-4012"])
def test_an_error_is_explained_by_any_of_its_names(hms, code):
    """A log shows one of them, a program another."""
    said = hms("errors", "show", code)

    assert said.exit_code == 0
    assert "HMS-4012 QueueFull (TPEQFULL, 26)" in said.output
    assert "Add consumers" in said.output


def test_a_code_of_xopen_shows_all_errors_that_carry_it(hms):
    """A program sees gettperrno() first."""
    by_symbol, by_number = hms("errors", "show", "TPEQFULL"), hms("errors", "show", "26")

    assert by_symbol.output == by_number.output
    assert by_symbol.output.count("TPEQFULL") >= 2


def test_an_unknown_error_names_the_nearest(hms):
    """Names are typed from memory."""
    said = hms("errors", "show", "QueueFul")

    assert said.exit_code == 1
    assert "did you mean 'QueueFull'?" in said.stderr


def test_all_errors_are_listed(hms):
    """The catalogue is what can go wrong."""
    assert len(hms("errors", "list").output.splitlines()) == len(BY_NUMBER)
    assert len(json.loads(hms("errors", "list", "--json").output)) == len(BY_NUMBER)


@pytest.mark.parametrize(
    "name", ["config", "queue", "bench", "errors", "send", "receive", "browse", "call", "serve"]
)
def test_every_group_explains_itself(hms, name):
    """Help must not depend on a node or a configuration."""
    said = hms(name, "--help")

    assert said.exit_code == 0
    assert "Usage: hms" in said.output


@pytest.mark.parametrize(
    "words",
    [
        ["send", "orders", "\udcff\udcfe"],
        ["send", "\udcff", "x"],
        ["send", "orders", "x", "--property", "a=\udcff"],
        ["--config", "\udcff", "status"],
        ["queue", "\udcff"],
        ["\udcff"],
        ["queue", "create", "ü\udcff"],
    ],
)
def test_an_argument_that_is_no_utf_8_is_a_wrong_command_line(words):
    """Python hands such bytes over as lone surrogates, which no encoder takes: a traceback."""
    done = CliRunner().invoke(main, words)

    assert done.exit_code == 2
    assert "HMS-1011 command line: b'" in done.stderr
    assert "\\xff" in done.stderr


def unread(*words):
    """A command whose reader has gone; its exit code, and what it said on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        line = [sys.executable, "-m", "hms.boot", *words]
        done = subprocess.run(
            line, stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["errors", "list"]])
def test_a_command_whose_output_nobody_reads_ends_as_others_do(words):
    """`hms errors list | head -1` ended with 1, as a command that failed."""
    assert unread(*words) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("words", [["--help"], ["errors", "list"], ["errors", "show", "4012"]])
def test_a_disk_that_is_full_is_told_and_no_trace_is(words):
    """`hms queue list > FILE` there ended with Python's own."""
    line = [sys.executable, "-m", "hms.boot", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)

    assert done.returncode == 1
    assert done.stderr == b"Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [("top", "--once", "--record"), ("man", "--to")])
def test_a_file_that_cannot_be_had_is_told_and_no_trace_is(hms, tmp_path, words):
    """A folder that is not there, or a file in the place of one."""
    (tmp_path / "file").touch()
    said = hms(*words, str(tmp_path / "file" / "x"))

    assert said.exit_code == 1
    assert "Not a directory" in said.stderr
    assert "Traceback" not in said.output
    assert isinstance(said.exception, SystemExit)


def test_a_sample_that_has_no_room_leaves_no_file(tmp_path):
    """The next attempt was refused: there is one already, of no byte."""
    line = [sys.executable, "-m", "hms.boot", "config", "init", "--config", tmp_path / "hms.conf"]
    done = subprocess.run(
        ["prlimit", "--fsize=0", *map(str, line)], capture_output=True, timeout=120, check=False
    )

    assert done.returncode == 1
    assert b"hms.conf cannot be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_nobody_reads_any_more_is_no_log_that_cannot_be_read(tmp_path):
    """`hms log follow | head -1` said that the log cannot be read."""
    config = tmp_path / "hms.conf"
    config.write_text('[node.NODE1]\nlisten = ["tcp://127.0.0.1:7700"]\n')
    log = tmp_path / "var" / "NODE1" / "run" / "NODE1.log"
    log.parent.mkdir(parents=True)
    is_over = threading.Event()

    def write():
        with log.open("a") as out:
            while not is_over.wait(0.05):
                out.write("2026-01-01T00:00:00.000Z INFO one more line\n")
                out.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        ended = unread("log", "follow", "--config", str(config))
    finally:
        is_over.set()
        writer.join()

    assert ended == (128 + signal.SIGPIPE, b"")
