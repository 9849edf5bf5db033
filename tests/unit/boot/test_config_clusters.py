"""What hms.conf says of several nodes that act as one."""

import pytest

from hms.boot.clusters import cluster_settings, link_settings
from hms.boot.config import load
from hms.engine.cluster.cluster_settings import GlobalQueue, Scope
from hms.errors.catalogue import ConfigError, LinkKeyError, NotSupported
from hms.server.links.keys import make_key_file

TWO = """
[node.A]
listen = ["tcp://127.0.0.1:7701"]
[node.B]
listen = ["tcp://127.0.0.1:7702"]
[svrgroup.a]
NODENAME = "A"
HMSPORT = 7801
{a}
[svrgroup.b]
NODENAME = "B"
HMSINDEX = 2
{b}
[hms.queue.orders]
GLOBAL = "Y"
GQTHR = 7
delivery = "LOCAL_PREFERRED"
"""

SMALL = """[node.B]
max_message_bytes = "64 KiB"
max_transaction_bytes = "2 MiB"
segment_bytes = "8 MiB"
"""
THIRD = """
[node.C]
listen = ["tcp://127.0.0.1:7703"]
database = "sqlite:x"
[svrgroup.c]
NODENAME = "C"
HMSINDEX = 3
HMSPORT = 7803
"""


@pytest.fixture
def loaded(tmp_path):
    """The file with what stands in each group besides."""

    def load_with(a="", b="HMSPORT = 7802"):
        path = tmp_path / "hms.conf"
        path.write_text(TWO.format(a=a, b=b))
        return load(path)

    return load_with


def test_each_node_knows_the_others_and_their_queues(loaded):
    """One file describes the whole, so that no two nodes see it differently."""
    config = loaded()

    settings = cluster_settings(config, config.node("A"))
    links = link_settings(config, config.node("B"))

    assert settings.peers == ((2, "B"),)
    assert settings.queues == (GlobalQueue("orders", 7, 1000, 10_000, Scope.LOCAL_PREFERRED),)
    assert [(p.index, p.name, p.address) for p in links.peers] == [(1, "A", "tcp://127.0.0.1:7801")]
    assert links.address == "tcp://127.0.0.1:7802"


def test_the_largest_message_of_any_node_gets_through_the_links_of_all(tmp_path):
    """One that takes less refuses it; a frame above the limit would cut the link for ever."""
    path = tmp_path / "hms.conf"
    path.write_text(TWO.format(a="", b="HMSPORT = 7802").replace("[node.B]", SMALL))
    config = load(path)

    limits = [link_settings(config, config.node(name)).frame_bytes_max for name in "AB"]

    assert config.node("B").max_message_bytes < config.node("A").max_message_bytes
    assert limits[0] == limits[1] > config.node("A").max_message_bytes


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("", "", "GLOBAL: node B has no HMSPORT"),
        ("", "HMSPORT = 7801", "that of [svrgroup.a] already"),
        ("link_host = '10.0.0.1'", "HMSPORT = 7802", "beyond loopback"),
        ("link_key_file = 'k'", "HMSPORT = 7802", "needs link_public_key"),
        ("link_host = 'no host!'", "HMSPORT = 7802", "is no host"),
        ("HMSHEARTBEAT = 0", "HMSPORT = 7802", "out of range"),
    ],
)
def test_what_cannot_be_a_cluster_is_refused_at_once(loaded, a, b, reason):
    """A cluster that half works is found out when it is needed."""
    with pytest.raises(ConfigError, match="HMS-8001") as caught:
        loaded(a, b)

    assert reason in str(caught.value)


def test_a_key_of_another_node_is_refused_before_anything_listens(loaded, tmp_path):
    """A node with the wrong key would only be silent to the others."""
    own, other = make_key_file(tmp_path / "a.key"), make_key_file(tmp_path / "b.key")
    a = f"link_key_file = 'a.key'\nlink_public_key = '''{other}'''"
    b = f"HMSPORT = 7802\nlink_key_file = 'b.key'\nlink_public_key = '''{own}'''"
    config = loaded(a, b)

    with pytest.raises(LinkKeyError, match="is not that of"):
        link_settings(config, config.node("A"))


def test_a_database_store_and_a_cluster_exclude_one_another(loaded):
    """What a database does not keep would be lost at the first crash."""
    with pytest.raises(ConfigError, match="keeps messages in a database"):
        loaded(b=f"HMSPORT = 7802\n{THIRD}")


def test_a_node_alone_is_in_no_cluster(tmp_path):
    """Nothing changes for who has one node."""
    path = tmp_path / "hms.conf"
    path.write_text("[node.A]\n")
    config = load(path)

    assert cluster_settings(config, config.node()) is None


def test_a_database_with_a_port_is_refused_at_boot(tmp_path):
    """Also without a global queue: the node's life would not be kept."""
    path = tmp_path / "hms.conf"
    path.write_text("[node.A]\ndatabase = 'sqlite:x'\n[svrgroup.a]\nHMSPORT = 7801\n")
    config = load(path)

    with pytest.raises(NotSupported, match="database"):
        cluster_settings(config, config.node())
