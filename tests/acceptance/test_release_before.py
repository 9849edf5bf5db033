"""The release before, itself, beside this one: as a client, a node and a member of a cluster.

HMS_UPGRADES=10: three nodes are upgraded one after the other, and back, so often.
"""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from global_queue_rig import CONFIG, Load, await_up

import hms
from hms.boot.cli import main
from hms.errors.catalogue import NotSupported
from hms.testing import node
from tests.support.project import ROOT
from tests.support.release_before import Release, release_before
from tests.support.waiting import wait_until

ROUNDS = int(os.environ.get("HMS_UPGRADES", "1"))
CLIENT = Path(__file__).with_name("neighbour_client.py")
DESTINATIONS = {"hms": {"queue": {"orders": {}}, "topic": {"news": {}}}}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The release before."""
    return release_before(tmp_path_factory.mktemp("before"))


def switch(one, release=None):
    """Stop a node and boot it as another release; None: as this one."""
    one.stop()
    one._prefix = [] if release is None else release.prefix
    one.boot(warm=True)


def upgrade_check(first):
    """Exit code and what is in the way, by node."""
    words = ["cluster", "upgrade-check", "--config", str(first.config_file), "--json"]
    done = CliRunner().invoke(main, words)
    return done.exit_code, {row["node"]: row["in_the_way"] for row in json.loads(done.output)}


def test_clients_and_nodes_of_neighbouring_releases_do_the_same(before):
    """A fleet of clients is not upgraded in the minute in which its node is."""
    said = []
    for at_node in (None, before):
        prefix = [] if at_node is None else at_node.prefix
        with node(config=DESTINATIONS, command_prefix=prefix) as one:
            both = (Release(ROOT), before)
            said += [json.loads(release.run(CLIENT, one.address)) for release in both]
    assert said[0]["transact"] == ["later", "once", 0]
    assert said == [said[0]] * 4


def test_what_the_release_before_does_not_have_is_refused_by_name(before):
    """And nothing else is: the connection goes on."""
    with node(config=DESTINATIONS, command_prefix=before.prefix) as one:
        conn = hms.connect(one.address)
        with pytest.raises(NotSupported, match=r"store\.finalize is not available"):
            conn.administer("store.finalize", {})
        with conn.session() as session:
            session.producer("orders").send(b"goes on")
        conn.close()
        done = CliRunner().invoke(main, ["store", "finalize", "--yes", "--connect", one.address])
        assert (done.exit_code, "HMS-1010" in done.output) == (1, True)


@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_three_nodes_leave_the_release_before_one_by_one_under_load(before, tmp_path):
    """With links between the two all the while, there and back, and the books are balanced."""
    load = Load()
    options = {"config": CONFIG, "command_prefix": before.prefix, "nodes": 3}
    with node(store=tmp_path / "store", **options) as first:
        await_up(first)
        load.produce(first.nodes[0].address, "a")
        load.produce(first.nodes[1].address, "b")
        load.consume(first.nodes[0].address)
        load.consume(first.nodes[2].address)
        for release in (*(None, before) * (ROUNDS - 1), None):
            for one in first.nodes:
                load.await_flow(50)
                switch(one, release)
                if one is first and release is None:
                    code, said = upgrade_check(first)
                    assert code == 1
                    assert said["node2"] == "upgrade it before any store is finalized"
        await_up(first)
        nothing = 0, dict.fromkeys(("node1", "node2", "node3"), "")
        wait_until(lambda: upgrade_check(first) == nothing)  # a link may be away for a moment
        load.await_flow(50)
        load.finish(first)
    assert load.verdict().faults == (0, 0, 0, 0)
