"""What a record of the audit says beside the order: who gave it, what it came to, and what became
of an order that was not finished."""

import gzip
import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.engine.queue import purge_slices
from hms.history.audit_trail import entries_of_log
from hms.records import RecordType
from hms.records.audit import (
    CUT_OFF,
    NO_HASH,
    UNKNOWN,
    AuditDetails,
    AuditEntry,
    breaks_of,
    chained,
    decode_audit,
    details_of,
    digest_of,
    result_of,
    with_details,
    without_arguments,
)
from hms.server.logins.security_document import RoleEntry
from hms.wire import structures as wire
from hms.wire.commands import OPERATIONS
from hms.wire.frames import Envelope, Kind
from tests.fixtures.make_store import SEGMENT_BYTES, SETTINGS
from tests.support.gated import GatedNode
from tests.support.journal_node import JournalNode
from tests.support.largest import pack, send
from tests.support.secured import PASSWORD, document, secured_node

REPLACE = msgspec.structs.replace
SLICE = 10
OLD_STORE = Path(__file__).parents[2] / "fixtures" / "store-v3"


def entries_of(node):
    return [
        decode_audit(payload) for kind, _, payload in node.store.records if kind == RecordType.AUDIT
    ]


@pytest.fixture
def held():
    """root, who may do everything, and u, who sends."""
    made = document(u=["produce queue:orders", "consume queue:orders"], op=["purge queue:*"])
    root = REPLACE(made.user["root"], password=made.user["u"].password)
    return REPLACE(made, user={**made.user, "root": root})


@pytest.fixture
def node(held, monkeypatch):
    monkeypatch.setattr(purge_slices, "PURGED_AT_ONCE", SLICE)
    made = GatedNode(held)
    made.login("root", "root", 1, client_id="console")
    made.login("u", "u", 2)
    return made


def fill(node, count):
    """So many messages wait in the queue orders."""
    node.ask("u", wire.OpenSession(1))
    node.ask("u", wire.OpenProducer(1, 1, "queue", "orders"))
    node.send("u", *send(1, 1, count, pack(count)))


def request(verb, **arguments):
    payload = wire.encode(wire.Administer(verb, arguments))
    return [(Envelope(Kind.REQUEST, 9, 1, len(payload)), payload)]


def turns(node, peer, items, count=None):
    """Some turns of a lane; None: until its batch is done."""
    while items and count != 0:
        node.broker.turn(peer, items)
        count = None if count is None else count - 1
    node.step()
    return items


def test_an_order_says_over_which_connection_and_by_which_client(node):
    """Of two programs of one user the name of the user tells neither."""
    node.ask("root", wire.Administer("queue.pause", {"name": "orders"}))
    node.ask("u", wire.Administer("queue.pause", {"name": "orders"}))

    done, refused = map(details_of, entries_of(node))

    assert (done.connection, done.client_id) == (1, "root/console")
    assert (refused.connection, refused.client_id) == (2, "")


def test_refusals_behind_the_first_are_of_no_one_connection(node):
    """They are counted over all connections of the user."""
    for handle in (1, 2):
        node.ask("u", wire.OpenProducer(handle, 1, "queue", "ledger"))
    node.now_ms += 60_000
    node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))

    assert [details_of(one).connection for one in entries_of(node)] == [2, 0]


def test_a_changed_destination_is_told_with_what_held_before(node):
    """Changed keys only; of one that is made or ends, all."""
    for verb, more in (
        ("queue.create", {"max_messages": 5}),
        ("queue.alter", {"max_messages": 7}),
        ("queue.pause", {"what": "PRODUCTION"}),
        ("queue.delete", {}),
    ):
        assert not isinstance(
            node.ask("root", wire.Administer(verb, {"name": "q", **more})), Exception
        )

    made, altered, paused, gone = map(details_of, entries_of(node))

    assert (made.before, made.after["max_messages"]) == ({}, 5)
    assert (altered.before, altered.after) == ({"max_messages": 5}, {"max_messages": 7})
    assert (paused.before, paused.after) == ({"paused": ""}, {"paused": "PRODUCTION"})
    assert (gone.before["max_messages"], gone.after) == (7, {})


def test_an_order_that_failed_has_changed_nothing(node):
    """So nothing before and nothing behind."""
    node.ask("root", wire.Administer("queue.alter", {"name": "orders", "x": 1}))

    (entry,) = entries_of(node)
    assert entry.result == hms.InvalidArgument.number
    assert (details_of(entry).before, details_of(entry).after) == ({}, {})


def test_a_new_policy_has_the_digests_of_both(node, held):
    """No value of it is told, and whoever has the file can say which one it was."""
    after = REPLACE(held, version=2, role={**held.role, "op": RoleEntry()})
    node.broker.command(lambda fx, now: node.auditing.changed(held, after, 0, now, fx))

    (entry,) = entries_of(node)
    said = details_of(entry)
    assert said.before == {"version": held.version, **digest_of(held)}
    assert said.after == {"version": 2, **digest_of(after)}
    assert said.before["sha256"] != said.after["sha256"]
    assert "argon2" not in entry.arguments


def test_a_short_order_says_how_many_it_was_about(node):
    """One record, with its count."""
    fill(node, SLICE - 1)
    node.ask("root", wire.Administer("queue.purge", {"name": "orders"}))

    (entry,) = entries_of(node)
    assert (entry.result, details_of(entry).affected) == (0, SLICE - 1)


def test_an_order_in_slices_is_unknown_until_it_has_ended(node):
    """A node that is killed in between has not said that it was done."""
    fill(node, 4 * SLICE + 3)
    items = turns(node, "root", request("queue.purge", name="orders"), 2)
    (order,) = entries_of(node)
    assert order.result == UNKNOWN

    turns(node, "root", items)

    _, ended = entries_of(node)
    assert (ended.user, ended.command, ended.result) == ("root", "queue.purge", 0)
    assert json.loads(ended.arguments)["order"] == order.number
    assert details_of(ended) == AuditDetails(1, "root/console", 4 * SLICE + 3)
    assert list(breaks_of(entries_of(node))) == []


@pytest.mark.parametrize("how", ["closed", "logged out", "refused"])
def test_an_order_that_is_cut_off_says_so_and_how_far_it_came(node, held, how):
    """The record said ok, and half of the queue was there."""
    fill(node, 4 * SLICE)
    items = turns(node, "root", request("queue.purge", name="orders"), 2)
    if how == "closed":
        node.broker.command(lambda fx, now: node.registry.dismiss(1, now, fx))
    elif how == "logged out":
        root = REPLACE(held.user["root"], generation=7)
        node.change(REPLACE(held, version=2, user={**held.user, "root": root}))
    else:
        root = REPLACE(held.user["root"], roles=("monitor", "security"))
        node.change(REPLACE(held, version=2, user={**held.user, "root": root}))
    turns(node, "root", items)

    ended = [one for one in entries_of(node) if one.command == "queue.purge"][-1]
    expected = CUT_OFF if how != "refused" else hms.NotAuthorized.number
    assert ended.result == expected
    assert result_of(ended) == ("cut off" if how != "refused" else expected)
    assert ended.user == "root"
    assert details_of(ended) == AuditDetails(1, "root/console", 2 * SLICE)
    assert node.engine.state.queues["orders"].line.waiting_count == 2 * SLICE
    assert list(breaks_of(entries_of(node))) == []


def test_a_queue_whose_deletion_was_refused_half_way_is_used_again(node, held):
    """It was kept from everybody for as long as the connection of the order lasted."""
    node.ask("root", wire.Administer("queue.create", {"name": "q"}))
    after = REPLACE(held.role["u"], permissions=(*held.role["u"].permissions, "produce queue:q"))
    node.change(REPLACE(held, version=2, role={**held.role, "u": after}))
    node.ask("u", wire.OpenSession(1))
    node.ask("u", wire.OpenProducer(1, 1, "queue", "q"))
    node.send("u", *send(1, 1, 4 * SLICE, pack(4 * SLICE)))
    order = request("queue.delete", name="q", force=True, discard=True)
    items = turns(node, "root", order, 2)
    root = REPLACE(held.user["root"], roles=("monitor", "security"))
    node.change(REPLACE(node.document, version=3, user={**held.user, "root": root}))
    turns(node, "root", items)

    ended = entries_of(node)[-1]
    ((envelope, _),) = node.send("u", *send(1, 4 * SLICE + 1, 1, pack(1)))
    assert envelope.kind is Kind.CONFIRM
    assert (ended.command, ended.result) == ("queue.delete", hms.NotAuthorized.number)


def test_an_order_behind_one_that_was_refused_half_way_is_one_of_its_own(node, held):
    """What had been done of the first was added to the answer of the second, which is no number:
    the node stopped."""
    fill(node, 4 * SLICE)
    items = turns(node, "root", request("queue.purge", name="orders"), 2)
    less = ["connect listener:*", "configure queue:*"]
    role = {**held.role, "less": RoleEntry(permissions=tuple(less))}
    root = REPLACE(held.user["root"], roles=("less",))
    node.change(REPLACE(held, version=2, role=role, user={**held.user, "root": root}))
    turns(node, "root", items)
    node.outlet.take("root")

    assert node.ask("root", wire.Administer("queue.pause", {"name": "orders"})) is None
    assert details_of(entries_of(node)[-1]).affected is None


def test_a_ban_that_is_cut_off_is_told_with_whom_it_closed(node):
    """It held, some of its clients were closed, and no record said who had ordered it."""
    for number in (3, 4, 5):
        node.login(f"u{number}", "u", number)
    items = turns(node, "root", request("client.ban", by="user", value="u"), 2)
    node.broker.command(lambda fx, now: node.registry.dismiss(1, now, fx))
    turns(node, "root", items)

    order, ended = entries_of(node)
    assert (order.command, order.result) == ("client.ban", UNKNOWN)
    assert (ended.result, details_of(ended).affected) == (CUT_OFF, 2)


def test_details_are_whole_however_long_the_arguments_are():
    """The text was cut in the middle, and was no JSON any more."""
    details = AuditDetails(7, "c", 3)
    long = with_details({"reason": '"\\ü' * 4000}, details)
    assert len(long) <= 4096
    assert json.loads(long)["cut"].startswith('{"reason":')
    entry = chained(AuditEntry(1, 5, "u", "s", "a", "r", "c", long, 0, 1, NO_HASH))
    assert details_of(entry) == details

    values = {f"key{n}": "v" * 255 for n in range(12)}
    text = with_details({"name": "q"}, AuditDetails(7, before=values, after=values))
    assert json.loads(text)["audit"]["before"] == digest_of(values)


def test_no_argument_of_an_order_stands_in_the_place_of_the_details():
    """Else who orders could write them."""
    for row in OPERATIONS.values():
        assert not {"audit", "cut", "order"} & set(row.structure.__struct_fields__)


class OldEntry(msgspec.Struct, frozen=True, array_like=True):
    """A record as the releases before this one read it."""

    number: int
    at_ms: int
    user: str
    source: str
    action: str
    resource: str
    command: str
    arguments: str
    result: int
    count: int
    previous: bytes
    hash: bytes = b""
    digest: bytes = b""


def old_is_whole(payload):
    """What they verify."""
    one = msgspec.msgpack.decode(payload, type=OldEntry)
    bare = msgspec.structs.replace(one, hash=b"", arguments="")
    digest = hashlib.sha256(one.arguments.encode()).digest()
    return (
        hashlib.sha256(msgspec.msgpack.encode(bare)).digest() == one.hash and digest == one.digest
    )


def test_a_release_before_verifies_what_this_one_writes(node):
    """Who goes back to it at night must not be told that the audit was altered."""
    fill(node, 3 * SLICE)
    turns(node, "root", request("queue.purge", name="orders"))
    node.outlet.take("root")
    node.ask(
        "root",
        wire.Administer("queue.alter", {"name": "orders", "max_messages": 7}),
    )
    node.ask("u", wire.Administer("queue.pause", {"name": "orders"}))
    records = [payload for kind, _, payload in node.store.records if kind == RecordType.AUDIT]

    assert len(records) == 4
    assert all(map(old_is_whole, records))


def test_the_chain_of_a_store_of_a_release_before_is_gone_on_with(tmp_path):
    """Its records have no details; the next one follows from them."""
    for packed in OLD_STORE.glob("*.gz"):
        (tmp_path / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    (old,) = entries_of_log(tmp_path)
    assert details_of(old) == AuditDetails()
    node = JournalNode(tmp_path, SETTINGS, SEGMENT_BYTES)
    said = with_details({"name": "orders"}, AuditDetails(7, "c", 3))
    entry = AuditEntry(0, node.now_ms, "u", "s", "a", "r", "c", said, 0, 1, NO_HASH)
    node.run(lambda fx, _: node.engine.state.audit.append(entry, fx))
    node.close()

    both = list(entries_of_log(tmp_path))
    assert [one.number for one in both] == [old.number, old.number + 1]
    assert list(breaks_of(both)) == []
    assert details_of(both[1]) == AuditDetails(7, "c", 3)


def test_what_is_erased_has_no_details_and_the_chain_is_whole():
    """A client id may be the name of a person."""
    said = with_details({"name": "q"}, AuditDetails(7, "anna"))
    first = chained(AuditEntry(1, 5, "u", "s", "a", "r", "c", said, 0, 1, NO_HASH))
    second = chained(AuditEntry(2, 5, "u", "s", "a", "r", "c", said, 0, 1, first.hash))
    blank = without_arguments(first)

    assert details_of(blank) == AuditDetails()
    assert b"anna" not in msgspec.msgpack.encode(blank)
    assert list(breaks_of([blank, second])) == []


def test_the_commands_show_them(tmp_path, held):
    """By a real node, from its store."""
    with ExitStack() as stack:
        node = stack.enter_context(secured_node(tmp_path, held))
        root = stack.enter_context(
            hms.connect(node.address, user="root", password=PASSWORD, client_id="desk")
        )
        root.administer("queue.alter", {"name": "orders", "max_messages": 7})
        text = ("--config", str(node.config_file), "--json")
        ran = CliRunner().invoke(main, ["audit", "list", *text])
        row = json.loads(ran.output)[-1]
        assert (row["client_id"], row["connection"]) == ("root/desk", 1)
        shown = CliRunner().invoke(main, ["audit", "show", str(row["number"]), *text])
        found = json.loads(shown.output)
        assert (found["before"], found["after"]) == ({"max_messages": 0}, {"max_messages": 7})
