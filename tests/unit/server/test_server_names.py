"""A server's name is believed when the node has started its process, and not else."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hms.boot.instances import Instance
from hms.boot.servers import Servers
from hms.server.supervision import NoServers
from hms.wire import structures as wire
from hms.wire.client_identity import uid_of
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode


class OneServer(NoServers):
    """The node has started crew, which has the client's secret number 1."""

    def is_own(self, name, uid):
        return (name, uid) == ("crew:77", hello_of(1).uid)


@pytest.mark.parametrize(("number", "expected"), [(1, [2]), (2, [])])
def test_whoever_only_says_the_name_of_a_server_process_is_not_taken_for_it(number, expected):
    """A stranger that called itself crew:77 and let a call hang had process 77 killed."""
    node = MemoryNode()
    node.broker.begin(replace(node.broker.around, servers=OneServer()))
    node.send("client", Kind.HELLO, wire.encode(hello_of(3)))
    hello = hello_of(number, is_server=True, client_name="crew:77")
    node.send("peer", Kind.HELLO, wire.encode(hello))

    assert node.broker.monitor.connections_of("crew:77") == expected


def test_the_secret_of_a_process_is_that_of_its_server_alone():
    """Another server's process is a stranger to this one."""
    made = [Instance(SimpleNamespace(name=n), None, secret=n.encode()) for n in ("crew", "bank")]
    made.append(Instance(SimpleNamespace(name="crew"), None))
    servers = SimpleNamespace(_instances=lambda: made)

    assert Servers.is_own(servers, "crew:1", uid_of(b"crew"))
    assert not Servers.is_own(servers, "crew:1", uid_of(b"bank"))
    assert not Servers.is_own(servers, "other:1", uid_of(b"crew"))
    assert not Servers.is_own(servers, "crew:1", uid_of(b""))
