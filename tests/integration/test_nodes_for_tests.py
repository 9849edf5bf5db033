"""The nodes that hms.testing boots for a test: what is left of them when something goes wrong."""

import os
import subprocess
import sys

import pytest

import hms.testing
from hms.testing.nodes import TestNode

INTERRUPTED = """
import hms.testing
from hms.testing.nodes import TestNode

def interrupted(node, _reader):
    print(node._process.pid, flush=True)
    raise KeyboardInterrupt

TestNode._await_ready = interrupted
try:
    with hms.testing.node():
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_boot_that_is_interrupted_ends_its_node_and_nobody_else(project_root):
    """As by Ctrl-C, or a test's time limit: every process of the test's own group was killed."""
    said = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        cwd=project_root,
        start_new_session=True,
        check=False,
    )

    assert said.returncode == 0, said
    number, word = said.stdout.split()
    assert word == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)


def test_a_node_that_ends_by_itself_at_the_end_of_its_block_is_no_fault(monkeypatch):
    """It ran when it was looked at, and no more when it was to be killed."""
    looked = []

    def is_running(node):
        looked.append(node)
        return len(looked) == 1 or node._process.poll() is None

    with hms.testing.node() as node:
        node.kill()
        monkeypatch.setattr(TestNode, "is_running", property(is_running))

    assert looked
