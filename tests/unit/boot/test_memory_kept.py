"""The node's allocator: freed frames are used again, unless the operator has decided otherwise."""

import os
import subprocess
import sys

import pytest

TRIED = """
from hms.boot.memory import keep_freed_memory
print(keep_freed_memory())
blocks = [bytes(1 << 20) for _ in range(16)]
before = [line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1]
del blocks
after = [line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1]
print(int(before) - int(after))
"""


def tried(**variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if "MALLOC" not in key}
    return subprocess.run(
        [sys.executable, "-c", TRIED],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    ).stdout.split()


def test_freed_memory_stays_for_the_next_frames():
    """To give it back and take it anew, page by page, was a fifth of a busy node's work."""
    is_set, returned_kib = tried()
    if is_set == "False":
        pytest.skip("another allocator than glibc's")
    assert int(returned_kib) < 8 << 10


def test_the_operators_own_setting_is_left_alone():
    """Whoever sets the allocator by its variables knows why."""
    assert tried(MALLOC_TOP_PAD_="131072")[0] == "False"
