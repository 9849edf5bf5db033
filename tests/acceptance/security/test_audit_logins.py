"""Who logged in is in the audit: each user, from each place, once a minute and with a count."""

import json

import msgspec
import pytest

from hms.records.audit import details_of
from hms.server.logins.auditing import OTHERS
from tests.acceptance.security.test_audit_details import entries_of
from tests.support.gated import GatedNode
from tests.support.secured import document

REPLACE = msgspec.structs.replace


@pytest.fixture
def node():
    return GatedNode(document(audit_logins=True, u=[], w=[]))


def flush(node):
    node.now_ms += 60_000
    node.broker.command(lambda fx, now_ms: node.auditing.flush(now_ms, fx))
    node.step()


def test_a_login_is_a_record_with_user_place_and_way(node):
    """And with the connection and the client id, as orders have them."""
    node.login("p", "u", 7, client_id="till 4")

    (entry,) = entries_of(node)
    assert (entry.user, entry.action, entry.command) == ("u", "connect", "login")
    assert (entry.resource, entry.result, entry.count) == ("listener:ipc:///s", 0, 1)
    assert entry.source.split()[0] == "uid"
    assert json.loads(entry.arguments)["by"] == "PASSWORD"
    assert details_of(entry).connection
    assert details_of(entry).client_id == "u/till 4"


def test_equal_logins_of_a_minute_are_two_records(node):
    """A client that comes back a thousand times fills no disk; another user is told at once."""
    for number in range(1, 1001):
        node.login(f"p{number}", "u", number)
    node.login("q", "w", 2000)
    assert [(one.user, one.count) for one in entries_of(node)] == [("u", 1), ("w", 1)]
    flush(node)

    assert [(one.user, one.count) for one in entries_of(node)[2:]] == [("u", 999)]
    node.login("r", "u", 2001)
    assert entries_of(node)[-1].count == 1


def test_a_flood_of_attempts_hides_nobody_who_got_in(node):
    """Refusals are counted together when there are too many of them; logins have their own room."""
    number = 0
    while not any(one.user == OTHERS for one in entries_of(node)):
        number += 1
        node.hello("x", number)
        node.auth("x", f"nobody {number} " + "x" * 40)
        assert number < 5000
    node.login("p", "u", 9000)

    entry = entries_of(node)[-1]
    assert (entry.user, entry.command, entry.result) == ("u", "login", 0)


def test_logins_are_audited_as_long_as_the_policy_says_so(node):
    """It holds at once, without a boot."""
    silent = REPLACE(node.document.security, audit_logins=False)
    node.change(REPLACE(node.document, version=2, security=silent))
    node.login("p", "u", 1)
    assert [one for one in entries_of(node) if one.command == "login"] == []
    node.change(REPLACE(node.document, version=3, security=REPLACE(silent, audit_logins=True)))
    node.login("q", "w", 2)

    assert [one.user for one in entries_of(node) if one.command == "login"] == ["w"]


def test_a_policy_that_says_nothing_of_it_audits_logins():
    """`hms config secure` writes nothing of it either."""
    assert type(document().security)().audit_logins
