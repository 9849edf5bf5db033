"""The rules and dashboards that ship, and a Prometheus that scrapes a node."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

import hms
from hms.testing.ports import free_port
from tests.support.project import ROOT
from tests.support.waiting import wait_until

PACKAGING = ROOT / "packaging"
RULES = PACKAGING / "prometheus" / "hms.rules.yml"
CONFIG = {"hms": {"queue": {"orders": {}}}, "alerts": {"unconsumed_queue_s": 1}}
ELSEWHERE = ("hms_service_", "hms_server_", "hms_link_", "hms_replica_")
ELSEWHERE += ("hms_logins_total", "hms_denied_total", "hms_audit_records_total")
"""Of a node with servers, in a cluster, with copies, or secured; those have tests of their own."""
METRIC = re.compile(r"\bhms_[a-z_]+")
WAIT_S = 60


@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", str(RULES)],
        ["check", "config", str(PACKAGING / "prometheus" / "prometheus.yml")],
        ["test", "rules", str(PACKAGING / "prometheus" / "hms.rules.test.yml")],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_promtool_takes_the_rules_and_their_tests(words):
    """A rule that never fires looks like a system that is well."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@contextmanager
def _process(words, **options):
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)


def _asked(port, query):
    where = f"http://127.0.0.1:{port}/api/v1/{query}"
    try:
        with urllib.request.urlopen(where, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return {}


def test_a_prometheus_scrapes_a_node_and_fires_its_rules(node, tmp_path):
    """All metrics that rules and dashboards name are there, and an alert of the node arrives."""
    words = [sys.executable, "-m", "hms.boot", "web", "--config", str(node.config_file)]
    web = _process([*words, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True)
    with web as serving, hms.connect(node.address) as connection:
        with connection.session() as session:  # something is delivered
            session.producer("orders").send(b"tea")
            assert session.consumer("orders").receive(WAIT_S).body == b"tea"
            session.producer("orders").send(b"coffee")
        target = json.loads(serving.stdout.readline())["address"].removeprefix("http://")
        text = (PACKAGING / "prometheus" / "prometheus.yml").read_text()
        text = text.replace("127.0.0.1:7780", target).replace("15s", "1s").replace("60s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        rules = RULES.read_text().replace("for: 1m", "for: 0s")
        (tmp_path / "hms.rules.yml").write_text(rules)
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        with _process(command):

            def firing():
                alerts = _asked(port, "alerts").get("alerts", [])
                return {one["labels"].get("alert") for one in alerts if one["state"] == "firing"}

            wait_until(lambda: "unconsumed_queue" in firing(), WAIT_S)
            names = (PACKAGING / "grafana").glob("*.json")
            named = {one for file in names for one in METRIC.findall(file.read_text())}
            named |= set(METRIC.findall(RULES.read_text()))
            elsewhere = {name for name in named if name.startswith(ELSEWHERE)}

            def missing():
                """Each address has a turn of its own: that of destinations may come last."""
                return named - elsewhere - set(_asked(port, "label/__name__/values"))

            wait_until(lambda: not missing(), WAIT_S)
            receiver = connection.session().consumer("orders")
            assert receiver.receive(WAIT_S).body == b"coffee"
            wait_until(lambda: "unconsumed_queue" not in firing(), WAIT_S)


@pytest.mark.parametrize("name", ["hms-nodes.json", "hms-destinations.json"])
def test_a_dashboard_names_no_machine_of_its_own(name):
    """It is imported elsewhere, where the source of data has another name."""
    board = json.loads((PACKAGING / "grafana" / name).read_text())
    assert all(panel["datasource"]["uid"] == "${source}" for panel in board["panels"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
