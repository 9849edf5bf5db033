"""What metrics tell of a node with copies."""

import re
import time
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.ha_rig import WAIT_S, connect, hms_command
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until

BOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "hms-nodes.json"


def test_metrics_tell_of_each_copy_whether_it_counts_and_how_far_it_is_behind(tmp_path):
    """Also of one that is away."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by) as two:
        two.boot()

        def told(one):
            code, said = hms_command(one, "metrics")
            assert code == 0, said
            found = re.findall(r"^hms_replica_(\w+){node=\"node1\"(.*?)} (.*)$", said, re.MULTILINE)
            return {name + labels: float(value) for name, labels, value in found}

        whole = {
            "epoch": 1,
            "failures_survived": 1,
            'counts,replica="b"': 1,
            'in_sync,replica="b"': 1,
            'lag_seconds,replica="b"': 0,
            'lag_bytes,replica="b"': 0,
            'files_behind,replica="b"': 0,
            'to_apply_bytes,replica="b"': 0,
        }
        wait_until(lambda: whole.items() <= told(two.a).items(), WAIT_S)
        with connect(two.a) as connection, connection.session() as session:
            session.producer("orders").send(bytes(5000))
            lsn = connection.administer("status")["replication"]["confirmed_lsn"]
        wait_until(lambda: told(two.a).get('applied_lsn,replica="b"', 0) >= lsn > 0, WAIT_S)
        said = told(two.a)
        assert said["confirmed_lsn"] >= lsn
        assert 0 < said['sync_seconds,replica="b",quantile="0.5"'] < WAIT_S
        assert said["blocked_seconds"] == 0
        assert said['proof,by="arbiter"'] + said['proof,by="members"'] == 1
        assert "take_over_seconds" not in said  # it was booted, and has followed nobody
        shown = set(re.findall(r"hms_replica_(\w+)", BOARD.read_text()))
        shown -= {"silence_seconds", "damaged_segments", "take_over_seconds"}  # see the next test
        assert shown <= {name.partition(",")[0] for name in said}
        two.b.kill()
        wait_until(lambda: told(two.a)["failures_survived"] == 0, WAIT_S)
        wait_until(lambda: told(two.a)['in_sync,replica="b"'] == 0, WAIT_S)


@contextmanager
def booted_by_command(one):
    """As an operator does it: what stands by has the file of its process."""
    code, said = hms_command(one, "boot")
    assert code == 0, said
    try:
        yield
    finally:
        hms_command(one, "down")


def test_a_machine_that_stands_by_tells_of_its_own_copy(tmp_path):
    """Its scrape was answered by the one that leads: a sum over machines counted all twice, and
    nobody saw a standby whose disk was full or that had lost its primary."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by) as two:
        two.a.boot()
        with booted_by_command(two.b):
            two.wait_for_both()
            with connect(two.a) as connection, connection.session() as session:
                session.producer("orders").send(bytes(5000))
            it_tells(two)
            two.a.kill()
            wait_until(lambda: 'hms_up{node="node1"} 1' in hms_command(two.b, "metrics")[1], WAIT_S)
            with connect(two.b) as connection:
                said = connection.administer("status")["replication"]["last_take_over"]
            assert (said["from"], said["to"]) == ("a", "b")
            assert said["cause"] in {"LOST", "LEFT", "SILENT"}, said
            assert 0 < said["detection_s"] <= said["total_s"] < WAIT_S
            metric = re.search(
                r"^hms_replica_take_over_seconds{.*?} (\S+)$",
                hms_command(two.b, "metrics")[1],
                re.MULTILINE,
            )
            assert float(metric[1]) == said["total_s"]


def it_tells(two):
    """Of machine b, which stands by, and of a, which leads."""

    def told(one):
        code, said = hms_command(one, "metrics")
        assert code == 0, said
        found = re.findall(r"^hms_(\w+){(.*?)} (\S+)$", said, re.MULTILINE)
        return {name + "," + labels: float(value) for name, labels, value in found}

    mine = 'node="node1",replica="b"'

    def follows():
        said = told(two.b)
        return said if said.get(f"replica_follows,{mine}") == 1 else None

    said = wait_until(follows, WAIT_S)
    assert said[f'node_state,{mine},state="standby"'] == 1
    assert said[f"replica_epoch,{mine}"] == 1
    assert said[f"replica_applied_lsn,{mine}"] > 0
    assert said[f"replica_damaged_segments,{mine}"] == 0
    assert said[f"replica_refused_frames_total,{mine}"] == 0
    assert said[f"replica_silence_seconds,{mine}"] < WAIT_S
    assert said[f"store_bytes,{mine}"] >= 5000
    assert 0 < said[f"store_free_bytes,{mine}"] < said[f"store_disk_bytes,{mine}"]
    assert said[f"process_resident_memory_bytes,{mine}"] > 1 << 20
    assert said[f"process_open_fds,{mine}"] > 5
    assert 0 < said[f"process_start_time_seconds,{mine}"] <= time.time()
    assert not [name for name in said if name.startswith(("messages", "up", "all_"))]
    leads = told(two.a)
    assert leads['messages_received_total,node="node1",durable="true"'] == 1
    assert not [name for name in leads if "standby" in name or name.startswith("process_")]
