"""The gate of a secured node: every way in, and everything else that a stranger may send."""

import itertools

import msgspec
import pytest

import hms
from hms.server.broker import Lost
from hms.server.logins.callers import Caller, caller_at
from hms.server.logins.passwords import is_weaker, verify
from hms.server.logins.security_document import SecuritySettings, TokenEntry
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.hello import hello_of
from tests.support.secured import PASSWORD, cheap_hash, document

REPLACE = msgspec.structs.replace


@pytest.fixture
def held():
    return document(billing=["produce queue:orders", "consume queue:orders"], other=[])


@pytest.fixture
def node(held):
    return GatedNode(held)


@pytest.fixture
def strict(held):
    """A node with the limits that are the default."""
    return GatedNode(REPLACE(held, security=SecuritySettings()))


def refusal(frames):
    ((envelope, data),) = frames
    assert envelope.kind is Kind.ERROR
    return wire.decode_error(data)


def test_a_user_is_welcomed_under_its_name_and_roles(node):
    """What it may do follows from its login, not from what its HELLO says."""
    welcome = node.login("p", "billing", user="root")

    assert welcome.is_secured
    assert (welcome.user, welcome.roles) == ("billing", ["billing"])


def test_nothing_that_is_secret_is_shown(node):
    """A repr ends in a log or a traceback."""
    welcome = node.login("p", "billing")

    assert repr(welcome.resume) not in repr(welcome)
    assert PASSWORD not in repr(wire.Auth("PASSWORD", "u", PASSWORD.encode()))


def test_a_client_of_the_version_before_is_told_that_a_login_is_needed(node):
    """It knows no CHALLENGE."""
    assert isinstance(refusal(node.hello("p", protocol=1)), hms.LoginRequired)


def test_a_client_that_brings_nothing_is_told_so(node):
    """Without a key, a known process or a password there is nothing to ask for."""
    assert isinstance(refusal(node.hello("p", mechanisms=())), hms.LoginRequired)


@pytest.mark.parametrize("kind", [k for k in Kind if k < Kind.WELCOME and k is not Kind.AUTH])
def test_any_other_frame_before_the_login_ends_it(node, kind):
    """And leaves nothing behind: the AUTH that follows finds nobody."""
    node.hello("p")
    node.send("p", kind, wire.encode(hello_of(1)) if kind is Kind.HELLO else b"")

    assert isinstance(refusal(node.auth("p", "billing")), hms.ProtocolError)
    assert not node.registry.numbers


def test_an_auth_that_nobody_asked_for_and_a_second_one_are_refused(node):
    """One attempt for each HELLO: the rate limits count those."""
    assert isinstance(refusal(node.auth("p", "billing")), hms.ProtocolError)
    node.workers.is_held = True
    node.hello("q")
    assert node.auth("q", "billing") == []
    assert isinstance(refusal(node.auth("q", "billing")), hms.ProtocolError)
    node.workers.run()
    assert not node.registry.numbers


@pytest.mark.parametrize(
    "payload", [b"", b"\x90" * 16_385, b"\x91" * 10_000, b"\xdd\xff\xff\xff\xff", b"\x93\xa1P"]
)
def test_an_auth_that_cannot_be_read_is_answered_and_nothing_more(node, payload):
    """It comes from somebody unknown: a typed refusal, and no memory of it."""
    node.hello("p")

    told = [refusal([one]) for one in node.send("p", Kind.AUTH, payload)]

    assert {type(one) for one in told} == {hms.ProtocolError}
    assert not node.registry.numbers


def test_who_has_gone_meanwhile_is_not_let_in(node):
    """The verdict finds nobody."""
    node.workers.is_held = True
    node.hello("p")
    node.auth("p", "billing")
    node.broker.handle("p", [Lost("gone")])
    node.workers.run()

    assert not node.registry.numbers


def test_a_throttled_attempt_is_refused_without_a_look_at_the_password(strict):
    """Argon2 runs no more often than is allowed, however many attempts come."""
    for number in range(1, 16):
        strict.hello(f"p{number}", number)
        assert isinstance(refusal(strict.auth(f"p{number}", "billing", "wrong")), hms.LoginRefused)

    assert strict.gate.verified == strict.document.security.failures_per_address
    strict.hello("late", 20)
    assert isinstance(refusal(strict.auth("late", "billing")), hms.LoginRefused)


def test_a_user_who_has_been_there_is_checked_before_strangers(node):
    """By the pair of user and address: neither a name alone nor an address says who comes."""
    node.login("p", "billing", 1)
    node.callers["elsewhere"] = Caller("t", "10.0.0.5")
    node.workers.known.clear()
    for number, (peer, user) in enumerate(
        [("q", "billing"), ("r", "other"), ("elsewhere", "billing")], 2
    ):
        node.hello(peer, number)
        node.auth(peer, user, "wrong")

    assert node.workers.known == [True, False, False]


def test_an_address_is_dropped_with_the_last_failure_that_it_has(strict):
    """Before its refusal is said, and at no look of the next second: whoever floods comes back with
    each refusal, and a handshake costs more than all that is done behind it."""
    strict.workers.is_held = True
    for number in range(1, strict.document.security.failures_per_address + 1):
        strict.callers[number] = Caller("t", "10.0.0.5")
        assert strict.dropped == []
        strict.hello(number, number)
        assert strict.auth(number, "nobody", mechanism="X") == []

    assert strict.dropped == [("10.0.0.5",)]


def test_other_limits_hold_with_the_policy_that_has_them(strict):
    """They held from the next boot on: who was locked out by a limit too low stayed out."""

    def limited(**limits):
        settings = msgspec.structs.replace(strict.document.security, **limits)
        version = strict.document.version + 1
        held = msgspec.structs.replace(strict.document, security=settings, version=version)
        strict.change(held)

    def failures(count):
        """How many of so many attempts were looked at."""
        before = strict.gate.verified
        for _ in range(count):
            number = next(numbers)
            strict.hello(number, number)
            strict.auth(number, "billing", "wrong")
        return strict.gate.verified - before

    numbers = itertools.count(1)
    limited(failures_per_address=3)
    assert failures(10) == 3
    limited(failures_per_address=5)
    assert failures(10) == 2
    limited(failures_per_address=1000)
    assert failures(30) == 20 - 5  # of the user
    limited(failures_per_user=1000, failures_per_node=22)
    assert failures(10) == 2
    limited(failures_per_address=2, failures_per_node=1000)
    assert failures(10) == 0
    strict.now_ms += 30_000  # half of a minute: a lower limit is over in a minute, too
    assert failures(10) == 1


def test_a_name_that_is_hammered_from_elsewhere_does_not_lock_its_user_out(strict):
    """Who came from an address before has a bucket of its own."""
    strict.login("known", "billing")
    for number in range(2, 40):
        strict.callers[number] = Caller("t", f"10.0.{number}.1")
        strict.hello(number, number)
        strict.auth(number, "billing", "wrong")

    strict.login("again", "billing", 50)


def test_when_too_many_attempts_wait_the_next_is_told_to_come_again(node):
    """Bounded, and never stuck."""
    node.workers.is_held, node.workers.room = True, 1
    for number in (1, 2):
        node.hello(number, number)
    node.auth(1, "billing")

    assert isinstance(refusal(node.auth(2, "billing")), hms.LoginBusy)


def test_an_attempt_that_cannot_be_checked_is_refused(node, monkeypatch):
    """No fault of a checker lets anybody in, or leaves anybody waiting."""

    def broken(*_):
        raise OSError("no memory")

    monkeypatch.setattr("hms.server.logins.login_gate.verify", broken)
    node.hello("p")

    assert isinstance(refusal(node.auth("p", "billing")), hms.LoginRefused)


# resume tokens


def test_a_resumed_login_needs_no_password(node):
    """A thousand clients that come back cost no verification."""
    token = node.login("p", "billing").resume
    node.broker.handle("p", [Lost("gone")])
    verified = node.gate.verified

    ((envelope, data),) = node.hello("q", resume=token)

    assert envelope.kind is Kind.WELCOME
    assert wire.decode(data, wire.Welcome).user == "billing"
    assert node.gate.verified == verified


def changed(token):
    return [token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] for at in range(len(token))]


def test_a_token_with_any_bit_changed_is_none(node):
    """Its signature covers all of it."""
    token = node.login("p", "billing").resume
    for peer, other in enumerate([*changed(token), b"", token[:31], token * 20]):
        ((envelope, _),) = node.hello(peer, resume=other)
        assert envelope.kind is Kind.CHALLENGE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node, _: setattr(node, "now_ms", node.now_ms + 3_600_000),
        lambda node, _: node.callers.update(q=Caller("ipc:///s", "", 1001, 1001)),
        lambda node, _: node.callers.update(q=Caller("other", "", 1000, 1000)),
        lambda node, held: node.change(_with(held, generation=2)),
        lambda node, held: node.change(_with(held, enabled=False)),
        lambda node, held: node.change(REPLACE(held, user={})),
    ],
    ids=["expired", "other process", "other listener", "logged out", "disabled", "deleted"],
)
def test_a_token_holds_for_its_client_its_way_in_and_its_time_only(node, held, spoil):
    """Known to somebody else it is nothing."""
    token = node.login("p", "billing").resume
    node.broker.handle("p", [Lost("gone")])
    spoil(node, held)

    ((envelope, _),) = node.hello("q", resume=token)

    assert envelope.kind is Kind.CHALLENGE


def _with(held, **changes):
    users = dict(held.user)
    users["billing"] = REPLACE(users["billing"], **changes)
    return REPLACE(held, user=users, version=held.version + 1)


def test_a_token_of_another_client_is_none(node):
    """It is bound to the uid that its owner's secret proves."""
    token = node.login("p", "billing", 1).resume

    ((envelope, _),) = node.hello("q", 2, resume=token)

    assert envelope.kind is Kind.CHALLENGE


# take-over


def test_another_user_does_not_take_a_connection_over(node):
    """Even with the client's own secret: one user a connection."""
    node.login("p", "billing", 1)
    node.hello("q", 1)

    assert isinstance(refusal(node.auth("q", "other")), hms.IdentityRefused)
    assert list(node.registry.numbers) == ["p"]


def test_equal_client_ids_of_two_users_never_meet(node):
    """The name of one must not keep the other out, nor tell that it is there."""
    node.login("p", "billing", 1, client_id="desk")
    node.login("q", "other", 2, client_id="desk")

    assert len(node.registry.numbers) == 2


# keys, processes, tokens


def test_a_process_of_a_known_user_is_let_in_at_once(held):
    """The kernel says whose it is."""
    users = {**held.user, "ops": REPLACE(held.user["root"], os_users=("operator",))}
    node = GatedNode(REPLACE(held, user=users), os_users={1000: "operator"})

    ((envelope, data),) = node.hello("p", mechanisms=())

    assert envelope.kind is Kind.WELCOME
    assert wire.decode(data, wire.Welcome).user == "ops"


def test_a_process_without_a_user_here_is_nobody(held):
    """65534 is what the kernel shows of every user of another namespace."""
    node = GatedNode(held, os_users={65_534: "root"})
    node.callers["p"] = caller_at("ipc:///s", "localhost:65534:65534:7", "")

    assert isinstance(refusal(node.hello("p", mechanisms=())), hms.LoginRequired)


def test_a_password_that_is_given_is_checked_also_where_the_process_would_do(held):
    """A wrong one must not be right by accident."""
    users = {**held.user, "billing": REPLACE(held.user["billing"], os_users=("clerk",))}
    node = GatedNode(REPLACE(held, user=users), os_users={1000: "clerk"})
    node.hello("p")

    assert isinstance(refusal(node.auth("p", "billing", "wrong")), hms.LoginRefused)


@pytest.mark.parametrize(
    ("secret", "expires_ms", "is_let_in"),
    [(b"token", 2_000_000, True), (b"tokem", 2_000_000, False), (b"token", 999_999, False)],
)
def test_an_api_token_stands_for_its_user_until_it_expires(held, secret, expires_ms, is_let_in):
    """Only its digest is kept."""
    from datetime import UTC, datetime
    from hashlib import sha256

    ends = datetime.fromtimestamp(expires_ms / 1000, UTC)
    entry = TokenEntry(user="billing", sha256=sha256(b"token").hexdigest(), expires_at=ends)
    node = GatedNode(REPLACE(held, token={"ci": entry}))
    node.hello("p", mechanisms=("TOKEN",))

    ((envelope, _),) = node.auth("p", "", secret.decode(), "TOKEN")

    assert (envelope.kind is Kind.WELCOME) is is_let_in


class Keeper:
    """A keeper of the policy that takes hashes."""

    def __init__(self, *, takes=True):
        self.takes, self.renewed = takes, []

    def may_renew(self, _user):
        return self.takes

    def renew(self, *said):
        self.renewed.append(said)


def test_a_hash_that_costs_too_little_is_made_anew_behind_the_login(held):
    """§5.2: at a successful login alone, and when no other login waits."""
    keeper = Keeper()
    wanted = REPLACE(held.security, password_passes=2)
    node = GatedNode(REPLACE(held, security=wanted), keeper=keeper)
    node.hello("x")
    node.auth("x", "billing", "wrong")
    assert keeper.renewed == []
    node.login("p", "billing")

    ((user, stored, fresh),) = keeper.renewed

    assert (user, stored) == ("billing", cheap_hash())
    assert verify(fresh, PASSWORD.encode())
    assert not is_weaker(fresh, 2, 8 << 10)
    assert is_weaker(stored, 2, 8 << 10)


@pytest.mark.parametrize(("passes", "takes"), [(1, True), (2, False)])
def test_a_hash_stays_that_costs_enough_or_would_not_be_kept(held, passes, takes):
    """A tenth of a second is not spent for nothing."""
    keeper = Keeper(takes=takes)
    wanted = REPLACE(held.security, password_passes=passes)
    node = GatedNode(REPLACE(held, security=wanted), keeper=keeper)

    node.login("p", "billing")

    assert keeper.renewed == []


@pytest.mark.parametrize(
    ("offered", "mechanism", "is_let_in"),
    [
        (("KEY", "PASSWORD", "TOKEN"), "PASSWORD", True),
        (("PASSWORD",), "PASSWORD", True),
        (("KEY", "TOKEN"), "PASSWORD", False),
        (("KEY", "PASSWORD"), "TOKEN", False),
        (("KEY",), "KEY", True),
        (("PASSWORD", "TOKEN"), "KEY", False),
    ],
)
def test_a_listener_lets_in_by_what_it_offers(held, offered, mechanism, is_let_in):
    """§4.1 mechanisms; also who says at AUTH what nobody has offered."""
    from datetime import UTC, datetime
    from hashlib import sha256

    at = Caller("clients", "10.0.0.1", key="k" * 40)
    ends = datetime.fromtimestamp(2_000_000 / 1000, UTC)
    token = TokenEntry(user="billing", sha256=sha256(b"token").hexdigest(), expires_at=ends)
    users = {**held.user, "billing": REPLACE(held.user["billing"], keys=(at.key,))}
    node = GatedNode(REPLACE(held, user=users, token={"t": token}), offered=lambda _: offered)
    node.callers["p"] = at
    wanted = () if mechanism == "KEY" else ("PASSWORD", "TOKEN")
    ((envelope, data),) = node.hello("p", mechanisms=wanted)
    if mechanism != "KEY" and envelope.kind is Kind.CHALLENGE:
        assert set(wire.decode(data, wire.Challenge).mechanisms) <= {*offered, "DOMAIN"}
        word = "token" if mechanism == "TOKEN" else PASSWORD
        ((envelope, data),) = node.auth("p", "billing", word, mechanism)

    assert (envelope.kind is Kind.WELCOME) is is_let_in
    if not is_let_in:
        assert isinstance(wire.decode_error(data), hms.LoginRefused | hms.LoginRequired)


def test_a_resume_token_of_a_way_that_is_not_offered_any_more_lets_nobody_in(held):
    """The listener was told to take keys alone since."""
    offered = ["PASSWORD"]
    node = GatedNode(held, offered=lambda _: tuple(offered))
    token = node.login("p", "billing").resume
    offered[:] = ["KEY"]

    ((envelope, _),) = node.hello("p2", resume=token)

    assert envelope.kind is not Kind.WELCOME


def test_a_user_is_let_in_from_its_addresses_only(held):
    """Networks in CIDR form; a local socket has no address."""
    node = GatedNode(_with(held, addresses=("10.1.0.0/16", "fd00::/8")))
    said = {}
    for number, address in enumerate(("10.1.2.3", "10.2.0.1", "fd00::1", "fe80::1", ""), 1):
        node.callers[number] = Caller("t", address, key="k")
        node.hello(number, number)
        ((envelope, _),) = node.auth(number, "billing")
        said[address] = envelope.kind is Kind.WELCOME

    assert said == {
        "10.1.2.3": True,
        "10.2.0.1": False,
        "fd00::1": True,
        "fe80::1": False,
        "": False,
    }


@pytest.mark.parametrize(
    ("stored", "given", "is_let_in"), [("d", "d", True), ("d", "e", False), ("", "d", False)]
)
def test_the_password_of_the_domain_is_checked_where_it_is_given(held, stored, given, is_let_in):
    """Where none is set one that is given is refused, and not ignored."""
    node = GatedNode(REPLACE(held, domain_password=cheap_hash(stored) if stored else ""))
    node.hello("p")

    ((envelope, _),) = node.auth("p", "billing", domain=given.encode())

    assert (envelope.kind is Kind.WELCOME) is is_let_in


def test_a_user_of_two_factors_needs_both_and_of_one_user(held):
    """Whoever has stolen the password has no key, and the other way round."""
    users = {
        "billing": REPLACE(held.user["billing"], keys=("K" * 40,), two_factors=True),
        "other": REPLACE(held.user["other"], keys=("L" * 40,)),
    }
    node = GatedNode(REPLACE(held, user=users))
    ways = {"own": "K" * 40, "of other": "L" * 40, "network": "N" * 40}
    node.callers = {peer: Caller("t", "10.0.0.1", key=key) for peer, key in ways.items()}

    assert isinstance(refusal(node.hello("own", 1, mechanisms=())), hms.LoginRequired)
    assert node.login("own", "billing", 2).user == "billing"
    for number, peer in enumerate(("of other", "network", "local"), 3):
        node.hello(peer, number)
        assert isinstance(refusal(node.auth(peer, "billing")), hms.LoginRefused)
    node.hello("domain", 9, mechanisms=("DOMAIN",))
    node.callers["domain"] = Caller("t", "10.0.0.1", key="K" * 40)
    assert isinstance(refusal(node.auth("domain", "billing", mechanism="DOMAIN")), hms.LoginRefused)


def test_two_factors_hold_for_what_is_open_and_for_what_comes_back(held):
    """A connection that was let in by a key alone is closed; the token of both is good with the
    key that it was given for."""
    user = REPLACE(held.user["billing"], keys=("K" * 40,))
    node = GatedNode(REPLACE(held, user={**held.user, "billing": user}))
    node.callers = {one: Caller("t", "10.0.0.1", key="K" * 40) for one in ("alone", "both", "back")}
    node.hello("alone", 1, mechanisms=())
    token = node.login("both", "billing", 2).resume
    strict = REPLACE(user, two_factors=True, generation=user.generation)

    node.change(REPLACE(node.document, user={**held.user, "billing": strict}))

    assert {*node.registry.numbers} == {"both"}
    ((envelope, _),) = node.hello("back", 2, resume=token)
    assert envelope.kind is Kind.WELCOME


def test_logins_are_counted_by_how_they_were_proved_and_denials_by_action(node):
    """A name that a client makes up for its mechanism is no series of its own."""
    node.login("p", "billing")
    for number, mechanism in enumerate(("PASSWORD", "MADE-UP-1", "MADE-UP-2"), 2):
        node.hello(f"q{number}", number)
        node.auth(f"q{number}", "billing", "wrong", mechanism)
    node.hello("r", 9, mechanisms=())
    node.send("p", Kind.REQUEST, wire.encode(wire.OpenProducer(9, 1, "queue", "ledger")))
    figures = node.gate.figures()

    assert sorted(figures["logins"]) == [
        ["let_in", "PASSWORD", 1],
        ["refused", "NONE", 1],
        ["refused", "OTHER", 2],
        ["refused", "PASSWORD", 1],
    ]
    assert figures["denied_by"] == {"produce": 1}
