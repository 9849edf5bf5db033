"""A right to send that is taken away while something is under way: what the log has behind the
change was allowed by it (AT-34, AT-35)."""

import msgspec
import pytest

import hms
from hms.server.logins.security_document import RoleEntry
from hms.wire import branch_requests as xa
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.acceptance.security.test_revocation import without
from tests.support.gated import GatedNode
from tests.support.largest import pack, send
from tests.support.secured import document

REPLACE = msgspec.structs.replace
XID = bytes([0, 0, 0, 1, 2, 1]) + b"gtb"
OTHER = bytes([0, 0, 0, 1, 2, 1]) + b"gtc"
RB_BASE = 100
SENDING = "produce queue:orders"


@pytest.fixture
def held():
    own = (SENDING, "produce queue:ledger", "transact node:*", "view queue:*")
    return document(u=[*own, "publish topic:news"], op=["configure queue:*"])


@pytest.fixture
def node(held):
    made = GatedNode(held)
    made.login("p", "u", 1)
    made.login("op", "op", 2)
    return made


def waiting(node, name="orders"):
    return node.engine.state.queues[name].line.waiting_count


def began(node, queue="orders", handle=1, count=1, **options):
    """A session whose producer has sent so many; what was answered."""
    node.ask("p", wire.OpenSession(handle, **options))
    node.ask("p", wire.OpenProducer(handle, handle, "queue", queue))
    return node.send("p", *send(handle, 1, count, pack(count)))


def pause(node, verb="pause", what="PRODUCTION"):
    node.ask("op", wire.Administer(f"queue.{verb}", {"name": "orders", "what": what}))


def refused(frames):
    """The errors among them."""
    found = [wire.decode_error(data) for envelope, data in frames if envelope.kind is Kind.ERROR]
    return [type(one) for one in found]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_transaction_that_has_sent_there_cannot_be_committed(node, held, is_closed):
    """It was, hours later: what a COMMIT makes effective was sent when it might still be."""
    began(node, is_transacted=True)
    if is_closed:
        node.ask("p", wire.CloseProducer(1))

    node.change(without(held, "u", SENDING))

    assert isinstance(node.ask("p", wire.Commit(1, 1)), hms.TransactionRolledBack)
    assert waiting(node) == 0
    node.ask("p", wire.OpenProducer(2, 1, "queue", "ledger"))
    node.send("p", *send(2, 1, 1, pack(1)))
    assert node.ask("p", wire.Commit(1, 2)) is True
    assert waiting(node, "ledger") == 1


def test_a_transaction_that_has_sent_elsewhere_goes_on(node, held):
    """Only what is not allowed any more ends."""
    began(node, "ledger", is_transacted=True)

    node.change(without(held, "u", SENDING))

    assert node.ask("p", wire.Commit(1, 1)) is True
    assert waiting(node, "ledger") == 1


def test_a_branch_that_has_sent_there_is_rolled_back_unless_it_is_prepared(node, held):
    """What was promised to a transaction manager holds."""
    for handle, xid in ((1, XID), (2, OTHER)):
        node.ask("p", wire.OpenSession(handle, is_xa=True))
        node.ask("p", wire.OpenProducer(handle, handle, "queue", "orders"))
        node.ask("p", xa.XaStart(handle, xid))
        node.send("p", *send(handle, 1, 1, pack(1)))
        node.ask("p", xa.XaEnd(handle, xid, 0x04000000))
    assert node.ask("p", xa.XaPrepare(OTHER))["code"] == 0

    node.change(without(held, "u", SENDING))

    assert RB_BASE <= node.ask("p", xa.XaPrepare(XID))["code"] <= RB_BASE + 7
    assert node.ask("p", xa.XaCommit(OTHER))["code"] == 0
    assert waiting(node) == 1


def test_a_send_that_waits_for_room_is_refused(node, held):
    """It went when the queue was resumed, behind the change."""
    pause(node)
    assert began(node, count=2) == []

    node.change(without(held, "u", SENDING))
    pause(node, "resume")

    assert refused(node.outlet.take("p")) == [hms.NotAuthorized]
    assert waiting(node) == 0


def test_a_commit_that_waits_for_room_is_refused(node, held):
    """The same, of a transaction; its session goes on."""
    pause(node)
    began(node, is_transacted=True)
    payload = wire.encode(wire.Commit(1, 1))
    assert node.send("p", Kind.REQUEST, payload) == []

    node.change(without(held, "u", SENDING))
    pause(node, "resume")

    assert refused(node.outlet.take("p")) == [hms.TransactionRolledBack]
    assert waiting(node) == 0
    node.ask("p", wire.OpenProducer(2, 1, "queue", "ledger"))
    node.send("p", *send(2, 1, 1, pack(1)))
    assert node.ask("p", wire.Commit(1, 2)) is True
    assert waiting(node, "ledger") == 1


def test_a_handle_that_was_refused_is_free_for_what_is_granted(node, held):
    """Each send of the new producer was refused as if it were the old one's."""
    began(node)
    node.change(without(held, "u", SENDING))
    node.ask("p", wire.CloseProducer(1))
    assert not isinstance(node.ask("p", wire.OpenProducer(1, 1, "queue", "ledger")), hms.HmsError)

    assert [one.kind for one, _ in node.send("p", *send(1, 2, 1, pack(1)))] == [Kind.CONFIRM]


def test_who_may_not_view_a_queue_any_more_is_not_told_of_its_consumers(node, held):
    """Each first and last consumer was told for as long as the connection lasted."""
    node.ask("p", wire.Watch("queue", "orders"))
    receiving = RoleEntry(permissions=(*held.role["op"].permissions, "consume queue:orders"))
    roles = {**held.role, "op": receiving}
    node.change(without(REPLACE(held, role=roles), "u", "view queue:*"))
    node.ask("op", wire.OpenSession(1))
    node.ask("op", wire.OpenConsumer(1, 1, "queue", "orders", 1))

    assert node.outlet.take("p") == []
