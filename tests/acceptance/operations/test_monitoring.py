"""Health, metrics and alerts of a real node, seen from outside."""

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.cli.target import Target
from hms.boot.config import load
from hms.boot.supervise import identify
from hms.client.consumer import Consumer
from hms.client.core import requests
from hms.testing import node as booted
from tests.support.waiting import wait_until

CONFIG = {
    "alerts": {
        "unconsumed_queue_s": 1,
        "stalled_consumer_s": 1,
        "memory_high_percent": 50,
        "slow_main_loop_ms": 60_000,  # of a machine that is busy, it would stay for a minute
    },
    "node": {"node1": {"max_memory_bytes": "2 MiB", "watchdog_s": 5}},
    "hms": {"queue": {"orders": {}, "other": {"limit_behavior": "REJECT_NEWEST"}}},
}
WAIT_S = 60
WHAT = ("delivery", "ack")


@pytest.fixture
def command(node):
    """Run a command on the node's machine; its exit code and what it prints."""

    def run(*words):
        done = CliRunner().invoke(main, [*words, "--config", str(node.config_file)])
        return done.exit_code, done.stdout

    return run


@contextmanager
def _web(node):
    """A process of hms web of its own; gives a function that asks it."""
    words = [sys.executable, "-m", "hms.boot", "web", "--config", str(node.config_file)]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        address = json.loads(process.stdout.readline())["address"]

        def ask(path):
            try:
                with urllib.request.urlopen(f"{address}{path}", timeout=WAIT_S) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as answer:
                return answer.code, answer.read().decode()

        try:
            yield ask
        finally:
            process.terminate()
            assert process.wait(WAIT_S) == 0


def _value(text, series):
    (line,) = [line for line in text.splitlines() if line.startswith(series)]
    return float(line.rpartition(" ")[2])


def test_metrics_are_what_happened_and_prometheus_takes_them(node, command):
    """Prometheus reads the text; sums do not fall when a queue goes."""
    with hms.connect(node.address) as connection, _web(node) as ask:
        session = connection.session(ack=hms.AckMode.CLIENT)
        for name in ("orders", "other"):
            session.producer(name).send(b"coffee")
        consumer = session.consumer("orders")
        consumer.receive(WAIT_S).ack()
        code, text = command("metrics", "--name", "o*")
        checked = subprocess.run(
            ["promtool", "check", "metrics"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (code, checked.returncode, checked.stderr) == (0, 0, "")
        place = '{node="node1",destination="orders",kind="queue"}'
        assert _value(text, f"hms_destination_messages_acknowledged_total{place}") == 1
        assert _value(text, 'hms_all_messages{node="node1",durable="true"}') == 1
        received = 'hms_messages_received_total{node="node1",durable="true"}'
        assert _value(text, received) == 2
        assert _value(text, 'hms_log_commit_seconds_count{node="node1"}') >= 3
        assert _value(text, 'hms_log_sync_seconds_count{node="node1"}') >= 3
        assert _value(text, 'hms_transactions{node="node1",state="prepared"}') == 0
        assert _value(text, 'hms_in_doubt_oldest_seconds{node="node1"}') == 0
        assert _value(text, 'hms_node_state{node="node1",state="ready"}') == 1
        assert _value(text, 'hms_node_state{node="node1",state="draining"}') == 0
        assert _value(text, 'hms_main_loop_turns_total{node="node1"}') > 0

        def shares():
            lines = command("metrics")[1].splitlines()
            return [line for line in lines if line.startswith("hms_worker_busy_ratio{")]

        found = wait_until(shares, WAIT_S)  # a second after the boot
        assert [line.partition(",")[2].partition("}")[0] for line in found] == [
            'pool="general"',
            'pool="storage"',
        ]

        consumer.close()
        connection.administer("queue.create", {"name": "gone"})
        session.producer("gone").send(b"x")
        gone = {"name": "gone", "force": True, "discard": True}
        connection.administer("queue.delete", gone)
        status, text = ask("/metrics/destinations?name=o*")
        assert status == 200
        assert 'destination="gone"' not in text
        assert 'destination="orders"' in text
        assert "hms_messages_received_total{" not in text
        status, text = ask("/metrics")
        assert (status, _value(text, received)) == (200, 3)
        assert 'destination="orders"' not in text


def test_latencies_letters_and_bytes_of_a_node_are_metrics(node, command):
    """A sample is taken within seconds; a letter is counted by its reason, and when it is back."""
    with hms.connect(node.address) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        producer, consumer = session.producer("orders"), session.consumer("orders")

        def counted(*names):
            text = command("metrics", "--name", "orders")[1]
            return [_value(text, name) for name in names]

        def is_sampled():
            producer.send(b"tea")
            consumer.receive(WAIT_S).ack()
            labels = '{node="node1",durable="true"}'
            return min(counted(*(f"hms_{what}_latency_seconds_count{labels}" for what in WHAT)))

        wait_until(is_sampled, WAIT_S)
        consumer.close()
        producer.send(b"sour")

        def refuse(_message):
            raise hms.Reject("no")

        listening = connection.session()
        refusing = listening.consumer("orders")
        refusing.listen(refuse)
        letters = 'hms_messages_dead_lettered_total{node="node1",durable="true",reason="REJECTED"}'
        wait_until(lambda: counted(letters) == [1], WAIT_S)
        refusing.close()
        assert command("dlq", "return", "--all")[0] == 0
        consumer = session.consumer("orders")
        consumer.receive(WAIT_S).ack()
        code, text = command("metrics", "--name", "orders")
        assert code == 0
        place = '{node="node1",destination="orders",kind="queue"}'
        assert _value(text, f"hms_destination_messages_returned_total{place}") == 1
        last = _value(text, f"hms_destination_last_delivery_timestamp_seconds{place}")
        assert last >= _value(text, 'hms_start_time_seconds{node="node1"}')
        assert _value(text, 'hms_log_bytes_total{node="node1"}') > 0
        assert _value(text, 'hms_consumers{node="node1"}') == 1
        many = "--name", "*", "--series-max", "10000000"
        assert command("metrics", *many)[0] == 0
        ended = 'hms_transaction_outcomes_total{node="node1",outcome="committed"}'
        assert _value(text, ended) == 0


def test_alerts_begin_and_end_in_status_health_log_and_metrics(node, command):
    """Each is provoked, seen in every place, and ended."""

    def active():
        with hms.connect(node.address) as asking:
            return {one["alert"] for one in asking.administer("alert.list", {})["active"]}

    with hms.connect(node.address) as connection, _web(node) as ask:
        session = connection.session(ack=hms.AckMode.CLIENT)
        producer = session.producer("orders")
        for _ in range(8):
            producer.send(bytes(200_000), compress=False)
        wait_until(lambda: {"memory_high", "unconsumed_queue"} <= active(), WAIT_S)
        wait_until(lambda: "memory_high" in command("health")[1], WAIT_S)
        wait_until(lambda: ask("/readyz")[0] == 200, WAIT_S)

        def is_told():
            status, text = ask("/readyz?for=producers")
            return status == 503 and "memory_high" in text  # and a full disk, where it is

        wait_until(is_told, WAIT_S)
        assert command("health", "ready", "--for", "producers")[0] == 1

        def is_warned():
            code, text = command("health", "--nagios")
            return code == 1 and text.startswith("HMS WARNING - node1 ready, alerts: ")

        wait_until(is_warned, WAIT_S)
        _, text = ask("/metrics")
        alert = 'hms_alert_active{node="node1",alert="unconsumed_queue",destination="queue:orders"}'
        assert _value(text, alert) == 1
        shown = {one["alert"] for one in connection.administer("status")["alerts"]}
        assert {"memory_high", "unconsumed_queue"} <= shown

        consumer = session.consumer("orders", prefetch=1)
        held = consumer.receive(WAIT_S)
        wait_until(lambda: "stalled_consumer" in active(), WAIT_S)
        assert "unconsumed_queue" not in active()
        held.ack()
        for _ in range(7):
            consumer.receive(WAIT_S).ack()
        ended = {"memory_high", "unconsumed_queue", "stalled_consumer"}
        wait_until(lambda: not ended & active(), WAIT_S)
    assert "alert memory_high begins" in node.log
    assert "alert stalled_consumer ends at queue:orders" in node.log
    told = json.loads(command("alert", "list", "--json")[1])["ended"]
    assert ended <= {one["alert"] for one in told}


def test_health_is_seen_from_outside_whatever_becomes_of_the_node(node, command):
    """A process that stands still, one that is killed, and one that serves again."""
    with _web(node) as ask:

        def is_ready(page):
            """Where syncs of the disk are slow an alert says so."""
            status, text = ask(page)
            return status == 200 and re.fullmatch(r"ready(, alerts: [\w, ]+)?\n", text)

        def is_live():
            code, text = command("health", "live")
            return code == 0 and text.startswith("node1: ready")

        wait_until(lambda: is_ready("/livez"), WAIT_S)
        wait_until(is_live, WAIT_S)
        node.pause()
        wait_until(lambda: "has not said anything" in ask("/readyz")[1], WAIT_S)
        assert ask("/livez")[0] == 503
        node.resume()
        wait_until(lambda: ask("/readyz")[0] == 200, WAIT_S)
        assert json.loads(ask("/healthz")[1])["checks"].keys() >= {"written", "main loop", "log"}
        node.kill()
        assert ask("/livez") == (503, "not running\n")
        assert command("health", "ready") == (1, "node1: not running\n")
        status, text = ask("/metrics")
        assert (status, _value(text, "hms_up")) == (200, 0)
        assert _value(text, 'hms_node_state{node="node1",state="down"}') == 1
        assert _value(text, 'hms_node_state{node="node1",state="ready"}') == 0
        node.boot()
        wait_until(lambda: is_ready("/readyz"), WAIT_S)
        wait_until(lambda: _value(ask("/metrics")[1], "hms_up") == 1, WAIT_S)


def test_a_level_of_the_log_is_changed_at_run_time_and_goes_back(node, command):
    """For ten minutes at three in the morning, and not until the disk is full."""
    code, _ = command("log", "level", "DEBUG", "--name", "hms.node", "--for", "1s")
    assert code == 0
    code, _ = command("log", "level", "LOUD")
    assert code == 2
    with hms.connect(node.address) as connection:
        with pytest.raises(hms.errors.InvalidArgument, match="level"):
            connection.administer("log.level", {"level": "LOUD"})
        with pytest.raises(hms.errors.InvalidArgument, match="name"):
            connection.administer("log.level", {"level": "INFO", "name": "urllib3"})
    wait_until(lambda: "the level of hms.node is as configured again" in node.log, WAIT_S)


def test_top_shows_a_node_once_and_records_it(node, command, tmp_path):
    """For scripts, and for the morning after."""
    record = tmp_path / "record.jsonl"
    with hms.connect(node.address) as connection:
        connection.session().producer("orders").send(b"coffee")
        code, text = command("top", "--once", "--json", "--record", str(record))
    view = json.loads(text)
    assert (code, view["messages"], view["node"]) == (0, 1, "node1")
    assert view["destinations"][0]["destination"] == "orders"
    assert len(record.read_text().splitlines()) == 2


def test_an_alert_of_one_node_is_told_at_every_node_where_its_topic_is_global():
    """One application pages somebody for the whole cluster."""
    topic = {"topic_string": "HMS/alert", "GLOBAL": "Y"}
    config = {
        "alerts": {"unconsumed_queue_s": 1},
        "hms": {"queue": {"orders": {}}, "topic": {"alerts": topic}},
    }
    with booted(config=config, nodes=2) as first:
        second = first.nodes[1]
        with hms.connect(first.address) as here, hms.connect(second.address) as there:
            heard = here.session().consumer(hms.Topic("HMS/alert/unconsumed_queue"))

            def is_known():
                """That somebody subscribes takes its way to the other node."""
                there.session().producer("orders").send(b"x")
                begins = heard.receive(5)
                if begins is None:  # it ends, to begin once more
                    with there.session() as own:
                        receiver = own.consumer("orders")
                        while receiver.receive(1) is not None:
                            pass
                return begins

            said = wait_until(is_known, WAIT_S).properties
    told = {"alert": "unconsumed_queue", "destination": "queue:orders", "node": second.name}
    assert {name: said[name] for name in told} == told


def test_a_command_is_told_of_an_alert_and_its_failure_is_one(tmp_path):
    """Who has no Prometheus is woken too."""
    told, script = tmp_path / "told", tmp_path / "page"
    script.write_text(f'#!/bin/sh\necho "$1 $3 $4" >> {told}\n')
    script.chmod(0o700)
    alerts = {"unconsumed_queue_s": 1, "command": [str(script)]}
    config = {"alerts": alerts, "hms": {"queue": {"orders": {}}}}
    with booted(config=config) as node, hms.connect(node.address) as connection:
        session = connection.session()
        session.producer("orders").send(b"x")
        begins, ends = (f"{what} unconsumed_queue queue:orders" for what in ("begins", "ends"))
        wait_until(lambda: told.exists() and begins in told.read_text())
        script.write_text("#!/bin/sh\nexit 3\n")
        assert session.consumer("orders").receive(60).body == b"x"

        def has_failed():
            active = connection.administer("alert.list")["active"]
            return any(one["alert"] == "alert_not_told" for one in active)

        wait_until(has_failed)
        assert ends not in told.read_text()


def test_a_node_that_runs_and_does_not_answer_is_told_apart_from_one_that_does_not_run(
    node, command, monkeypatch
):
    """Who reads "boot the node" at night boots one that is there."""
    monkeypatch.setattr(requests, "CONNECT_TIMEOUT_S", 0.5)
    process = asdict(identify(node.pid))
    config = load(node.config_file).node(node.name)
    (config.runtime / f"{node.name}.process").write_text(json.dumps(process))
    node.pause()
    code, shown = command("status")
    assert code == 1
    assert "no answer within 0.5 s; hms health tells how it is" in shown
    assert str(node.pid) in shown
    assert str(config.log_file) in shown
    done = CliRunner().invoke(main, ["queue", "list", "--config", str(node.config_file)])
    assert done.exit_code == 1
    assert f"no answer within 0.5 s, though its process {node.pid} runs" in done.output
    node.kill()
    code, shown = command("status")
    assert (code, "fault" in shown) == (1, False)


def test_the_timeout_of_a_command_bounds_connecting_too(node):
    """A script that waits for two seconds was held up for ten by a node that stands still."""
    with hms.connect(node.address) as connection:
        node.pause()
        connection.requests.begin_within(0)  # it took all of the time to connect
        with pytest.raises(hms.RequestTimeout):
            connection.administer("queue.list")
        node.resume()
        assert connection.administer("queue.list")  # each further answer has its own
    node.pause()
    for words in (["queue", "list"], ["message", "list", "queue:orders"]):
        line = [*words, "--timeout", "0.5", "--config", str(node.config_file)]
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 1
        assert "no answer within 0.5 s" in done.output


@pytest.fixture
def silence():
    """An address that lets everybody in and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "words",
    [
        ["receive", "orders"],
        ["subscribe", "news"],
        ["call", "NOTE", "text"],
        ["cluster", "drain", "node1"],
        ["server", "restart", "notes"],
        ["switchover"],
        ["bench", "receive"],
    ],
    ids=" ".join,
)
def test_a_time_that_a_command_has_for_its_work_bounds_connecting(words, silence, tmp_path):
    """A script that gives a call half a second was held up for ten where nobody answers."""
    config = tmp_path / "hms.conf"
    config.write_text(
        '[arbiter]\nkind = "etcd"\nendpoints = ["http://127.0.0.1:9"]\n'
        f'[node.node1]\nreplica = "a"\nlisten = ["{silence}"]\n'
        f'[replica.a]\naddress = "tcp://127.0.0.1:7791"\nlisten = ["{silence}"]\n'
        '[replica.b]\naddress = "tcp://127.0.0.1:7792"\nlisten = ["tcp://127.0.0.1:7793"]\n'
    )
    line = [*words, "--timeout", "0.5", "--connect", silence, "--config", str(config)]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 1
    assert re.search(r"no answer within 0(\.[1-5])? s", done.output), done.output


def test_what_is_left_of_its_time_is_what_a_command_waits_for_a_message(node, monkeypatch):
    """Connecting took all of it: the first message has none left, and each other one has it."""
    seen = []

    def receive(_consumer, timeout_s=None):
        seen.append(timeout_s)

    monkeypatch.setattr(Consumer, "receive", receive)
    monkeypatch.setattr(Target, "left_s", 0.25)
    words = ["receive", "orders", "--timeout", "5", "--config", str(node.config_file)]
    assert CliRunner().invoke(main, words).exit_code == 1
    assert seen == [0.25]
