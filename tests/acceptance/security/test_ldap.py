"""Logins by LDAP against Debian's slapd: groups to roles, injection, certificates, a server that is
stopped or slow."""

from contextlib import suppress

import msgspec
import pytest

import hms
from hms.boot.security_file import change_security
from hms.server.logins.authenticators import AwayError, LoginAttempt, NotMineError
from hms.server.logins.ldap_logins import LdapLogins, escaped
from hms.server.logins.security_document import AuthenticatorEntry
from tests.support.byte_proxy import ByteProxy
from tests.support.login_times import ATTACKS_FULL, compared
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.slapd import MANAGER, MANAGER_PASSWORD, PEOPLE, SUFFIX, Authority, Slapd
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
T_MAX = 4.5
GROUP = f"cn=billers,ou=groups,{SUFFIX}"
BIND = "file:ldap.secret"
REFRESH_S = 1.0


def entry_of(url, **more):
    given = {
        "kind": "ldap",
        "urls": (url,),
        "ca_file": "ca.pem",
        "bind_dn": MANAGER,
        "bind_password": BIND,
        "user_base": f"ou=people,{SUFFIX}",
        "user_filter": "(&(objectClass=inetOrgPerson)(uid={user}))",
        "group_base": f"ou=groups,{SUFFIX}",
        "group_filter": "(&(objectClass=groupOfNames)(member={dn}))",
        "role_map": {GROUP: "billing", "*": "guest"},
        "timeout_s": 60.0,
    }
    return AuthenticatorEntry(**given | more)


def prepared(folder):
    """What a directory needs, and who asks it."""
    Authority(folder)
    (folder / "ldap.secret").write_text(f"{MANAGER_PASSWORD}\n")
    (folder / "ldap.secret").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("ldap"))


@pytest.fixture(scope="module")
def slapd(folder):
    """Its log has nothing of a node, which asks again who is connected."""
    made = Slapd(folder).start()
    yield made
    made.stop()


def logins(folder, url, **more):
    return LdapLogins(entry_of(url, **more), folder, lambda: MANAGER_PASSWORD)


def attempt(user, password):
    return LoginAttempt("PASSWORD", user, password.encode())


@pytest.fixture(params=["ldaps", "start_tls"])
def good(request, folder, slapd):
    if request.param == "ldaps":
        return logins(folder, f"ldaps://127.0.0.1:{slapd.tls_port}")
    return logins(folder, f"ldap://127.0.0.1:{slapd.port}", start_tls=True)


def test_a_user_is_who_its_password_says_with_the_roles_of_its_groups(good):
    """Of a group, and of everybody."""
    found = good.authenticate(attempt("billing", PEOPLE["billing"]))

    assert (found.user, found.roles) == ("billing", ("guest", "billing"))
    assert good.authenticate(attempt("clerk", PEOPLE["clerk"])).roles == ("guest",)
    assert good.authenticate(attempt("billing", "wrong")) is None
    with pytest.raises(NotMineError):
        good.authenticate(attempt("nobody", "x"))


def test_at_11_an_empty_password_is_refused_before_any_bind(good, slapd):
    """RFC 4513 §5.1.2 has it succeed, as nobody."""
    before = slapd.log.count(" BIND ")
    for password in ("", "\0", "\0\0\0", f"{PEOPLE['billing']}\0"):
        assert good.authenticate(attempt("billing", password)) is None
    assert good.authenticate(attempt("", "x")) is None
    assert slapd.log.count(" BIND ") == before


def test_at_12_a_name_that_is_not_there_costs_a_bind_too(good, slapd):
    """It was answered 40 ms sooner."""
    binds = []
    for name in ("billing", "nobody"):
        before = slapd.log.count(" BIND dn=")
        with suppress(NotMineError):
            assert good.authenticate(attempt(name, "wrong")) is None
        binds.append(slapd.log.count(" BIND dn=") - before)
    assert binds[0] == binds[1] > 1


INJECTIONS = [
    "*",
    "*)(uid=*",
    "billing)(|(uid=*",
    "\\",
    "b\0",
    "bill*",
    "(uid=billing)",
    "uid=billing,",
]


@pytest.mark.parametrize("name", INJECTIONS)
def test_at_22_a_name_is_no_filter(good, slapd, name):
    """It matches itself, which nobody is called."""
    with pytest.raises(NotMineError):
        good.authenticate(attempt(name, PEOPLE["billing"]))

    filters = [line for line in slapd.log.splitlines() if "filter=" in line][-1:]
    assert [line.count("(uid=") for line in filters] == [1]


def test_what_a_filter_would_obey_is_escaped():
    """RFC 4515 §3."""
    assert escaped("a*(b)\\\0") == r"a\2a\28b\29\5c\00"


@pytest.mark.parametrize("which", ["expired", "elsewhere", "foreign"])
def test_at_23_a_certificate_that_does_not_hold_gets_no_password(folder, which, record_property):
    """Neither of the user nor of the node: the wire is recorded."""
    server = Slapd(folder, which).start()
    proxies = []
    try:
        for url, port, more in (
            ("ldaps", server.tls_port, {}),
            ("ldap", server.port, {"start_tls": True}),
        ):
            proxies.append(ByteProxy(f"tcp://127.0.0.1:{port}"))
            one = logins(folder, f"{url}://127.0.0.1:{proxies[-1].port}", **more)
            with pytest.raises(AwayError):
                one.authenticate(attempt("billing", PEOPLE["billing"]))
        for proxy in proxies:
            for secret in (PEOPLE["billing"], MANAGER_PASSWORD):
                assert secret.encode() not in proxy.said
        assert "BIND" not in server.log
    finally:
        for proxy in proxies:
            proxy.close()
        server.stop()
    record_property("figures", {"test": "AT-23", "which": which, "passwords_on_the_wire": 0})


def test_at_23_starttls_that_is_stripped_gets_no_password(folder, slapd):
    """An answer that it is not supported ends the login, and nothing goes in clear."""

    def stripped(data):
        return data.replace(b"\x0a\x01\x00", b"\x0a\x01\x02", 1)  # success becomes protocolError

    proxy = ByteProxy(f"tcp://127.0.0.1:{slapd.port}", stripped)
    try:
        one = logins(folder, f"ldap://127.0.0.1:{proxy.port}", start_tls=True)
        with pytest.raises(AwayError):
            one.authenticate(attempt("billing", PEOPLE["billing"]))
        assert MANAGER_PASSWORD.encode() not in proxy.said
    finally:
        proxy.close()


def test_the_second_server_is_asked_when_the_first_does_not_answer(folder, slapd):
    """In their order."""
    dead = ByteProxy("tcp://127.0.0.1:1")
    dead.close()
    urls = (f"ldaps://127.0.0.1:{dead.port}", f"ldaps://127.0.0.1:{slapd.tls_port}")
    one = logins(folder, "", urls=urls)

    assert one.authenticate(attempt("clerk", PEOPLE["clerk"])).user == "clerk"


# at a real node


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """That of the node."""
    made = Slapd(prepared(tmp_path_factory.mktemp("node"))).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def node(directory):
    held = document(billing=["produce queue:orders", "consume queue:orders"], guest=[], admin2=[])
    users = {name: one for name, one in held.user.items() if name not in ("billing", "guest")}
    users["admin"] = held.user["admin2"]
    corp = entry_of(f"ldaps://127.0.0.1:{directory.tls_port}", refresh_s=REFRESH_S)
    held = REPLACE(held, user=users, authenticator={"corp": corp}, authenticators=("file", "corp"))
    with secured_node(directory.folder, held) as running:
        yield running


def login(node, name, **more):
    return hms.connect(node.address, user=name, password=PEOPLE.get(name, PASSWORD), **more)


def test_the_whole_way_from_a_group_to_a_permission(node):
    """And the name of a local user is not the directory's to give."""
    with login(node, "billing") as connection, connection.session() as session:
        session.producer(hms.Queue("orders")).send(b"x")
        assert session.consumer(hms.Queue("orders")).receive(timeout_s=60).body == b"x"
        with pytest.raises(hms.NotAuthorized):
            session.producer(hms.Queue("payments"))
    with (
        login(node, "clerk") as connection,
        connection.session() as session,
        pytest.raises(hms.NotAuthorized),
    ):
        session.producer(hms.Queue("orders"))
    for name, password in [("admin", PEOPLE["admin"]), ("billing", "wrong"), ("nobody", "x")]:
        with pytest.raises(hms.LoginRefused):
            hms.connect(node.address, user=name, password=password)


def test_who_leaves_a_group_loses_its_role_while_connected(node, directory):
    """Within refresh_s; and gets it again."""
    told = []
    with (
        login(node, "billing", exception_listener=told.append) as connection,
        connection.session() as session,
    ):
        consumer = session.consumer(hms.Queue("orders"))
        directory.set_members("billers", ["clerk"])
        wait_until(lambda: told)
        assert isinstance(told[0], hms.NotAuthorized)
        with pytest.raises(hms.NotAuthorized):
            consumer.receive(timeout_s=60)
        directory.set_members("billers", ["billing", "admin"])

        def is_back():
            try:
                session.consumer(hms.Queue("orders")).close()
            except hms.NotAuthorized:
                return False
            return True

        wait_until(is_back)


def test_at_24_a_directory_that_is_slow_or_gone_delays_its_own_users_only(node, directory):
    """They are told to come again; others log in, and who is connected goes on: for three times
    refresh_s."""
    with login(node, "billing") as connection, connection.session() as session:
        patience(node, 1.5, refresh_s=600.0)
        out, inn = session.producer(hms.Queue("orders")), session.consumer(hms.Queue("orders"))
        directory.pause()
        try:
            with pytest.raises(hms.LoginBusy):
                login(node, "clerk")
            hms.connect(node.address, user="admin", password=PASSWORD).close()
            out.send(b"x")
            assert inn.receive(timeout_s=60).body == b"x"
        finally:
            directory.resume()
        wait_until(lambda: _is_let_in(node, "clerk"))
    directory.stop()
    try:
        with pytest.raises(hms.LoginBusy):
            login(node, "clerk")
        hms.connect(node.address, user="admin", password=PASSWORD).close()
    finally:
        directory.start()
    patience(node, 60.0, REFRESH_S)
    wait_until(lambda: _is_let_in(node, "clerk"))


def patience(node, seconds, refresh_s):
    """How long the node waits for the directory from now on, and when it asks again: one that is
    slow is not gone."""

    def change(document):
        (corp,) = document.authenticator.values()
        corp = REPLACE(corp, timeout_s=seconds, refresh_s=refresh_s)
        return REPLACE(document, authenticator={"corp": corp})

    version = change_security(node.security, change).version
    wait_until(lambda: f"policy version {version} holds" in node.log)


def _is_let_in(node, name):
    try:
        login(node, name).close()
    except hms.LoginBusy:
        return False
    return True


def test_an_authenticator_that_is_taken_away_ends_its_logins(node):
    """What it said counts no more."""
    held = []

    def away(document):
        held.append(document)
        return REPLACE(document, authenticator={}, authenticators=())

    told = []
    with login(node, "billing", exception_listener=told.append):
        change_security(node.security, away)
        wait_until(lambda: len(told) > 1)
    assert {type(one) for one in told} == {hms.LoginExpired}
    change_security(node.security, lambda _: held[0])
    wait_until(lambda: _is_in(node))


def _is_in(node):
    try:
        login(node, "billing").close()
    except (hms.LoginRefused, hms.LoginBusy):
        return False
    return True


@pytest.mark.timeout(3600 if ATTACKS_FULL else 300)
def test_at_12_a_directory_tells_no_more_of_a_name_than_the_file(node, record_property):
    """One search more or less is not to be seen in the time."""
    figures = compared(node.address, "nobody", "clerk")
    record_property("figures", {"test": "AT-12", "of": "ldap", **figures})

    assert figures["t"] < T_MAX or not ATTACKS_FULL
