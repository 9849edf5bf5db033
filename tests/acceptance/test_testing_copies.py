"""hms.testing.node(replicas=3), as a test of an application uses it."""

import pytest

import hms
import hms.testing
from hms.errors.catalogue import ArbiterUnavailable
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
CONFIG = {"hms": {"queue": {"orders": {}}}, "node": {"shop": {"replica_timeout_s": 30}}}
CONFIG_ALONE = {"hms": CONFIG["hms"]}
WAIT_S = 100


def test_a_test_kills_and_moves_the_copy_that_leads():
    """Clients are given all addresses, or one of them: each names the others."""
    with (
        hms.testing.node(config=CONFIG, replicas=3) as node,
        hms.connect(node.address, request_timeout_s=WAIT_S) as connection,
        connection.session() as session,
    ):
        assert [one.replica for one in node.replicas] == ["a", "b", "c"]
        assert node.addresses == [one.address for one in node.replicas]
        producer, led = session.producer("orders"), node.primary
        assert node.name == "shop"
        producer.send(b"1")

        assert node.kill_primary() is led
        producer.send(b"2")
        assert node.primary is not led
        led.boot()
        assert node.switchover(led) is led
        producer.send(b"3")
        before = node.primary
        assert node.switchover() is not before

        node.wait_for_copies()
        node.arbiter.stop()
        producer.send(b"4")
        wait_until(lambda: is_refused(node), WAIT_S)
        node.arbiter.start()

    assert not any(one.is_running for one in node.replicas)
    assert not node.arbiter.is_running


def test_the_store_of_a_node_alone_becomes_the_first_copy(tmp_path):
    """The domain had a name of its own each time, and the store was refused as another node's."""
    with (
        hms.testing.node(tmp_path / "store", CONFIG_ALONE) as node,
        hms.connect(node.address) as one,
    ):
        one.session().producer("orders").send(b"alone")

    with hms.testing.node(tmp_path / "store", CONFIG_ALONE, replicas=2) as node:
        node.kill_primary()
        with (
            hms.connect(node.addresses, connect_timeout_s=WAIT_S) as connection,
            connection.session() as session,
        ):
            assert session.consumer("orders").receive(WAIT_S).body == b"alone"


def is_refused(node):
    """Whether a move is, as nobody could be granted the next epoch; it is when that is noticed."""
    try:
        node.switchover()
    except hms.SwitchoverRefused as fault:
        return "arbiter" in str(fault) or "epoch" in str(fault)
    return False


def test_a_node_alone_leads():
    """What is written for copies runs with one, too."""
    with hms.testing.node(config=CONFIG_ALONE) as node:
        assert (node.primary, node.replicas, node.addresses) == (node, [node], [node.address])
        assert node.arbiter is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"replicas": 8}, "replicas: 8; a node has 2 to 7, or 1 without copies"),
        ({"replicas": 0}, "replicas: 0; a node has 2 to 7"),
        ({"replicas": 2, "nodes": 2}, "replicas: 2, with 2 nodes: copies are of one node here"),
        ({"replicas": 2, "arbiter": "memory"}, "Copies are processes: they share no memory"),
    ],
)
def test_what_cannot_be_is_refused(given, why):
    """Before anything is started."""
    with pytest.raises(hms.InvalidArgument, match=why), hms.testing.node(**given):
        pass


def test_where_no_etcd_is_installed_it_says_what_to_do(monkeypatch):
    """One may be named instead."""
    monkeypatch.setenv("PATH", "")
    with (
        pytest.raises(ArbiterUnavailable, match="apt install etcd-server"),
        hms.testing.node(replicas=2),
    ):
        pass
