"""hms bench and the workloads of bench/, small, on real nodes."""

import json
import re
import threading

import pytest
from click.testing import CliRunner

import hms
from bench import operations
from hms.boot.bench.client_pool import BenchFailed
from hms.boot.bench.measure import measure
from hms.boot.bench.systems import HMS, NullSystem
from hms.boot.bench.workloads import WORKLOADS
from hms.boot.cli import main

CONFIG = """
[hms.queue.bench]
[hms.queue.other]
[hms.queue.narrow]
max_messages = 50
[hms.topic.news]
"""


@pytest.fixture
def bench(running):
    """Run hms bench against the node; gives the result and the JSON it printed."""

    def run(*words):
        command = ["bench", *words, "--connect", running.address, "--json"]
        said = CliRunner().invoke(main, command)
        return said, json.loads(said.stdout) if said.stdout else None

    return run


def test_both_measures_every_message_of_its_run(bench, tmp_path):
    """Sends, confirmations and receipts are of the same messages."""
    words = ("both", "--count", "600", "--size", "64", "--disk", str(tmp_path))
    said, figures = bench(*words)

    assert said.exit_code == 0, said.output
    assert (figures["messages"], figures["size"], figures["durable"]) == (600, 64, True)
    assert set(figures["latency_ms"]) == set(figures["confirm_ms"])
    assert figures["disk"]["folder"] == str(tmp_path)
    assert figures["ratio_to_disk"] > 0


def test_what_others_left_in_the_queue_is_not_counted(bench, running):
    """Old messages would count as very slow ones."""
    with hms.connect(running.address) as connection, connection.session() as session:
        session.producer("queue:other").send_many([b"stranger", b"HMSB" + bytes(60)])

    _, figures = bench("both", "--queue", "other", "--count", "50", "--non-durable")

    assert (figures["messages"], figures["messages_of_others"]) == (50, 2)
    assert "disk" not in figures


def test_what_was_sent_is_received_later(bench):
    """The two halves are used one after the other to see a queue drain."""
    _, sent = bench("send", "--count", "300", "--in-flight", "1", "--warm-up", "0")
    _, found = bench("receive", "--count", "300")

    assert (sent["messages"], sent["in_flight"], found["messages"]) == (300, 1, 300)
    assert sent["confirm_ms"]["p50"] > 0


def test_every_subscriber_gets_what_is_published(bench):
    """A fan-out that lost some would be faster for it."""
    said, figures = bench("fanout", "--count", "100", "--subscribers", "4", "--non-durable")

    assert said.exit_code == 0, said.output
    assert (figures["messages"], figures["subscribers"]) == (400, 4)


def test_a_refused_send_ends_the_measurement(bench):
    """A figure over sends that were refused would be worth nothing."""
    said, figures = bench("send", "--queue", "narrow", "--count", "100", "--non-durable")

    assert (said.exit_code, figures) == (1, None)
    assert "HMS-4012" in said.stderr


def test_messages_that_never_come_are_told(bench):
    """A lost message must not look like a slow one."""
    said, figures = bench("receive", "--count", "5", "--timeout", "0.1")

    assert (said.exit_code, figures["messages"]) == (1, 0)
    assert "only 0 of 5 messages came" in said.stderr


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4", "W5", "W6", "W8"])
def test_a_workload_measures_the_node_and_its_limit(name, tmp_path):
    """The guard of CI rests on these figures."""
    workload = WORKLOADS[name].shortened(640)

    ours, limit = (measure(system, workload, tmp_path) for system in (HMS, NullSystem()))

    expected = 640 * (8 if name == "W6" else 1)
    assert (ours.messages, limit.messages) == (expected, expected)
    assert ours.misordered == 0
    assert min(ours.rate, limit.rate, ours.system_rss_mib, ours.clients_rss_mib) > 0


def test_a_client_that_fails_is_told_with_its_fault(tmp_path, monkeypatch):
    """A measurement that waits for a dead client would look like a slow system."""
    monkeypatch.setattr(type(HMS), "driver", "hms.boot.bench.nowhere:Driver")
    before = set(threading.enumerate())

    with pytest.raises(BenchFailed, match="nowhere"):
        measure(HMS, WORKLOADS["W1"].shortened(10), tmp_path)
    assert set(threading.enumerate()) <= before  # those of an earlier test may end meanwhile


def test_what_operators_cost_is_measured_beside_a_quiet_node(capsys):
    """The commands are given while messages pass, and what they did is told."""
    words = ["--runs", "1", "--count", "500", "--waiting", "100", "--queues", "1"]
    operations.main([*words, "--only", "messages", "--every", "0"])

    said = capsys.readouterr().out
    for verb in ("listed", "altered", "copied", "moved", "deleted"):
        assert re.search(rf"{verb} [1-9]", said), said
    assert "longest hold" in said
