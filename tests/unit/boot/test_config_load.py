"""hms.conf: what is read, what holds by default, and which files are refused as a whole."""

import pytest

from hms.boot.config import effective, load
from hms.errors.catalogue import ConfigError

NODE = "[node.N1]\n"
TWO_NODES = """
[node.N1]
[node.N2]
listen = ["tcp://127.0.0.1:7701"]
[svrgroup.g1]
NODENAME = "N1"
[svrgroup.g2]
NODENAME = "N2"
HMSINDEX = 2
[svrgroup.apps]
NODENAME = "N2"
SVGTYPE = "TMAX"
[hms.queue.EVERYWHERE]
[hms.queue.ONE]
SVGNAME = "g2"
[server.s]
module = "services.orders"
SVGNAME = "apps"
python_path = ["lib"]
"""


def test_a_node_without_any_key_gets_every_default(write, tmp_path):
    """The smallest file must boot."""
    config = load(write(NODE))

    node = config.node()
    assert node.listen == ("tcp://127.0.0.1:7700",)
    assert node.store == tmp_path / "var/N1/store"
    assert node.runtime == tmp_path / "var/N1/run"
    assert node.log_file == tmp_path / "var/N1/run/N1.log"
    assert (node.boot, node.maxsession, node.segment_bytes) == ("WARM", 1024, 64 << 20)
    assert (node.group.hmsindex, node.group.hmsmaxthr, node.group.hmsmaxdbthr) == (1, 2, 4)
    assert node.group.nodename == "N1"


def test_sizes_are_read_with_their_units(write):
    """Nobody should count zeros."""
    node = load(write(f'{NODE}segment_bytes = "128 MiB"\nmax_message_bytes = 65536')).node()

    assert (node.segment_bytes, node.max_message_bytes) == (128 << 20, 65536)


def test_a_queue_has_what_the_node_says_unless_it_says_otherwise(write):
    """F-H3: the boot option is the node's and can be overridden for one destination."""
    text = f"""{NODE}BOOT = "COLD"
redelivery_limit = 7
[hms.queue.A]
[hms.queue.B]
BOOT = "WARM"
redelivery_limit = -1
"""
    config = load(write(text))

    assert config.queues["A"].boot is None
    queues = {queue.name: queue.on(config.node()) for queue in config.queues_of(config.node())}
    assert (queues["A"].boot, queues["A"].redelivery_limit) == ("COLD", 7)
    assert (queues["B"].boot, queues["B"].redelivery_limit) == ("WARM", -1)


def test_destinations_and_servers_live_on_the_node_of_their_group(write):
    """Two nodes of one file must not both own a queue that was given to one of them."""
    path = write(TWO_NODES)
    config = load(path)

    first, second = config.nodes.values()
    assert [queue.name for queue in config.queues_of(first)] == ["EVERYWHERE"]
    assert [queue.name for queue in config.queues_of(second)] == ["EVERYWHERE", "ONE"]
    assert config.servers_of(first) == []
    (server,) = config.servers_of(second)
    assert server.python_path == (path.parent / "lib",)
    assert (server.min, server.max, server.maxrstart) == (1, 1, 5)


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "tcp://127.5.0.1:65535", "tcp://localhost:7", "tcp://[::1]:7"]
)
def test_loopback_addresses_are_accepted(write, address):
    """All of the loopback network is this machine."""
    assert load(write(f"{NODE}listen = [{address!r}, 'ipc:///run/x']")).node().listen[0] == address


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe", b"a = " + b"[" * 5000, b"a = " + b"9" * 6000, b"\0", b"[" * 3000, b"'''" * 999],
)
def test_a_damaged_file_is_refused_and_nothing_else(tmp_path, data):
    """S02, S09: whatever stands in it, the answer is a report."""
    path = tmp_path / "hms.conf"
    path.write_bytes(data)

    with pytest.raises(ConfigError):
        load(path)


def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path):
    """The first mistake of all is to stand in another folder."""
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "hms.conf")
    (tmp_path / "hms.conf").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(tmp_path / "hms.conf")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_an_editor_of_another_system_does_no_harm(tmp_path):
    """A byte order mark and carriage returns are what some editors write."""
    path = tmp_path / "hms.conf"
    path.write_bytes("\ufeff[node.N1]\r\nMAXSESSION = 5\r\n".encode())

    assert load(path).node().maxsession == 5


def test_what_holds_can_be_written_and_read_back(write):
    """The command config show prints a file that could be used itself."""
    config = load(write(f"{NODE}[hms.queue.'a b']\n[hms.topic.T]\n[service.S]\n"))

    values = effective(config)

    assert values["hms"]["queue"]["a b"]["BOOT"] == "WARM"
    assert values["hms"]["queue"]["a b"]["redelivery_limit"] == 3
    assert values["node"]["N1"]["segment_bytes"] == 64 << 20


def test_a_node_that_is_not_in_the_file_is_refused(write):
    """--node names one of the file's."""
    with pytest.raises(ConfigError, match="no node N9; it has N1"):
        load(write(NODE)).node("N9")
