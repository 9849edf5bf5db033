"""The figures of hms bench: computed right, and the bare disk is left without a trace."""

import json
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

import hms
from boot.cli import main
from boot.cli.figures import measure_disk, percentiles_ms
from boot.cli.target import Target
from field_buffer.catalogue import QueueFull


class Node:
    """A queue in memory that confirms at once; fails_at: the send that is refused."""

    def __init__(self, fails_at=None):
        self.bodies = []
        self.fails_at = fails_at
        self.has_more = threading.Condition()

    @contextmanager
    def session(self, **_):
        yield self

    def producer(self, *_, **options):
        self.options = options
        return self

    def consumer(self, *_, **__):
        return self

    def send_many(self, messages):
        for message in messages:
            self.send_async(message.body)

    def send_async(self, body):
        done = Future()
        with self.has_more:
            self.bodies.append(body)
            self.has_more.notify_all()
        if len(self.bodies) == self.fails_at:
            done.set_exception(QueueFull(kind="queue", destination="B", count=1, key="k", limit=1))
        else:
            done.set_result(None)
        return done

    def receive(self, timeout_s):
        with self.has_more:
            if not self.has_more.wait_for(lambda: self.bodies, timeout_s):
                return None
            return hms.Message(self.bodies.pop(0))


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Run hms bench against a node in memory; gives the result and the JSON it printed."""

    def run(node, *words):
        @contextmanager
        def connection(_target, **_):
            yield node

        monkeypatch.setattr(Target, "connection", connection)
        command = ["bench", *words, "--connect", "tcp://127.0.0.1:1", "--json"]
        said = CliRunner().invoke(main, command)
        return said, json.loads(said.stdout) if said.stdout else None

    return run


def test_percentiles_are_those_of_the_sorted_times():
    """A wrong index would flatter every figure of the project."""
    times = [number * 1_000_000 for number in range(10_000, 0, -1)]

    found = percentiles_ms(times)

    assert found == {
        "p50": 5001.0,
        "p99": 9900.0,
        "p99.9": 9990.0,
        "p99.99": 9999.0,
        "max": 10_000.0,
    }
    assert percentiles_ms([]) == {}
    assert percentiles_ms([2_000_000])["p99.99"] == 2.0


def test_the_bare_disk_is_measured_and_left_as_it_was(tmp_path):
    """The measurement stands in the folder of a store."""
    assert measure_disk(tmp_path, message_bytes=100, count=25, batch=10) > 0
    assert list(tmp_path.iterdir()) == []


def test_both_measures_every_message_of_its_run(bench, tmp_path):
    """Sends, confirmations and receipts are of the same messages."""
    words = ("both", "--count", "600", "--size", "64", "--disk", str(tmp_path))
    said, figures = bench(Node(), *words)

    assert said.exit_code == 0, said.output
    assert (figures["messages"], figures["size"], figures["durable"]) == (600, 64, True)
    assert set(figures["latency_ms"]) == set(figures["confirm_ms"])
    assert figures["disk"]["folder"] == str(tmp_path)
    assert figures["ratio_to_disk"] > 0


def test_what_others_left_in_the_queue_is_not_counted(bench):
    """Old messages would count as very slow ones."""
    node = Node()
    node.bodies = [b"stranger", b"HMSB" + bytes(60)]

    _, figures = bench(node, "both", "--count", "50", "--non-durable")

    assert (figures["messages"], figures["messages_of_others"]) == (50, 2)
    assert node.options == {"persistent": False}
    assert "disk" not in figures


def test_a_refused_send_ends_the_measurement(bench):
    """A figure over sends that were refused would be worth nothing."""
    said, figures = bench(Node(fails_at=20), "send", "--count", "100", "--non-durable")

    assert (said.exit_code, figures) == (1, None)
    assert "HMS-4012" in said.stderr


def test_messages_that_never_come_are_told(bench):
    """A lost message must not look like a slow one."""
    said, figures = bench(Node(), "receive", "--count", "5", "--timeout", "0.1")

    assert (said.exit_code, figures["messages"]) == (1, 0)
    assert "only 0 of 5 messages came" in said.stderr
