"""A real cluster with a configuration master, as an operator meets it on the command line."""

from global_queue_rig import CONFIG, WAIT_S, await_up, hms_command

import hms
from hms.testing import node
from tests.support.waiting import wait_until


def test_a_queue_is_created_at_the_master_only_and_is_there_at_the_other_node(tmp_path):
    """The refusal has to lead to the command that works."""
    config = CONFIG | {"domain": {"config_master": "node1"}}
    with node(store=tmp_path / "store", config=config, nodes=2) as first:
        await_up(first)
        where = ["--config", str(first.config_file)]

        refused = hms_command("queue", "create", "bills", *where, "--node", "node2")
        made = hms_command("queue", "create", "bills", *where, "--node", "node1")

        assert refused.returncode != 0
        assert "HMS-4045" in refused.stderr
        assert "--node node1" in refused.stderr
        assert made.returncode == 0, made.stderr
        await_queue(first.nodes[1], "bills")
        first.kill()
        with hms.connect(first.nodes[1].address) as conn, conn.session() as session:
            session.producer(hms.Queue("bills")).send(b"the master is not needed")
            got = session.consumer(hms.Queue("bills")).receive(timeout_s=WAIT_S)
    assert got.body == b"the master is not needed"


def await_queue(one, name):
    """Until a node has heard of it."""
    with hms.connect(one.address) as conn:
        wait_until(lambda: name in [q["name"] for q in conn.administer("queue.list")], WAIT_S)
