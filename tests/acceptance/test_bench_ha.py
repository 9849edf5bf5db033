"""python -m bench.ha, small: each of its figures is measured on real copies."""

import subprocess
import sys
from dataclasses import replace

import pytest

from bench import ha
from bench.ha_failover import failover
from bench.ha_gaps import Gaps
from bench.ha_peers import PEERS, peer_failover
from hms.boot.bench.measure import measure
from hms.boot.bench.workloads import WORKLOADS

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("is_stalled", [False, True])
def test_copies_are_measured_as_a_node_is(tmp_path, is_stalled):
    """Three, of which two confirm while one is stopped."""
    workload = replace(WORKLOADS["W1"], count=60)
    figures = measure(ha.Copies(3, is_stalled=is_stalled), workload, tmp_path)
    assert figures.messages == 60
    assert figures.system == ("hms, 3 copies, 1 stalled" if is_stalled else "hms, 3 copies")


def test_a_new_copy_and_the_faults_are_timed(tmp_path):
    """A copy with an empty store, a crash and a planned move, under sends."""
    found = ha.catch_up(tmp_path / "catch-up", 4, 0.5)
    assert found.mib >= 4
    assert min(found) > 0
    assert "ratio" in str(found)
    crash, move = failover(tmp_path, ("crash", "move"), 1, 100, 10, lambda _line: None)
    assert (crash.fault, move.fault) == ("crash", "move")
    assert 0 < crash.seconds[0] < 60
    assert 0 < move.seconds[0] < 60


@pytest.mark.parametrize("kind", PEERS)
def test_the_faults_of_another_broker_are_timed_where_it_is_installed(kind, tmp_path):
    """A crash of the leader and a planned move, as ours; else it says what is missing."""
    if missing := kind.peer.missing():
        assert "scripts/setup bench" not in missing
        return
    crash, move = peer_failover(tmp_path, kind, 1, 100, lambda _line: None)
    assert (crash.fault, move.fault, crash.system[-2:]) == ("crash", "move", "-3")
    assert 0 < crash.seconds[0] < 120
    assert 0 < move.seconds[0] < 120


def test_the_percentiles_are_those_of_the_times():
    """Of a hundred the ninety-ninth is not the longest."""
    gaps = Gaps("crash", tuple(n / 100 for n in range(100, 0, -1)))
    assert "p50  0.505 s" in str(gaps)
    assert "p99  0.990 s" in str(gaps)


def test_without_an_arbiter_it_says_how_to_get_one(monkeypatch):
    """Nothing is started."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["bench.ha", "--short"])
    with pytest.raises(SystemExit, match="etcd-server"):
        ha.main()


def test_it_needs_no_tool_of_the_tests():
    """The extra `bench` suffices: scripts/setup bench installs no pytest."""
    without = "import sys; sys.modules['pytest'] = None; import bench.ha"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
