"""A warm standby takes over: it applies nothing of the log before, reads all of it then, and serves
what was confirmed. Two processes with folders of their own, and a real etcd."""

import os

import pytest

from hms.testing.ports import free_port
from tests.acceptance.database_rig import Load
from tests.acceptance.ha_rig import WAIT_S
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until

KILLS = 20 if os.environ.get("HMS_HA") == "full" else 2
BATCHES = 100
QUEUES = {"queue": {"orders": {}, "ledger": {}}}
SMALL = {"segment_bytes": "4 MiB", "max_message_bytes": "1 MiB", "max_transaction_bytes": "1 MiB"}
PATIENT_S = 10
"""A standby that stands still for shorter counts all the same: else nobody could take over."""


@pytest.mark.timeout(60 * KILLS + 120)
def test_a_warm_standby_takes_over_and_the_books_balance(tmp_path, record_property):
    """Sends, transfers between two queues and acknowledgements go on over kills of the primary, in
    both directions: nothing is lost, doubled or moved by halves."""
    node = {**SMALL, "replica_timeout_s": PATIENT_S}
    replicas = {
        name: {"address": f"tcp://127.0.0.1:{free_port()}", "standby": "WARM"} for name in "ab"
    }
    with (
        arbiter(tmp_path) as decided_by,
        pair(tmp_path, decided_by, hms=QUEUES, replica=replicas, node=node) as two,
    ):
        two.boot()
        load = Load([one.address for one in two.machines])
        for work in (load.send, load.transfer, load.receive):
            load.start(work)
        for number in range(KILLS):
            wait_until(lambda n=number: load.sent > (n + 1) * BATCHES * 20, WAIT_S)
            led = two.leader
            two.wait_for_both()
            led.kill()
            wait_until(lambda one=led: two.leader is not one, WAIT_S)
            led.boot()
            two.wait_for_both()
        load.stopped.set()
        wait_until(load.is_empty, 4 * WAIT_S)
        load.drained.set()
        load.join()
        orders, ledger = load.orders.verdict(), load.ledger.verdict()
        record_property("figures", {"kills": KILLS, "sent": load.sent})

        assert (orders.is_clean, ledger.is_clean) == (True, True), (orders, ledger)
        assert orders.confirmed == load.sent
        assert ledger.confirmed + ledger.recovered == load.sent
        logs = "".join(one.log for one in two.machines)
        assert logs.count("recovered ") == 1 + KILLS  # each time a copy began to lead
        assert "are applied already" not in logs  # which a hot one says
