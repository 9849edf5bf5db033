"""What metrics tell of a node with copies."""

import re

from tests.acceptance.ha_rig import WAIT_S, hms_command
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until


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
        }
        wait_until(lambda: told(two.a) == whole, WAIT_S)
        two.b.kill()
        wait_until(lambda: told(two.a)["failures_survived"] == 0, WAIT_S)
        wait_until(lambda: told(two.a)['in_sync,replica="b"'] == 0, WAIT_S)
