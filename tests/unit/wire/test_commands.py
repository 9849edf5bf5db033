"""The table of commands: it is complete, and what is derived from it holds."""

import subprocess
import sys

import msgspec
import pytest

from hms.engine.admin import held_places, views
from hms.engine.cluster import cluster_operations
from hms.errors.catalogue import InvalidArgument, NotSupported
from hms.server.client_operations import CLIENT_OPERATIONS
from hms.server.node_operations import NODE_OPERATIONS
from hms.server.resource_managers import RESOURCE_OPERATIONS
from hms.server.segment_roll import SEGMENT_OPERATIONS
from hms.server.service_operations import SERVICE_OPERATIONS
from hms.wire import structures as wire
from hms.wire.commands import (
    COMMANDS,
    OPERATIONS,
    Action,
    Repeat,
    command_of,
    concerns,
    decode_request,
    order,
)
from hms.wire.frames import Kind
from tests.support.largest import LARGEST, commands_of_the_protocol
from tests.support.memory_peer import Node, Peer

GIVEN = {
    "seconds": 5,
    "since": 8,
    "after": 4,
    "apply_s": 9.5,
    "attributes": {"max_messages": 5},
    "begun": 7,
    "bytes_max": 9,
    "count": 2,
    "deliver_at_ms": 3,
    "destination": "queue:orders",
    "discard": True,
    "drain_s": 7.5,
    "end": 5,
    "erased": 3,
    "force": True,
    "found": 4,
    "from_ms": 6,
    "is_all": True,
    "is_atomic": True,
    "is_count_reset": True,
    "is_dry": True,
    "is_erasure": True,
    "is_forced": True,
    "is_from_sender": True,
    "is_id_taken": True,
    "is_newest": True,
    "is_on": False,
    "is_order_broken": True,
    "is_ready": True,
    "is_shipped": True,
    "kind": "delayed",
    "life": "DYNAMIC",
    "limit": 7,
    "min_count": 2,
    "number": 3,
    "older_than_ms": 8,
    "pending": 1,
    "priority": 9,
    "returns_max": 2,
    "segment": 12,
    "ttl_ms": 10,
    "until": 13,
    "until_ms": 11,
    "wait_s": 12,
}
"""A value for each argument that is not a text."""


def test_every_command_of_the_protocol_has_a_row():
    """A command without one could be neither permitted, audited nor repeated by rule."""
    rows = [row.name for row in COMMANDS if row.name not in OPERATIONS]

    assert sorted(rows) == sorted(commands_of_the_protocol() - {"Administer"} | {"HEARTBEAT"})


def test_every_operation_has_somebody_who_does_it_and_the_other_way_round():
    """An operation that nobody does, or one that the table does not know, is refused."""
    done = {*views._OPERATIONS, *cluster_operations._OPERATIONS}
    done |= {*SERVICE_OPERATIONS, *RESOURCE_OPERATIONS, *CLIENT_OPERATIONS, *NODE_OPERATIONS}
    done |= {"metrics.show", *SEGMENT_OPERATIONS, held_places.HOLD, held_places.RELEASE}
    done |= {"message.forwarded"}

    assert sorted(done) == sorted(OPERATIONS)


def test_a_row_names_fields_that_its_structure_has():
    """A resource that cannot be told cannot be permitted."""
    for row in COMMANDS:
        names = row.structure.__struct_fields__ if row.structure is not None else ()
        row.resource.format_map(dict.fromkeys(names, "x"))


@pytest.mark.parametrize("verb", sorted(OPERATIONS))
def test_an_operation_reads_what_it_writes(verb):
    """What a client sends is what the node reads."""
    names = OPERATIONS[verb].structure.__struct_fields__
    arguments = {name: GIVEN.get(name, "a name") for name in names}
    arguments |= arguments.pop("attributes", {})

    read = msgspec.to_builtins(order(verb, arguments).arguments)
    attributes = read.pop("attributes", {})

    assert read | attributes == arguments


@pytest.mark.parametrize(
    ("verb", "arguments", "said"),
    [
        ("queue.purge", {}, "name: it is needed"),
        ("queue.purge", {"name": 7}, "name: expected str"),
        ("queue.purge", {"name": "orders", "forces": True}, "forces of queue.purge"),
        ("status", {"all": True}, "takes no arguments"),
        ("server.scale", {"name": "shop", "count": "two"}, "count: expected int"),
        ("queue.delete", {"name": "orders", "force": "yes"}, "force: expected bool"),
    ],
)
def test_a_wrong_argument_is_named(verb, arguments, said):
    """An argument that is silently ignored is one that somebody relied on."""
    with pytest.raises(InvalidArgument) as caught:
        order(verb, arguments)

    assert said in str(caught.value)


def test_an_unknown_operation_is_refused_with_those_that_there_are():
    """The next thing that somebody types is a right one."""
    with pytest.raises(NotSupported, match=r"queue\.purge"):
        order("queue.empty", {"name": "orders"})


@pytest.mark.parametrize(
    ("head", "resource"),
    [
        (wire.OpenConsumer(1, 1, "queue", "orders", 10), "queue:orders"),
        (wire.OpenSession(1), ""),
        (order("queue.purge", {"name": "orders"}), "queue:orders"),
        (order("queue.list", {}), "queue"),
    ],
)
def test_a_command_tells_what_it_concerns(head, resource):
    """Permissions and audit are about resources, not about frames."""
    assert concerns(command_of(Kind.REQUEST, head), head) == resource


def test_what_only_reads_is_asked_again_and_nothing_else_of_an_operator():
    """A purge that comes twice purges what came in between."""
    reading = {verb for verb, row in OPERATIONS.items() if row.repeat is Repeat.READ}

    assert {row.action for row in OPERATIONS.values() if row.name in reading} <= {
        Action.VIEW,
        Action.BROWSE,
        Action.OWN,
        Action.TRANSACT,
        Action.SECURE,
        Action.AUDIT,
    }
    others = {verb: row.repeat for verb, row in OPERATIONS.items() if verb not in reading}
    assert others.pop("security.reload") is Repeat.SAME  # it reads what the file says then
    assert {*others.values()} == {Repeat.ONCE}


@pytest.mark.parametrize("name", sorted(LARGEST.keys() - {"HEARTBEAT"}))  # the gateway's own
def test_a_command_that_is_not_permitted_changes_nothing(name, tmp_path):
    """The hook is asked of every command, before anything of it is applied."""
    node = Node(tmp_path)
    peer = Peer(node, 1)
    kind, payload = LARGEST[name](peer, 10)
    asked = []

    def permit(command, head, connection):
        asked.append(command.name)
        raise NotSupported(feature=command.name, instead="Ask somebody else.")

    node.broker._permit = permit
    before = len(node.store.records)

    answers = node.send("stranger" if kind is Kind.HELLO else peer.name, kind, payload)

    refused = [wire.decode_error(data) for envelope, data in answers if envelope.kind is Kind.ERROR]
    assert [type(error) for error in refused] == [NotSupported]
    assert asked == [command_of(kind, _head(kind, payload)).name]
    assert len(node.store.records) == before


def _head(kind, payload):
    return decode_request(payload) if kind is Kind.REQUEST else None


def test_the_page_of_commands_is_made_of_the_table(project_root):
    """A page that is written by hand is behind the next day."""
    words = [sys.executable, str(project_root / "scripts" / "generate-commands"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
