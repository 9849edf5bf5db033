"""How much a node may take, as its container or unit says."""

import pytest

from hms.boot import config
from hms.boot.config import load
from hms.boot.memory_limit import memory_for_messages, memory_limit, resident_bytes

MIB, GIB = 1 << 20, 1 << 30


def tree(root, groups, limits):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for path, text in limits.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "limit"),
    [
        ("0::/\n", {"memory.max": "536870912\n"}, 512 * MIB),  # in a container
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/system.slice/hms@N.service\n",
         {"system.slice/hms@N.service/memory.max": "max\n",
          "system.slice/memory.max": "2147483648\n"}, 2 * GIB),
        ("4:cpu,memory:/docker/1\n0::/\n",
         {"memory/memory.limit_in_bytes": "1073741824\n"}, GIB),
        ("0::/../../elsewhere\n", {}, None),
        ("nonsense\n\n", {}, None),
    ],
)  # fmt: skip
def test_the_lowest_limit_of_the_groups_of_a_process_holds(tmp_path, groups, limits, limit):
    """Of both versions of the kernel's interface, and of groups above its own."""
    assert memory_limit(tree(tmp_path, groups, limits)) == limit


def test_a_machine_without_groups_has_no_limit(tmp_path):
    """As where /proc is not there."""
    assert memory_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        (None, GIB),
        (64 * GIB, GIB),
        (GIB, 512 * MIB),
        (400 * MIB, 144 * MIB),
        (100 * MIB, 16 * MIB),
    ],
)
def test_messages_get_what_the_node_itself_does_not_take(limit, wanted):
    """Never less than one message of the largest size."""
    assert memory_for_messages(GIB, 16 * MIB, limit) == wanted


def test_a_node_in_a_small_container_refuses_messages_before_it_is_killed(tmp_path, monkeypatch):
    """What an operator says holds in any case."""
    monkeypatch.setattr(config, "memory_limit", lambda: GIB)
    file = tmp_path / "hms.conf"
    file.write_text("[node.A]\n")
    assert load(file).node().max_memory_bytes == 512 * MIB
    file.write_text('[node.A]\nmax_memory_bytes = "2 GiB"\n')
    assert load(file).node().max_memory_bytes == 2 * GIB


def test_what_is_in_memory_is_read_of_the_kernel(tmp_path):
    """Nobody is told of a system that does not say it."""
    assert resident_bytes() > 1 << 20
    assert resident_bytes(tmp_path) == 0
