"""Logins by JWT with keys that openssl has made, tokens that are renewed on a live connection, and
plug-ins that fail."""

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import ssl
import subprocess
import threading
import time
from contextlib import suppress

import msgspec
import pytest
from joserfc import jwk, jwt

import hms
import hms.aio
from hms.client.core.events import EventKind
from hms.client.core.link import Link
from hms.server.logins.authenticators import AwayError, Identity, LoginAttempt, NotMineError
from hms.server.logins.jwt_logins import JwtLogins
from hms.server.logins.outside_logins import OutsideLogins
from hms.server.logins.security_document import AuthenticatorEntry
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.secured import document, secured_node
from tests.support.slapd import Authority
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
ISSUER, AUDIENCE = "https://sso.example.net/realms/bank", "hms"
NOW = 1_800_000_000
WAYS = {
    "rsa": ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "ec": ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
}
ALGORITHM = {"rsa": "RS256", "ec": "ES256"}


class Keys:
    """Pairs of openssl, and the set of their public halves."""

    def __init__(self, folder):
        self.folder, self.pairs, public = folder, {}, []
        for name, way in WAYS.items():
            pem = folder / f"{name}.pem"
            subprocess.run(["openssl", *way, "-out", pem], check=True, capture_output=True)
            kind = {"rsa": jwk.RSAKey, "ec": jwk.ECKey}[name]
            self.pairs[name] = kind.import_key(pem.read_bytes())
            public.append(self.pairs[name].as_dict(private=False) | {"kid": name})
        self.secret_of_set = "a secret that is in the set as well"
        self.set = {"keys": public}
        (folder / "jwks.json").write_text(json.dumps(self.set))

    def token(self, name="ec", header=None, key=None, algorithm="", **claims):
        given = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "1",
            "preferred_username": "teller",
            "exp": NOW + 300,
            "realm_access": {"roles": ["mq-billing"]},
        } | claims
        given = {word: value for word, value in given.items() if value is not None}
        head = {"alg": algorithm or ALGORITHM[name], "kid": name} | (header or {})
        head = {word: value for word, value in head.items() if value is not None}
        return jwt.encode(head, given, key or self.pairs[name], algorithms=[head["alg"]])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("jwt"))


def entry_of(**more):
    given = {
        "kind": "jwt",
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "algorithms": ("ES256", "RS256"),
        "jwks_file": "jwks.json",
        "user_claim": "preferred_username",
        "roles_claim": "realm_access.roles",
        "role_map": {"mq-billing": "billing"},
        "timeout_s": 60.0,  # a busy machine is late, and hangs nowhere
    }
    return AuthenticatorEntry(**given | more)


@pytest.fixture(scope="module")
def logins(keys):
    return JwtLogins(entry_of(), keys.folder, lambda: NOW)


def attempt(token, user=""):
    return LoginAttempt("TOKEN", user, token if isinstance(token, bytes) else token.encode())


@pytest.mark.parametrize("name", ["rsa", "ec"])
def test_a_token_says_who_and_which_roles(logins, keys, name):
    """Until it ends, with its leeway."""
    found = logins.authenticate(attempt(keys.token(name)))

    assert found == Identity(
        "teller", ("billing",), (NOW + 330) * 1000, keys.pairs[name].thumbprint()
    )
    assert logins.authenticate(attempt(keys.token(name), "teller")) is not None
    assert logins.authenticate(attempt(keys.token(name), "other")) is None
    assert logins.authenticate(attempt(keys.token(name, aud=["x", AUDIENCE]))) is not None
    assert logins.authenticate(attempt(keys.token(name, realm_access=None))).roles == ()


def by_hand(header, claims, sign):
    def part(data):
        return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=")

    signed = part(header) + b"." + part(claims)
    return signed + b"." + base64.urlsafe_b64encode(sign(signed)).rstrip(b"=")


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "1", "preferred_username": "t", "exp": NOW + 99}


def forged(keys):
    """What must not be let in, by what is wrong."""
    public = keys.pairs["rsa"].as_pem(private=False)
    raw = json.dumps(keys.set["keys"][0]).encode()

    def hs256(secret):
        return lambda signed: hmac.new(secret, signed, hashlib.sha256).digest()

    own = jwk.ECKey.generate_key("P-256")
    good = keys.token()
    return {
        "none": by_hand({"alg": "none", "kid": "ec"}, CLAIMS, lambda _: b""),
        "None": by_hand({"alg": "None"}, CLAIMS, lambda _: b""),
        "HS256 with the public key": by_hand({"alg": "HS256", "kid": "rsa"}, CLAIMS, hs256(public)),
        "HS256 with the set": by_hand({"alg": "HS256", "kid": "rsa"}, CLAIMS, hs256(raw)),
        "RS256 by HMAC": by_hand({"alg": "RS256", "kid": "rsa"}, CLAIMS, hs256(public)),
        "algorithm of another key": by_hand({"alg": "ES256", "kid": "rsa"}, CLAIMS, hs256(public)),
        "issuer": keys.token(iss="https://elsewhere"),
        "no issuer": keys.token(iss=None),
        "audience": keys.token(aud="other"),
        "no audience": keys.token(aud=None),
        "expired": keys.token(exp=NOW - 31),
        "no end": keys.token(exp=None),
        "end as text": keys.token(exp="soon"),
        "no end in sight": keys.token(exp=1 << 60),
        "not yet": keys.token(nbf=NOW + 99),
        "issued later": keys.token(iat=NOW + 99),
        "no subject": keys.token(sub=None),
        "no user": keys.token(preferred_username=None),
        "user is a list": keys.token(preferred_username=["teller"]),
        "jwk": keys.token(key=own, header={"jwk": own.as_dict(private=False)}),
        "jku": keys.token(key=own, header={"jku": "https://elsewhere/jwks"}),
        "x5u": keys.token(key=own, header={"x5u": "https://elsewhere/c"}),
        "unknown kid": keys.token(header={"kid": "other"}),
        "no kid of two keys": keys.token(header={"kid": None}),
        "roles as text": keys.token(realm_access={"roles": "mq-billing"}),
        "roles of numbers": keys.token(realm_access={"roles": [1]}),
        "roles nowhere": keys.token(realm_access="mq-billing"),
        "signature": good[:-8] + ("A" * 8),
        "no signature": good.rpartition(".")[0] + ".",
    }


def test_at_20_what_is_forged_is_refused(logins, keys, record_property):
    """RFC 8725; each by itself."""
    every = forged(keys)
    let_in = [name for name, token in every.items() if logins.authenticate(attempt(token))]
    record_property("figures", {"test": "AT-20", "forged": len(every), "let_in": len(let_in)})

    assert let_in == []


@pytest.mark.parametrize("token", [b"", b"a.b", b"..", b"e30.e30.", b"\xff.\xff.\xff", b"x" * 9000])
def test_at_20_what_is_no_token_is_not_looked_at(logins, token):
    """1 MiB of it neither."""
    for one in (token, token + b"." * 3, b"x" * (1 << 20)):
        try:
            assert logins.authenticate(attempt(one)) is None
        except NotMineError:
            continue


def told(caplog):
    """The lines of logins alone: a thread of another test may have something to say as well."""
    return [record for record in caplog.records if record.name == "hms.security"]


def test_a_key_that_is_taken_out_of_the_file_lets_nobody_in_any_more(keys, tmp_path, caplog):
    """A key that was stolen, without a boot and without another change; half a file changes
    nothing and is told."""
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(keys.set))
    one = JwtLogins(entry_of(), tmp_path, lambda: NOW)
    assert one.authenticate(attempt(keys.token("rsa"))) is not None

    file.write_text(json.dumps(keys.set)[:-40])
    assert one.authenticate(attempt(keys.token("rsa"))) is not None
    assert len(told(caplog)) == 1
    assert one.authenticate(attempt(keys.token("ec"))) is not None
    assert len(told(caplog)) == 1
    file.unlink()
    assert one.authenticate(attempt(keys.token("ec"))) is not None
    assert one.authenticate(attempt(keys.token("ec"))) is not None
    assert len(told(caplog)) == 2
    file.write_text(json.dumps({"keys": keys.set["keys"][1:]}))
    assert one.authenticate(attempt(keys.token("rsa"))) is None
    assert one.authenticate(attempt(keys.token("ec"))) is not None


def test_at_20_a_flood_of_unknown_keys_fetches_once_a_minute(keys, tmp_path, record_property):
    """From a server whose certificate holds; a new key is found then."""
    Authority(tmp_path)
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(given[0]).encode())

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "good.pem", tmp_path / "good.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    clock, given = [0.0], [keys.set]
    url = f"https://127.0.0.1:{server.server_port}/jwks"
    try:
        entry = entry_of(jwks_file="", jwks_url=url, ca_file="ca.pem")
        one = JwtLogins(entry, tmp_path, lambda: NOW, lambda: clock[0])
        assert one.authenticate(attempt(keys.token())) is not None
        for number in range(200):
            assert one.authenticate(attempt(keys.token(header={"kid": f"k{number}"}))) is None
        assert len(served) == 1
        clock[0] = 61.0
        for number in range(200):
            assert one.authenticate(attempt(keys.token(header={"kid": f"k{number}"}))) is None
        assert len(served) == 2
        identities = [one.authenticate(attempt(keys.token(name))) for name in ("ec", "rsa")]
        given[0] = {"keys": keys.set["keys"][1:]}
        one.refresh(identities[0])
        assert len(served) == 2
        clock[0] += one.refresh_s
        one.refresh(identities[0])
        assert [one.vouches_for(identity) for identity in identities] == [True, False]
        assert len(served) == 3
        given[0] = keys.set
        wrong = JwtLogins(
            REPLACE(entry, ca_file="other-ca.pem"), tmp_path, lambda: NOW, lambda: clock[0]
        )
        with pytest.raises(AwayError):
            wrong.authenticate(attempt(keys.token()))
        assert len(served) == 3
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    record_property("figures", {"test": "AT-20", "unknown_kids": 400, "fetches": len(served)})


# renewal, in memory: the clock is the test's


@pytest.fixture
def node(keys):
    held = document(billing=["produce queue:orders", "consume queue:orders"], view=[])
    users = {"root": held.user["root"], "local": held.user["billing"]}
    entry = entry_of(role_map={"mq-billing": "billing", "mq-view": "view"})
    held = REPLACE(held, user=users, authenticator={"sso": entry})
    made = GatedNode(held, authenticators={})
    one = JwtLogins(entry, keys.folder, lambda: made.now_ms / 1000)
    made.outside.replace({"sso": (one, "")})
    made.now_ms = NOW * 1000
    return made


def came(node, keys, peer="p", number=1, **claims):
    node.hello(peer, number, mechanisms=("TOKEN",))
    frames = node.auth(peer, "", keys.token(**claims), "TOKEN")
    ((envelope, data),) = frames
    assert envelope.kind is Kind.WELCOME, wire.decode_error(data)
    return wire.decode(data, wire.Welcome)


def later(node, ms):
    node.now_ms += ms
    node.broker.command(lambda fx, now_ms: node.gate.warn(now_ms, fx))
    node.step()


def renew(node, peer, token):
    node.workers.is_held = False
    return node.answer(node.send(peer, Kind.AUTH, wire.encode(wire.Auth("TOKEN", "", token))))


def test_at_21_a_token_is_told_to_end_and_renewed(node, keys, record_property):
    """On a live connection, by the same user only; what it may is looked at again."""
    welcome = came(node, keys)
    assert (welcome.user, list(welcome.roles)) == ("teller", ["billing"])
    node.ask("p", wire.OpenSession(1))
    node.ask("p", wire.OpenConsumer(1, 1, "queue", "orders", 1))
    later(node, 200_000)
    assert node.outlet.take("p") == []
    later(node, 80_000)
    ((_, data),) = node.outlet.take("p")
    assert wire.decode(data, wire.Event).what == "login_expires"
    later(node, 1000)
    assert node.outlet.take("p") == []

    other = keys.token(preferred_username="other", exp=NOW + 900).encode()
    expired = keys.token(exp=NOW).encode()
    for wrong in (other, expired, b"x", keys.token(aud="x", exp=NOW + 900).encode()):
        assert isinstance(renew(node, "p", wrong), hms.LoginRefused)
    said = renew(node, "p", keys.token(exp=NOW + 900).encode())
    assert said["expires_ms"] == (NOW + 930) * 1000
    assert node.registry.logins[welcome.connection].expires_ms == (NOW + 930) * 1000

    fewer = keys.token(exp=NOW + 900, realm_access={"roles": ["mq-view"]}).encode()
    renew(node, "p", fewer)
    events = [wire.decode(d, wire.Event).what for e, d in node.outlet.take("p")]
    assert events == ["consumer_closed"] or isinstance(
        node.ask("p", wire.OpenConsumer(2, 1, "queue", "orders", 1)), hms.NotAuthorized
    )
    record_property("figures", {"test": "AT-21", "wrong_renewals": 4, "refused": 4})


def test_a_token_that_is_resumed_has_its_roles_and_its_end(node, keys):
    """Without a look at the token again, and never beyond its end."""
    welcome = came(node, keys)
    ((envelope, data),) = node.hello("q", resume=welcome.resume)
    again = wire.decode(data, wire.Welcome)
    assert (again.user, list(again.roles)) == ("teller", ["billing"])
    node.now_ms += 331_000
    ((envelope, _),) = node.hello("r", resume=again.resume)
    assert envelope.kind is Kind.CHALLENGE


def test_a_key_that_is_taken_out_ends_the_logins_that_it_has_signed(tmp_path):
    """Within a look, on live connections and for resume tokens; those of other keys stay."""
    own = Keys(tmp_path)
    entry = entry_of()
    held = document(billing=["produce queue:orders"])
    held = REPLACE(held, user={"root": held.user["root"]}, authenticator={"sso": entry})
    node = GatedNode(held, authenticators={})
    node.outside.replace({"sso": (JwtLogins(entry, tmp_path, lambda: NOW), "")})
    node.now_ms = NOW * 1000
    stays = came(node, own, "p", 1, name="ec")
    goes = came(node, own, "q", 2, name="rsa", preferred_username="other")
    node.gate.refresh_outside(node.now_ms)
    assert {*node.registry.logins} == {stays.connection, goes.connection}

    (tmp_path / "jwks.json").write_text(json.dumps({"keys": own.set["keys"][1:]}))
    node.gate.refresh_outside(node.now_ms)

    assert {*node.registry.logins} == {stays.connection}
    ((envelope, _),) = node.hello("r", 2, resume=goes.resume)
    assert envelope.kind is Kind.CHALLENGE
    ((envelope, _),) = node.hello("s", 1, resume=stays.resume)
    assert envelope.kind is Kind.WELCOME


def test_a_name_of_the_security_file_is_not_for_a_token(node, keys):
    """An issuer elsewhere cannot make a local user."""
    node.hello("p", 1, mechanisms=("TOKEN",))
    token = keys.token(preferred_username="local")
    ((_, data),) = node.auth("p", "", token, "TOKEN")

    assert isinstance(wire.decode_error(data), hms.LoginRefused)


@pytest.mark.parametrize("name", ["a b", "", "x" * 64, "../x", "$node"])
def test_a_name_that_is_none_is_refused(node, keys, name):
    """The same grammar holds for who comes from elsewhere."""
    node.hello("p", 1, mechanisms=("TOKEN",))
    ((_, data),) = node.auth("p", "", keys.token(preferred_username=name), "TOKEN")

    assert isinstance(wire.decode_error(data), hms.LoginRefused)


def test_auth_on_a_live_connection_is_for_tokens(node, keys):
    """AT-08: no password takes another user's place."""
    came(node, keys)
    frames = node.send(
        "p", Kind.AUTH, wire.encode(wire.Auth("PASSWORD", "local", b"correct horse"))
    )

    assert isinstance(node.answer(frames), hms.ProtocolError)
    assert [one.user for one in node.registry.logins.values()] == ["teller"]


# plug-ins


class Fake:
    refresh_s = 10.0

    def __init__(self, answer):
        self.answer, self.hangs = answer, threading.Event()
        self.timeout_s = 0.2 if answer is _hang else 60.0

    def authenticate(self, given):
        return self.answer(self, given)

    refresh = authenticate


def _hang(fake, _):
    fake.hangs.wait(60)


def _raise(*_):
    raise RuntimeError("boom")


FAKES = {
    "raises": _raise,
    "hangs": _hang,
    "gives garbage": lambda *_: {"user": "root"},
    "gives a name that is none": lambda *_: Identity("a b", ("admin",)),
    "gives roles that are none": lambda *_: Identity("u", (1,)),
    "refuses": lambda *_: None,
    "gives a local user": lambda *_: Identity("local", ("admin",)),
    "gives no role": lambda *_: Identity("u", ()),
    "gives a role that there is not": lambda *_: Identity("u", ("nobody",)),
}


@pytest.mark.parametrize("name", FAKES)
def test_at_25_a_plug_in_that_fails_lets_nobody_in(node, name):
    """And the next one is served."""
    fake, good = Fake(FAKES[name]), Fake(lambda *_: Identity("u", ("billing",)))
    held = REPLACE(node.document.authenticator["sso"], kind="plug-in", plug_in="x")
    node.change(REPLACE(node.document, authenticator={"sso": held}))
    node.outside.replace({"sso": (fake, "")})
    node.hello("p", 5)
    ((envelope, data),) = node.auth("p", "somebody")
    assert isinstance(wire.decode_error(data), (hms.LoginRefused, hms.LoginBusy))
    fake.hangs.set()
    node.outside.replace({"sso": (good, "")})
    node.hello("q", 6)
    ((envelope, _),) = node.auth("q", "somebody")
    assert envelope.kind is Kind.WELCOME


def test_an_authenticator_without_an_answer_keeps_its_roles_for_a_while():
    """Three times refresh_s; then they end."""
    outside = OutsideLogins({"x": (Fake(_raise), "")})
    held = Identity("u", ("billing",))
    assert outside.due([("x", "u")], 0) == []
    assert outside.due([("x", "u")], 10_000) == [("x", "u")]
    assert outside.due([("x", "u")], 10_001) == []
    assert outside.refresh("x", held, 10_000) == held
    assert outside.refresh("x", held, 31_000).roles == ()


def test_a_prefix_keeps_the_names_of_a_directory_apart():
    """Its admin is corp.admin."""
    outside = OutsideLogins({"x": (Fake(lambda _, a: Identity(a.user, ("guest",))), "corp.")})
    found = outside.authenticate(LoginAttempt("PASSWORD", "corp.admin", b"x"))
    assert found.identity.user == "corp.admin"
    assert outside.authenticate(LoginAttempt("PASSWORD", "admin", b"x")).identity is None
    assert outside.refresh("x", found.identity, 1).user == "corp.admin"


# at a real node


@pytest.fixture(scope="module")
def real(keys, tmp_path_factory):
    """A node that takes tokens, and passwords of nobody."""
    place = tmp_path_factory.mktemp("node")
    (place / "jwks.json").write_bytes((keys.folder / "jwks.json").read_bytes())
    held = document(billing=["produce queue:orders"])
    users = {"root": held.user["root"]}
    held = REPLACE(held, user=users, authenticator={"sso": entry_of(leeway_s=0)})
    with secured_node(place, held) as running:
        yield running


def test_the_whole_way_with_a_token_that_is_renewed(keys, real):
    """Threads and asyncio; the event comes, and the application gives another one."""
    told = []

    def token(seconds=30, **claims):
        return keys.token(exp=int(time.time()) + seconds, **claims)

    given = {"token": token(), "event_listener": told.append}
    with hms.connect(real.address, **given) as connection:
        wait_until(lambda: [e.kind for e in told] == [EventKind.LOGIN_EXPIRES])
        connection.renew(token(600))
        with pytest.raises(hms.LoginRefused):
            connection.renew(token(600, preferred_username="other"))
        with connection.session() as session:
            session.producer(hms.Queue("orders")).send(b"x")

    async def main():
        async with hms.aio.connect(real.address, token=token()) as connection:
            await connection.renew(token(600))
            with pytest.raises(hms.LoginRefused):
                await connection.renew("x")

    asyncio.run(main())
    said = []

    def soon_over():
        with suppress(hms.LoginRefused):  # it was over when the node saw it
            return hms.connect(real.address, token=token(2), exception_listener=said.append)

    ended = wait_until(soon_over)
    wait_until(lambda: any(isinstance(one, hms.LoginExpired) for one in said))
    ended.close()


@pytest.mark.parametrize("end", ["another user's", "none", "the same"])
def test_a_function_renews_the_token_by_itself(keys, real, monkeypatch, end):
    """The event comes only when it gives none that is taken, with the reason."""
    told, given, resumes = [], [], []
    renewed = Link.renewed

    def noting(link, *answer):  # it may come before connect() has returned
        resumes.append(link.hello.resume)
        renewed(link, *answer)
        resumes.append(link.hello.resume)

    monkeypatch.setattr(Link, "renewed", noting)

    def of(seconds, **claims):
        return keys.token(exp=int(time.time()) + seconds, **claims)

    def token():
        if len(given) < 2:
            given.append(of(30 + len(given)))
        elif end == "another user's":
            given.append(of(40, preferred_username="other"))
        elif end == "none":
            raise OSError("no issuer")
        else:
            given.append(given[-1])
        return given[-1]

    with hms.connect(real.address, token=token, event_listener=told.append) as connection:
        wait_until(lambda: told)
        assert len({*resumes}) == len(resumes) == 2
        assert told[0].kind is EventKind.LOGIN_EXPIRES
        is_refused = isinstance(told[0].reason, hms.LoginRefused)
        assert is_refused is (end == "another user's")
        assert connection.is_connected
