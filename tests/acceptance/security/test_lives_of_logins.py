"""Logins over time and through other doors: reconnects, a node booted anew, services, tpstart."""

import os
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_, or_
from pathlib import Path

import msgspec
import pytest

import hms
import tpmon
from hms.boot.resume_keys import AGE_S, LOOK_S, ResumeKeys, resume_keys
from hms.boot.security_file import change_security
from hms.server.logins import document_changes as changes
from hms.server.logins.callers import Caller
from hms.server.logins.resume_tokens import ResumeTokens
from hms.server.logins.security_document import RoleEntry
from tests.support.secured import PASSWORD, cheap_hash, document, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
HERE = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """With services that the node starts, and a password of the domain."""
    folder = tmp_path_factory.mktemp("l")
    held = document(
        u=[
            "produce queue:orders",
            "consume queue:orders",
            "call service:ECHO",
            "call service:CALLER",
            "call service:PASS",
            "temporary node:*",
        ],
        none=[],
    )
    held = REPLACE(held, domain_password=cheap_hash("domain"))
    with secured_node(folder, held, serve=["tmax_services"], python_path=[HERE]) as running:
        yield running


def login(**more):
    return {"user": "u", "password": PASSWORD, **more}


def let_in(node):
    """How often somebody was let in by a password."""
    return node.log.count("is let in by PASSWORD")


def test_a_service_that_the_node_starts_serves_who_may_call_it(node):
    """It is known by its secret; who calls it by their login."""
    with hms.connect(node.address, **login()) as connection:
        assert connection.call("ECHO", "hello").data == "hello"
        with pytest.raises(hms.NotAuthorized):
            connection.call("WHO")
        with pytest.raises(hms.NotAuthorized):
            connection.advertise("ECHO")
        assert connection.administer is not None


def test_a_service_knows_who_called_it_also_through_another_one(node):
    """As the node has proved it, and not as the client calls itself."""
    root = hms.connect(node.address)
    with hms.connect(node.address, **login(client_name="root")) as connection, root:
        assert connection.call("CALLER").data == connection.call("PASS").data == "u"
        assert root.call("CALLER").data == "root"


def test_a_temporary_queue_is_received_from_by_its_maker_alone(node):
    """Others send to it, who know its name; consume queue:* grants nothing there."""
    with hms.connect(node.address, **login()) as mine, mine.session() as session:
        own = session.temporary_queue()
        with hms.connect(node.address) as other, other.session() as theirs:
            theirs.producer(own).send(b"answer")
            with pytest.raises((hms.TemporaryDestination, hms.NotAuthorized)):
                theirs.consumer(own)
        assert session.consumer(own).receive(timeout_s=60).body == b"answer"


def test_nobody_guesses_the_name_of_a_temporary_queue(node):
    """AT-31: each of its last 96 bits is now 0, now 1 (64 names: one of them alike by chance once
    in 2^56 runs)."""
    with hms.connect(node.address, **login()) as connection, connection.session() as session:
        names = [session.temporary_queue().name for _ in range(64)]

    bits = [int(name[-24:], 16) for name in names]
    assert reduce(or_, bits) == 2**96 - 1
    assert reduce(and_, bits) == 0


def test_tpstart_is_checked(node, monkeypatch):
    """Usrpwd and dompwd count, and a wrong one is TPESECURITY."""
    monkeypatch.setenv("HMS_ADDRESS", node.address)
    start = tpmon.TPSTART_T
    for wrong in (
        start(usrname="u", usrpwd="wrong"),
        start(usrname="u", usrpwd=PASSWORD, dompwd="wrong"),
        start(dompwd="wrong"),
    ):
        with pytest.raises(hms.LoginRefused) as caught:
            tpmon.tpstart(wrong)
        assert caught.value.tperrno == tpmon.TPESECURITY
        assert isinstance(caught.value, PermissionError)
    tpmon.tpstart(start(usrname="u", usrpwd=PASSWORD, dompwd="domain"))
    try:
        assert tpmon.tpcall("ECHO", "x").data == "x"
    finally:
        tpmon.tpend()
    tpmon.tpstart(start(dompwd="domain"))
    tpmon.tpend()


def test_a_dompwd_is_refused_where_nobody_checks_it(monkeypatch):
    """Instead of being ignored."""
    with hms.testing.node() as open_node:
        monkeypatch.setenv("HMS_ADDRESS", open_node.address)
        with pytest.raises(hms.LoginNotChecked):
            tpmon.tpstart(tpmon.TPSTART_T(dompwd="domain"))


def test_clients_come_back_without_a_password_after_the_node_was_booted_anew(node):
    """Their tokens are signed with keys that outlive the process: no hash is computed."""
    told = []
    connections = [
        hms.connect(node.address, **login(event_listener=told.append)) for _ in range(20)
    ]
    before = let_in(node)
    node.kill()
    node.boot()
    wait_until(lambda: all(connection.is_connected for connection in connections))
    for connection in connections:
        connection.call("ECHO", "again")
        connection.close()

    assert let_in(node) == before


def test_who_is_logged_out_logs_in_again_with_its_password(node):
    """The token holds no more; the password does."""
    with hms.connect(node.address, **login()) as connection:
        before = let_in(node)
        change_security(node.security, lambda d: changes.log_out(d, "u"))
        wait_until(lambda: let_in(node) > before)
        wait_until(lambda: connection.is_connected)
        assert connection.call("ECHO", "again").data == "again"


def test_a_user_who_is_disabled_is_gone_for_good(node):
    """Its connection ends, says so, and does not come back."""
    told = []
    change_security(node.security, lambda d: changes.alter_user(d, "none", password=cheap_hash()))
    wait_until(lambda: _is_let_in(node, "none"))
    connection = hms.connect(
        node.address, user="none", password=PASSWORD, exception_listener=told.append
    )
    change_security(node.security, lambda d: changes.alter_user(d, "none", enabled=False))
    wait_until(lambda: len(told) > 1)
    connection.close()

    assert {type(one) for one in told} == {hms.LoginExpired}


def _is_let_in(node, user):
    try:
        hms.connect(node.address, user=user, password=PASSWORD).close()
    except hms.LoginRefused:
        return False
    return True


def test_a_login_ends_with_its_token(node):
    """While it is connected, too. Who works on hears that it has ended (§5.4), not that an attempt
    to come back was refused."""
    spans = (3, 10, 30, 60)  # one may be over before it is known: a node that was killed is ahead
    found = next(found for span_s in spans if (found := _short_login(node, span_s)))
    token, connection, told = found
    wait_until(lambda: len(told) > 1)
    with pytest.raises(hms.LoginExpired, match="login of user u has ended"):
        connection.session()
    connection.close()

    assert {type(one) for one in told} == {hms.LoginExpired}

    assert not _by_token(node, token)


def _short_login(node, span_s):
    """A token for so long, a connection by it as soon as it is known, and what that one is told;
    None: it was over."""
    made, found, until_s = [], [], time.monotonic() + span_s

    def change(held):
        ends = datetime.now(UTC) + timedelta(seconds=span_s)
        after, token = changes.add_token(held, f"short{span_s}", "u", ends)
        made.append(token)
        return after

    def is_in():
        told = []
        with suppress(hms.LoginRefused):
            one = hms.connect(node.address, token=made[0], exception_listener=told.append)
            found.append((made[0], one, told))
        return found

    change_security(node.security, change)
    wait_until(lambda: is_in() or time.monotonic() > until_s)
    return found[0] if found else None


def _by_token(node, token):
    try:
        hms.connect(node.address, token=token).close()
    except hms.LoginRefused:
        return False
    return True


def test_two_generations_of_keys_count(tmp_path, monkeypatch):
    """A damaged file, or one that others could read, is replaced."""
    path = tmp_path / "resume.keys"
    first = resume_keys(path)
    assert resume_keys(path) == first
    monkeypatch.setattr("time.time", lambda: path.stat().st_mtime + 86_400)
    second = resume_keys(path)
    assert second[1:] == first
    assert resume_keys(path)[1:] == second[:1]
    monkeypatch.undo()
    assert path.stat().st_mode & 0o777 == 0o600
    for spoil in (
        lambda: path.chmod(0o644),
        lambda: path.write_text("x"),
        lambda: path.write_text("00"),
    ):
        known = resume_keys(path)
        spoil()
        assert set(resume_keys(path)).isdisjoint(known)


def test_the_keys_of_resume_tokens_are_changed_while_the_node_runs(tmp_path, caplog):
    """One that runs for a year would else sign with the first ones. A file that cannot be written
    leaves what holds, and it is tried again."""
    path, now_s = tmp_path / "resume.keys", [0.0]
    keys = ResumeKeys(path, lambda: now_s[0])
    first = keys.held

    def age():
        now_s[0] += LOOK_S
        at = path.stat().st_mtime - AGE_S
        os.utime(path, (at, at))

    assert not keys.look()
    age()
    (half := tmp_path / "resume.keys.new").mkdir()
    assert not keys.look()
    assert keys.held == first
    assert "stay as they are" in caplog.text
    half.rmdir()
    assert not keys.look()  # not before its time
    now_s[0] += LOOK_S
    assert keys.look()
    assert keys.held[1:] == first


def test_a_token_of_the_keys_before_is_good_until_they_are_two_generations_old():
    """A client that is away while they change comes back without its password."""
    first, second, third = (bytes([n]) * 32 for n in range(3))
    tokens, caller = ResumeTokens([first], 3600), Caller("s", "", 1, 1)
    token, _ = tokens.issue("u", 1, "PASSWORD", 7, caller, 0)
    tokens.sign_with([second, first])
    assert tokens.check(token, 7, caller, 1).user == "u"
    newer, _ = tokens.issue("u", 1, "PASSWORD", 7, caller, 0)
    tokens.sign_with([third, second])

    assert tokens.check(token, 7, caller, 1) is None
    assert tokens.check(newer, 7, caller, 1).user == "u"


def test_a_role_that_is_granted_later_is_there_at_once(node):
    """For who is connected, too: nothing is asked again."""
    with hms.connect(node.address, **login()) as connection, connection.session() as session:
        with pytest.raises(hms.NotAuthorized):
            session.producer(hms.Queue("payments"))

        def change(held):
            more = RoleEntry(permissions=(*held.role["u"].permissions, "produce queue:payments"))
            return REPLACE(held, role={**held.role, "u": more})

        version = change_security(node.security, change).version
        wait_until(lambda: f"policy version {version} holds" in node.log)
        session.producer(hms.Queue("payments")).send(b"x")
