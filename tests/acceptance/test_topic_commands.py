"""hms topic, subscription, publish and subscribe against a real node."""

import json
import subprocess
import sys

import pytest

import hms

CONFIG = {"hms": {"topic": {"Sports": {}}, "queue": {"orders": {}}}}
WAIT_S = 60


@pytest.fixture
def command(node):
    def run(*words, is_refused=False):
        """The data that a command prints."""
        line = [sys.executable, "-m", "hms.boot", *words, "--connect", node.address, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == int(is_refused), done.stderr
        return done.stderr if is_refused else json.loads(done.stdout or "null")

    return run


def test_an_operator_sees_and_clears_what_topics_keep(command):
    """TT-09, TT-10."""
    command("publish", "Sports/Football/Score", "1:0", "--retain", "--text")
    command("publish", "Sports/Rugby/Score", "6:3", "--retain")
    assert [t["topic"] for t in command("topic", "tree", "Sports/+/Score")] == [
        "Sports/Football/Score",
        "Sports/Rugby/Score",
    ]
    shown = command("topic", "show", "Sports/Football/Score")
    assert (shown["object"], shown["retained"]) == ("Sports", True)
    assert shown["retained_message"]["persistent"]

    assert command("topic", "clear-retained", "Sports/Rugby/Score", "--yes")["cleared"] == 1
    assert command("topic", "clear-retained", "Sports/#", "--pattern", "--yes")["cleared"] == 1
    assert not command("topic", "show", "Sports")["retained"]
    assert "HMS-4001" in command("topic", "show", "nowhere", is_refused=True)


def test_an_operator_has_a_topic_put_into_a_queue_and_ends_it(node, command):
    """SU-02: until it is deleted, over a kill of the node too."""
    options = ["--topic", "Sports/*/Score", "--scheme", "CHARACTER", "--queue", "orders"]
    command("subscription", "create", "scores", *options)
    node.kill()
    node.boot()
    command("publish", "Sports/Football/Score", "1:0", "--text")
    (listed,) = command("subscription", "list")
    assert (listed["name"], listed["queue"]) == ("scores", "orders")
    with hms.connect(node.address) as connection, connection.session() as session:
        message = session.consumer("orders").receive(WAIT_S)
        assert (message.body, message.topic.said) == ("1:0", "Sports/Football/Score")

    command("subscription", "delete", "scores", "--yes")
    assert command("subscription", "list") == []
    assert "HMS-3003" in command("subscription", "delete", "scores", "--yes", is_refused=True)
    said = command("subscription", "delete", "scores", is_refused=True)
    assert ("HMS-3003" in said, "discard" in said) == (True, False), said
