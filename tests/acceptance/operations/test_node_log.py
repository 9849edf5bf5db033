"""The log of a real node: JSON lines, requests that are named at both sides, and rotation."""

import json
import select
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.testing import node as booted
from tests.support.project import ROOT
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}}}}


def test_a_refusal_has_the_same_name_in_the_log_and_in_the_client(node, tmp_path):
    """Who reads a ticket at three in the morning finds the line of the node, and no payload."""
    with hms.connect(node.address, client_id="bar") as connection:
        connection.administer("log.level", {"level": "DEBUG", "name": "hms.refusals"})
        session = connection.session()
        with pytest.raises(hms.errors.DestinationNotFound) as refused:
            session.producer("nothing")
        session.producer("orders").send(b"secret coffee", {"Who": "confidential"})
    error = refused.value
    assert error.request

    def found():
        lines = node.log.splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [said for said in whole if said.get("request") == error.request]

    wait_until(found)
    (said,) = found()
    assert (said["event"], said["error"], said["node"]) == ("refused", 4001, "node1")
    assert "secret" not in node.log
    assert "confidential" not in node.log
    config = tmp_path / "hms.conf"
    config.write_text(f'[node.node1]\nlog_file = "{node.log_file}"\n')
    words = ["log", "search", "--config", str(config), "--request", error.request, "--json"]
    assert json.loads(CliRunner().invoke(main, words).stdout) == said
    node.stop()
    events = [json.loads(line) for line in node.log.splitlines()]
    assert {"ts", "level", "event", "logger", "text", "node", "boot"} <= events[-1].keys()
    names = [said["event"] for said in events]
    ready, draining = names.index("node_ready"), names.index("node_draining")
    assert names.index("node_listens") < ready < draining
    assert [said for said in events if said["event"] == said["logger"]] == []


def test_logrotate_has_the_node_begin_a_new_file(node, tmp_path):
    """The file that is shipped, for this folder and user: nothing is lost between the two files."""
    node.log_file.parent.joinpath("N1.pid").write_text(str(node.pid))
    text = (ROOT / "packaging" / "logrotate" / "hms").read_text()
    text = text.replace("/run/hms/", f"{node.log_file.parent}/").replace("    su hms hms\n", "")
    rules = tmp_path / "hms"
    rules.write_text(text)
    rules.chmod(0o644)
    before = node.log
    for number in (1, 2):
        command = ["/usr/sbin/logrotate", "-f", "-s", str(tmp_path / "state"), str(rules)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: node.log_file.exists() and "begins anew" in node.log, 60)
        rotated = sorted(node.log_file.parent.glob("node.log.*"))
        assert len(rotated) == number
    config = tmp_path / "hms.conf"
    config.write_text(f'[node.node1]\nlog_file = "{node.log_file}"\n')
    found = CliRunner().invoke(main, ["log", "search", "--config", str(config)]).output
    texts = [json.loads(line)["text"] for line in before.splitlines()]
    assert [line.split(": ", 1)[1] for line in found.splitlines()][: len(texts)] == texts
    assert found.count("begins anew") == 2


def test_the_system_log_gets_each_line_too(tmp_path, monkeypatch):
    """In the format of the log; a node with a system log that is away works."""
    config = {"node": {"node1": {"log_syslog": True}}, "hms": {"queue": {"orders": {}}}}
    heard = tmp_path / "heard"
    listener = (
        "import pathlib, socket, sys\n"
        "ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\near.bind(sys.argv[1])\n"
        "with pathlib.Path(sys.argv[2]).open('ab', buffering=0) as out:\n"
        "    while True:\n        out.write(ear.recv(65536) + b'\\n')\n"
    )
    path = tmp_path / "log"
    program = (
        "import sys\nfrom hms.boot import node, syslog_output\n"
        f"syslog_output.SyslogOutput.__init__.__defaults__ = ({str(path)!r},)\n"
        "sys.exit(node.main(sys.argv[1:]))\n"
    )
    with booted(config=config) as running:  # there is none on this machine, or another's
        assert running.stop() == 0
        words = ["--config", str(running.config_file), "--node", running.name]
        with subprocess.Popen([sys.executable, "-c", listener, str(path), str(heard)]) as ear:
            wait_until(path.exists)
            with subprocess.Popen([sys.executable, "-P", "-c", program, *words]) as node:
                wait_until(lambda: heard.exists() and b"is ready" in heard.read_bytes())
                node.terminate()
                assert node.wait(60) == 0
            wait_until(lambda: b"draining" in heard.read_bytes())
            ear.kill()
    assert b"<30>hms[" in heard.read_bytes()


def test_a_log_that_is_followed_ends_well_when_it_is_interrupted(node, tmp_path):
    """Its help names that as its end; it said "Aborted!" and ended with 1."""
    config = tmp_path / "hms.conf"
    config.write_text(f'[node.node1]\nlog_file = "{node.log_file}"\n')
    command = [sys.executable, "-m", "hms.boot", "log", "follow", "--config", str(config)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as following:
        try:
            while not select.select([following.stdout], [], [], 0.1)[0]:
                assert following.poll() is None
                with hms.connect(node.address) as connection:  # a line, once it is followed
                    connection.administer("log.level", {"level": "INFO"})
            following.send_signal(signal.SIGINT)
            _, errors = following.communicate(timeout=60)
        finally:
            following.kill()
    assert (following.returncode, errors) == (0, "")
