"""The log of a real node: JSON lines, requests that are named at both sides, and rotation."""

import json
import subprocess

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from tests.support.project import ROOT
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}}}, "node": {"node1": {"log_format": "JSON"}}}


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
    assert {"ts", "level", "event", "text", "node", "boot"} <= events[-1].keys()


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
    assert found.startswith(before)
    assert found.count("begins anew") == 2
