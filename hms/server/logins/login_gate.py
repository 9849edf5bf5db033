"""The gate of a secured node: HELLO, CHALLENGE, AUTH, and at last WELCOME or a refusal.

State of a peer:  (none) --HELLO--> let in, by its key, its process or its resume token
                                --> CHALLENGED --AUTH--> CHECKING --verdict--> let in, or forgotten
Anything else that comes before WELCOME ends the connection. Passwords are checked by workers of
their own, outside lanes and lock. Each refusal reads the same, and is sent at a multiple of
fail_delay_ms after its AUTH came; the reason stands in the node's log and in its audit.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from hms.engine.effects import Effects, Refusal, Reply
from hms.engine.security import Unacceptable, read_permission
from hms.engine.topic.patterns import Pattern
from hms.errors.catalogue import (
    AddressNotLocked,
    LoginBusy,
    LoginRefused,
    LoginRequired,
    NotAuthorized,
    ProtocolError,
)
from hms.errors.tree import HmsError
from hms.records.audit import NO_DETAILS, AuditDetails
from hms.server.connection_registry import ConnectionRegistry
from hms.server.doors.door import Words
from hms.server.effect_release import ToConnection, ToPeer
from hms.server.entrance import Change, NoNews
from hms.server.logins.auditing import Auditing
from hms.server.logins.authenticators import Identity, LoginAttempt
from hms.server.logins.authorization import Authorization, producer_needs
from hms.server.logins.callers import Caller, network_text, source_of
from hms.server.logins.denial_pace import DenialPace
from hms.server.logins.identities import NODE_USER, Identities, Login
from hms.server.logins.login_limits import LoginLimits
from hms.server.logins.login_workers import LoginWorkers
from hms.server.logins.outside_logins import Found, OutsideLogins
from hms.server.logins.passwords import hash_password, is_weaker, verify
from hms.server.logins.policy_keeper import NO_KEEPER, PolicyKeeper
from hms.server.logins.policy_pages import PolicyPages, shown_login
from hms.server.logins.resume_tokens import ResumeTokens
from hms.server.node_operations import Ended, Later
from hms.server.rare_lines import RareLines
from hms.server.refused_connections import RefusedConnections, why_of
from hms.wire import structures as wire
from hms.wire.client_identity import check_identity
from hms.wire.commands import Action, Order
from hms.wire.frames import Kind
from hms.wire.operations import ChangeGrant, ListNames, NameOne, Operation
from hms.wire.packed_messages import FLAG_RETAIN

__all__ = ["LISTENERS_OFFER", "LoginGate", "check_grant"]

log = logging.getLogger("hms.security")

EVERY_ROLE = read_permission("secure role:*")
MECHANISMS = ("PASSWORD", "TOKEN", "DOMAIN")
NO_MECHANISM, OTHER = "NONE", "OTHER"
"""In metrics: who brought no proof, and any other name that a client gives; those have no bound."""
COUNTED = frozenset({*MECHANISMS, "KEY", "PEER", "RESUME", NO_MECHANISM})
LISTENERS_OFFER = ("KEY", "PASSWORD", "TOKEN")
TOO_MANY = "too many failed logins"
RETRY_AFTER_S = 1
DENIALS_WAIT_S = 3
"""Of a user whose connections are refused without end."""
NONCE_BYTES = 32
WHY_MAX = 200
WARNING_MS = 60_000
"""So long before a login ends its client is told."""


class _Proof(msgspec.Struct, frozen=True):
    """name: of the user that is proved, "" for none; why: not; expires_ms: when it ends; narrowed:
    its only roles; outside: of a user that is not in the security file."""

    name: str = ""
    why: str = ""
    expires_ms: int = 0
    narrowed: tuple[str, ...] | None = None
    outside: Found | None = None
    weak: str = ""
    """The hash of its password, when that costs too little."""


class _Waiting(msgspec.Struct):
    """A peer that has been asked who it is; is_checking: it has answered; workers: who checks."""

    hello: wire.Hello
    correlation: int
    caller: Caller
    workers: LoginWorkers
    is_checking: bool = False


class LoginGate:
    """See the module. caller_of: what the transport proves of a peer; change: applies something
    under the engine's lock; dummy_hash: what the passwords of unknown users are compared with."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        change: Change,
        identities: Identities,
        authorization: Authorization,
        workers: LoginWorkers,
        tokens: ResumeTokens,
        caller_of: Callable[[Hashable], Caller | None],
        dummy_hash: str,
        auditing: Auditing,
        renewed: Callable[[int, Login | None, int, Effects], None],
        random: Callable[[int], bytes] = os.urandom,
        outside: OutsideLogins | None = None,
        keeper: PolicyKeeper = NO_KEEPER,
        offered: Callable[[str], Sequence[str]] = lambda _listener: LISTENERS_OFFER,
        refused: RefusedConnections | None = None,
        drop: Callable[[tuple[str, ...]], None] = lambda _sources: None,
    ) -> None:
        """renewed: told of a connection that has proved anew who it is; offered: the ways to log in
        at a listener; refused: what did not get so far; drop: told whose new connections are
        dropped from now on."""
        self._strangers = refused or RefusedConnections()
        self._registry = registry
        self._change = change
        self.identities = identities
        self._authorization = authorization
        self.counts = authorization.counts
        self.permit = authorization.permit
        self.shown = authorization.shown
        self._workers = workers
        self._tokens = tokens
        self._caller_of = caller_of
        self._dummy_hash = dummy_hash
        self._auditing = auditing
        self._random = random
        self._keeper = keeper
        self._offered = offered
        self._drop = drop
        self._pages = PolicyPages(identities.document, identities.policy)
        self.outside = OutsideLogins({}) if outside is None else outside
        self._renewed = renewed
        self._renewing: set[int] = set()
        self._strengthening: set[str] = set()
        """Users of whose passwords another hash is made."""
        settings = identities.document.security
        self._limits = LoginLimits(
            settings.failures_per_address, settings.failures_per_user, settings.failures_per_node
        )
        self._waiting: dict[Hashable, _Waiting] = {}
        self._refused_schedules = RareLines(log.warning)
        self._refusals = RareLines(log.warning)
        self._throttled = RareLines(log.warning)  # a flood of these hides no password that is wrong
        self._told_keys: dict[int, str] = {}
        """Which next key of its listener a connection was told."""
        self._warned: set[int] = set()
        self._pace = DenialPace()
        self.refused = self.denials = 0
        self._came: Counter[tuple[str, str]] = Counter()
        """Logins by result and mechanism."""
        self._denied: Counter[str] = Counter()
        """By action."""
        self.locked: tuple[str, ...] = ()
        """Addresses that have failed too often: what opens a connection from there is dropped."""
        self.has_locks = False
        """Whether `locked` is to be looked at; from any thread."""
        self.verified = 0
        """Passwords that were compared with a hash."""

    # from peers, under the engine's lock

    def hello_some(self, _peer: Hashable, _hello: wire.Hello, _now_ms: int, _fx: Effects) -> bool:
        """Nothing is done for a peer before its login is known."""
        return False

    def hello(
        self, peer: Hashable, correlation: int, hello: wire.Hello, now_ms: int, fx: Effects
    ) -> None:
        """Let in who has proved who it is; ask the others."""
        caller = self._caller_of(peer)
        if caller is None:
            return  # it is gone
        if peer in self._waiting:
            self.stranger(peer, now_ms, fx, "a second HELLO", correlation)
            return
        if hello.secret:
            try:
                check_identity(hello.uid, hello.secret)
            except HmsError as error:
                self._audit_refusal(hello.user, caller, error, "its uid is not its own", now_ms, fx)
                raise
        login, why, name = self._known(hello, caller, now_ms)
        offered = tuple(one for one in MECHANISMS if self._is_offered(one, caller))
        if login is not None:
            is_resumed = bool(hello.resume) and login.user != NODE_USER
            by = "RESUME" if is_resumed else login.mechanism
            self._let_in(peer, correlation, hello, login, now_ms, fx, by)
        elif hello.protocol < wire.PROTOCOL or not set(offered).intersection(hello.mechanisms):
            taken = ", ".join(one for one in offered if one != "DOMAIN") or "KEY"
            said = LoginRequired(address=caller.listener, mechanisms=taken)
            self._log_refusal(name, caller, why, NO_MECHANISM)
            self._audit_refusal(name, caller, said, why, now_ms, fx)
            self._end(peer, correlation, said)
        else:
            self._waiting[peer] = _Waiting(hello, correlation, caller, self._workers)
            me, nonce = self._registry.identity, self._random(NONCE_BYTES)
            asked = wire.Challenge(offered, me.node, is_secured=True, nonce=nonce, epoch=me.epoch)
            fx.out.append(ToPeer(peer, Words(Kind.CHALLENGE, asked, correlation)))

    def _known(
        self, hello: wire.Hello, caller: Caller, now_ms: int
    ) -> tuple[Login | None, str, str]:
        """Who needs not be asked: the node's own servers, resumed logins, keys and processes. For
        others, why they are none of these, and which user it is about."""
        if hello.secret and self._registry.is_own(hello.client_name, hello.uid):
            rights = self.identities.policy.rights_of(("admin",))
            return Login(NODE_USER, "NODE", ("admin",), rights, caller), "", NODE_USER
        if hello.resume and hello.secret:
            login = self._resumed(hello, caller, now_ms)
            return login, "its resume token does not hold", hello.user
        if hello.mechanisms:  # it has brought a proof of its own, which is then looked at
            return None, "none of its logins is offered at this listener", hello.user
        return self._carried(hello.user, caller, now_ms)

    def _carried(self, user: str, caller: Caller, now_ms: int) -> tuple[Login | None, str, str]:
        """The same, of who brings nothing but its key or its process. user: that it says it is."""
        mechanism, name = self.identities.of_transport(caller)
        by = "key" if caller.key else "process"
        if not name:
            return None, f"it brought no login, and its {by} is no user's", user
        if user and user != name:
            return None, f"its {by} is user {name}'s", user
        if not self._is_offered(mechanism, caller):
            return None, f"mechanism {mechanism} is not offered at this listener", name
        return *self.identities.login(name, mechanism, caller, now_ms), name

    def _is_offered(self, mechanism: str, caller: Caller) -> bool:
        """Whether a listener lets somebody in so. The password of the domain comes with a key, and
        processes are at local sockets alone."""
        wanted = "KEY" if mechanism == "DOMAIN" and caller.key else mechanism
        return wanted in ("PEER", "DOMAIN") or wanted in self._offered(caller.listener)

    def _resumed(self, hello: wire.Hello, caller: Caller, now_ms: int) -> Login | None:
        said = self._tokens.check(hello.resume, hello.uid, caller, now_ms)
        if said is not None and not self._is_offered(said.mechanism, caller):
            return None
        if said is not None and said.authenticator:
            found = Identity(said.user, said.roles, said.login_ends_ms, said.key)
            if not self.outside.vouches_for(said.authenticator, found):
                return None
            way = said.authenticator, said.mechanism, caller, now_ms
            return self.identities.outside_login(found, *way)[0]
        user = None if said is None else self.identities.user(said.user)
        if said is None or user is None or user.generation != said.generation:
            return None
        login, _ = self.identities.login(
            said.user, said.mechanism, caller, now_ms, said.narrowed, said.expires_ms
        )
        return login

    def auth(
        self, peer: Hashable, correlation: int, auth: wire.Auth, now_ms: int, fx: Effects
    ) -> None:
        """Have it checked by a worker; the answer goes to the HELLO."""
        waiting = self._waiting.get(peer)
        if waiting is None or waiting.is_checking:
            self.stranger(peer, now_ms, fx, "an AUTH that nobody asked for", correlation)
            return
        waiting.is_checking = True
        if self._is_outside(auth):
            waiting.workers = self.outside.workers
        if not self._limits.take(auth.user, waiting.caller.source, now_ms):
            self._refuse_later(peer, auth, TOO_MANY, now_ms)
        elif not self._is_offered(auth.mechanism, waiting.caller):
            why = f"mechanism {auth.mechanism[:63]!r} is not offered at this listener"
            self._refuse_later(peer, auth, why, now_ms)
        elif not waiting.workers.submit(
            lambda: self._check(peer, waiting, auth),
            is_known=self._limits.is_known(auth.user, waiting.caller.source, now_ms),
        ):
            busy = LoginBusy(address=waiting.caller.listener, retry_after_s=RETRY_AFTER_S)
            why = "too many logins wait"
            self._log_refusal(auth.user, waiting.caller, why, auth.mechanism)
            self._audit_refusal(auth.user, waiting.caller, busy, why, now_ms, fx)
            self._end(peer, waiting.correlation, busy)

    def _is_outside(self, auth: wire.Auth) -> bool:
        """Whether an authenticator is to be asked: of names that the file does not have."""
        if not self.outside:
            return False
        if auth.mechanism == "TOKEN":
            return self.identities.token(auth.response) is None
        return auth.mechanism == "PASSWORD" and self.identities.user(auth.user) is None

    def renew(self, number: int, correlation: int, auth: wire.Auth, now_ms: int) -> None:
        """AUTH of a connection that is open: the same user proves anew who it is, and what it may
        is looked at again. LoginRefused leaves it as it was."""
        login = self._authorization.logins[number]
        if auth.mechanism != "TOKEN" or number in self._renewing:
            raise ProtocolError(detail="a connection renews its token, one at a time")
        is_offered = self._is_offered(auth.mechanism, login.caller)
        if not (is_offered and self._limits.take(login.user, login.caller.source, now_ms)):
            raise LoginRefused(address=login.caller.listener)
        workers = self.outside.workers if self._is_outside(auth) else self._workers

        def check() -> None:
            proof = self._checked(auth, login.caller)
            self._change(lambda fx, now_ms: done(proof, fx, now_ms))

        def done(proof: _Proof, fx: Effects, now_ms: int) -> None:
            self._renewing.discard(number)
            if self._authorization.logins.get(number) is not login:
                return
            fresh, why = self._login_of(proof, auth.mechanism, login.caller, now_ms)
            if fresh is None or fresh.user != login.user:
                why = why or "it is another user's token"
                self._log_refusal(login.user, login.caller, why, auth.mechanism)
                said, whose = LoginRefused(address=login.caller.listener), self._whose(number)
                self._audit_refusal(login.user, login.caller, said, why, now_ms, fx, whose)
                fx.out.append(Refusal(number, correlation, said))
                return
            self._limits.succeeded(login.user, login.caller.source, now_ms)
            self._warned.discard(number)
            self._renewed(number, fresh, now_ms, fx)
            uid = self._registry.uid_of(number)
            token, ends_ms = self._token(fresh, uid, now_ms)
            value = {"expires_ms": fresh.expires_ms, "resume": token, "resume_ms": ends_ms}
            fx.out.append(Reply(number, correlation, value))

        self._renewing.add(number)
        if not workers.submit(check, is_known=True):
            self._renewing.discard(number)
            raise LoginBusy(address=login.caller.listener, retry_after_s=RETRY_AFTER_S)

    def warn(self, now_ms: int, fx: Effects) -> None:
        """Tell those whose login ends soon, once: a token can be renewed until then."""
        for number, login in self._authorization.logins.items():
            left_ms = login.expires_ms - now_ms
            if login.expires_ms and left_ms <= WARNING_MS and number not in self._warned:
                self._warned.add(number)
                event = wire.Event("login_expires", error_fields={"left_ms": max(0, left_ms)})
                fx.out.append(ToConnection(number, Words(Kind.EVENT, event)))
        self._warned &= self._authorization.logins.keys()

    def look_at_locks(self, now_ms: int) -> None:
        """Find which addresses are locked now, and have the connections that they open dropped."""
        self.locked = self._limits.locked(now_ms)
        self.has_locks = bool(self.locked)
        self._drop(self.locked)

    def locks(self, now_ms: int) -> list[dict[str, Any]]:
        """For `hms security locked`."""
        return [
            {
                "address": network_text(source),
                "since_ms": lock.since_ms,
                "until_ms": lock.until_ms,
                "attempts": lock.attempts,
            }
            for source, lock in self._limits.locks(now_ms).items()
        ]

    def unlock(self, address: str, now_ms: int) -> None:
        """Let in who comes from there again, within a second."""
        if not self._limits.release(source_of(address), now_ms):
            raise AddressNotLocked(address=address)
        self.look_at_locks(now_ms)

    def obey(self, identities: Identities, dummy_hash: str | None = None) -> None:
        """What another version of the document says holds for logins from now on."""
        settings = identities.document.security
        self.identities = identities
        self._dummy_hash = self._dummy_hash if dummy_hash is None else dummy_hash
        self._tokens.life_s = settings.resume_s
        self._limits.change(
            settings.failures_per_address, settings.failures_per_user, settings.failures_per_node
        )

    def sign_with(self, keys: Sequence[bytes]) -> None:
        """Other keys of resume tokens, the newest first."""
        self._tokens.sign_with(keys)

    def show_policy(self) -> Later:
        """For `hms security diff`."""
        return self._keeper.show()

    def reload(self) -> Later:
        """For `hms security reload`."""
        return self._keeper.reload()

    def policy(self, number: int, verb: str, asked: Operation) -> Any:
        """What an operator asks and orders of users, roles and the audit. A page is read here; what
        takes longer, or changes the file, is the keeper's."""
        if verb == "audit.head":
            last, head = self._auditing.head()
            return {"number": last, "hash": head}
        if verb == "login.show":
            return shown_login(self._authorization.logins[number])
        document = self.identities.document
        if self._pages.document is not document:
            self._pages = PolicyPages(document, self.identities.policy)
        if isinstance(asked, ListNames):
            return self._pages.users(asked) if verb == "user.list" else self._pages.roles(asked)
        if isinstance(asked, NameOne) and verb == "role.show":
            return self._pages.role(asked.name)
        logins = self._authorization.logins
        if isinstance(asked, NameOne) and verb == "user.show":
            open_now = sum(one.user == asked.name for one in logins.values())
            return {**self._pages.user(asked.name), "connections": open_now}
        by = logins[number].user
        if isinstance(asked, ChangeGrant) and verb == "permission.grant":
            check_grant(logins[number], asked.permission)
        return self._keeper.keep(verb, asked, by, self._auditing.next_number())

    def verify_audits(self, wait_s: int) -> Later:
        """For `hms audit verify --cluster`."""
        return self._keeper.verify_audits(wait_s)

    def is_warning_due(self, now_ms: int) -> bool:
        """Whether somebody is to be told; from any thread."""
        return any(
            login.expires_ms - now_ms <= WARNING_MS
            for number, login in self._authorization.ending()
            if number not in self._warned
        )

    def announce(self, listener: str, key: str, fx: Effects) -> None:
        """Tell who is connected there, and has not been told, which key it will show next."""
        for number in self._untold(listener, key):
            event = wire.Event("server_key", error_fields={"key": key})
            fx.out.append(ToConnection(number, Words(Kind.EVENT, event)))
            self._told_keys[number] = key
        logins = self._authorization.logins
        self._told_keys = {n: k for n, k in self._told_keys.items() if n in logins}

    def is_untold(self, listener: str, key: str) -> bool:
        """Whether somebody is to be told; from any thread."""
        return bool(self._untold(listener, key))

    def _untold(self, listener: str, key: str) -> list[int]:
        known = list(self._authorization.logins.items())
        told = self._told_keys
        return [n for n, one in known if one.caller.listener == listener and told.get(n) != key]

    def refresh_outside(self, now_ms: int) -> None:
        """Have the users of authenticators looked at again whose time has come, and end the logins
        whose proof is none any more; from any thread."""
        self._end_disowned()
        known = {
            (login.authenticator, login.user): login.identity
            for login in list(self._authorization.logins.values())
            if login.identity is not None
        }
        for key in self.outside.due(list(known), now_ms):
            identity = known[key]
            assert identity is not None
            self.outside.workers.submit(lambda k=key, i=identity: self._refresh(k, i, now_ms))  # type: ignore[misc]

    def _end_disowned(self) -> None:
        gone = [
            (number, login)
            for number, login in list(self._authorization.logins.items())
            if login.identity is not None
            and not self.outside.vouches_for(login.authenticator, login.identity)
        ]
        if not gone:
            return

        def change(fx: Effects, now_ms: int) -> None:
            for number, login in gone:
                if self._authorization.logins.get(number) is login:
                    said = "user %s: its token's key is none of authenticator %s any more"
                    log.info(said, login.user, login.authenticator)
                    self._renewed(number, None, now_ms, fx)

        self._change(change)

    def _refresh(self, key: tuple[str, str], identity: Identity, asked_ms: int) -> None:
        name, user = key
        found = self.outside.refresh(name, identity, asked_ms)
        if found == identity:
            return
        log.info("authenticator %s: user %s has other roles now", name, user)

        def change(fx: Effects, now_ms: int) -> None:
            self.identities.forget_outside(user, () if found is None else found.roles)
            for number, login in list(self._authorization.logins.items()):
                if (login.authenticator, login.user) == key:
                    fresh = None
                    if found is not None:
                        held = msgspec.structs.replace(found, expires_ms=login.expires_ms)
                        way = name, login.mechanism, login.caller, now_ms
                        fresh = self.identities.outside_login(held, *way)[0]
                    self._renewed(number, fresh, now_ms, fx)

        self._change(change)

    def ordered(
        self,
        number: int,
        order: Order,
        error: int,
        now_ms: int,
        fx: Effects,
        what: AuditDetails = NO_DETAILS,
    ) -> None:
        """A command of an operator was applied, or failed."""
        login, details = self._authorization.logins.get(number), self._whose(number, what)
        self._auditing.ordered(login, order, error, now_ms, fx, details)

    def ended(self, number: int, order: Order, audit_number: int) -> Ended:
        """Who ordered it may be gone by then."""
        login, who = self._authorization.logins.get(number), self._whose(number)

        def ended(error: int, now_ms: int, fx: Effects, affected: int | None = None, /) -> None:
            details = msgspec.structs.replace(who, affected=affected)
            self._auditing.ended(login, order, audit_number, error, now_ms, fx, details)

        return ended

    def _whose(self, number: int, what: AuditDetails = NO_DETAILS) -> AuditDetails:
        """With the connection that an order came over."""
        client_id = self._registry.client_id_of(number)
        return msgspec.structs.replace(what, connection=number, client_id=client_id)

    def ordered_elsewhere(
        self, who: tuple[str, str], order: Order, error: int, now_ms: int, fx: Effects
    ) -> None:
        """The same, of who has no connection here."""
        self._auditing.ordered_by(who, order, error, now_ms, fx)

    def audit_number(self, order: Order) -> int:
        """Which record of the audit a command will leave, 0 for none."""
        return self._auditing.number_of(order)

    def heed(self, no_news: NoNews) -> None:
        """Who ships what is new logs in for it, which is nothing new."""
        self._auditing.no_news = no_news

    def denied(self, number: int | None, error: HmsError, now_ms: int, fx: Effects) -> int:
        """A command was not permitted; how long the connection waits for it."""
        login = None if number is None else self._authorization.logins.get(number)
        self.denials += 1
        self._denied[str(error.fields.get("action", ""))] += 1
        if login is None or number is None:
            return 0
        said, number_of = error.fields, error.number or 0
        self._auditing.refused(
            login.user,
            f"{login.caller.source} {login.authority}",
            str(said.get("action", "")),
            str(said.get("resource", "")),
            number_of,
            now_ms,
            fx,
            self._whose(number),
        )
        return self._pace.denied(login.user, now_ms)

    def stranger(
        self,
        peer: Hashable,
        now_ms: int,
        fx: Effects,
        why: str = "a frame before the login",
        correlation: int = 0,
    ) -> None:
        """A peer that sends anything else before WELCOME is cut; once: it has no state behind."""
        said, waiting = ProtocolError(detail=why), self._waiting.get(peer)
        if waiting is not None:
            self._log_refusal(waiting.hello.user, waiting.caller, why, NO_MECHANISM)
            self._audit_refusal(waiting.hello.user, waiting.caller, said, why, now_ms, fx)
        if waiting is not None or correlation:
            self._end(peer, correlation, said)

    def lost(self, peer: Hashable) -> None:
        """A peer is gone; its verdict finds nobody."""
        self._waiting.pop(peer, None)

    def describe(self) -> dict[str, Any]:
        """For `hms status`."""
        document = self.identities.document
        users = "1 user" if len(document.user) == 1 else f"{len(document.user):,} users"
        return {
            "security": f"secured: {users}, policy version {document.version}",
            "logins_refused": self.refused,
            "connections_refused": self._strangers.total,
            "addresses_locked": len(self.locked),
        }

    def figures(self) -> dict[str, Any]:
        """For metrics."""
        return {
            "logins_refused": self.refused,
            "connections_refused": self._strangers.total,
            "denied": self.denials,
            "logins": [[*key, count] for key, count in self._came.items()],
            "denied_by": dict(self._denied),
        }

    # what the engine asks (hms.engine.security.authority)

    def may_receive(self, user: str, topic: str, queue: str) -> bool:
        """Whether the owner of a subscription may have what is published on a topic, in a queue."""
        return self.identities.may_receive(user, topic) and self._may_put(user, queue)

    def may_receive_some(self, user: str, pattern: Pattern, queue: str) -> bool:
        """The same, of any topic that a pattern matches."""
        return self.identities.may_receive_some(user, pattern) and self._may_put(user, queue)

    def _may_put(self, user: str, queue: str) -> bool:
        needs = producer_needs("queue", queue) if queue else ()
        return all(self.identities.may(user, *need) for need in needs)

    def check_schedule(self, owner: str, name: str, kind: str, place: str, flags: int) -> None:
        """NotAuthorized unless the owner of a schedule may send, now, what it sends."""
        retains = [(Action.RETAIN, kind, place)] if kind == "topic" and flags & FLAG_RETAIN else []
        for action, *what in [
            (Action.SCHEDULE, kind, place),
            *producer_needs(kind, place),
            *retains,
        ]:
            if not self.identities.may(owner, action, *what):
                said = NotAuthorized(user=owner, action=str(action), resource=":".join(what))
                self._refused_schedules.say("schedule %r is not sent: %s", name, said)
                raise said

    def check_put(self, connection: int, user: str, kind: str, name: str) -> None:
        """NotAuthorized unless a connection may act for a user, and that user may send there."""
        login = self._authorization.logins.get(connection)
        if login is not None:
            whom = user or "HMS.UNKNOWN"
            self._authorization.require(login, [(Action.IMPERSONATE, "user", whom)])
        for action, *what in producer_needs(kind, name):
            if not self.identities.may(user, action, *what):
                raise NotAuthorized(user=user, action=str(action), resource=":".join(what))

    def check_retain(self, connection: int, topic: str) -> None:
        """NotAuthorized unless a connection may have the topic retain what it publishes."""
        login = self._authorization.logins.get(connection)
        if login is not None:
            self._authorization.require(login, [(Action.RETAIN, "topic", topic)])

    # a worker, without the lock

    def _check(self, peer: Hashable, waiting: _Waiting, auth: wire.Auth) -> None:
        """Find out whose proof it is. Nothing of it may show in the time that it takes."""
        proof = self._checked(auth, waiting.caller)
        self._change(lambda fx, now_ms: self._decide(peer, waiting, auth, proof, now_ms, fx))

    def _checked(self, auth: wire.Auth, caller: Caller) -> _Proof:
        try:
            return self._proof(auth, caller)
        except Exception as fault:
            log.exception("a login could not be checked")
            return _Proof(why=f"it could not be checked: {type(fault).__name__}")

    def _proof(self, auth: wire.Auth, caller: Caller) -> _Proof:
        if self._is_outside(auth):
            return self._proof_outside(auth, caller)
        identities = self.identities
        name, why, expires_ms, weak = "", "the password is wrong", 0, ""
        narrowed: tuple[str, ...] | None = None
        if auth.mechanism == "PASSWORD":
            user = identities.user(auth.user)
            stored = user.password if user is not None else ""
            self.verified += 1
            is_good = verify(stored or self._dummy_hash, auth.response)
            if is_good and stored:
                name, weak = auth.user, stored if self._is_weak(stored) else ""
            elif user is None:
                why = "there is no such user"
        elif auth.mechanism == "TOKEN":
            found, why = identities.token(auth.response), "the token is not known"
            if found is not None and auth.user in ("", found[0]):
                name, expires_ms, narrowed = found[0], found[1], found[2] or None
        elif auth.mechanism == "DOMAIN":
            name, why = identities.of_transport(caller)[1], "neither key nor process is a user's"
        else:
            why = f"mechanism {auth.mechanism!r} is not offered"
        if name and auth.domain and not self._is_domain(auth.domain):
            name, why = "", "the password of the domain is wrong"
        return _Proof(name, why, expires_ms, narrowed, weak=weak)

    def _proof_outside(self, auth: wire.Auth, caller: Caller) -> _Proof:
        attempt = LoginAttempt(
            auth.mechanism, auth.user, auth.response, caller.source, caller.listener
        )
        found = self.outside.authenticate(attempt)
        if found.identity is not None and auth.domain and not self._is_domain(auth.domain):
            return _Proof(why="the password of the domain is wrong")
        name = "" if found.identity is None else found.identity.user
        return _Proof(name, found.why, outside=found)

    def _is_domain(self, given: bytes) -> bool:
        stored = self.identities.document.domain_password
        return verify(stored or self._dummy_hash, given) and bool(stored)

    def _decide(
        self,
        peer: Hashable,
        waiting: _Waiting,
        auth: wire.Auth,
        proof: _Proof,
        now_ms: int,
        fx: Effects,
    ) -> None:
        if self._waiting.get(peer) is not waiting:
            return
        caller = waiting.caller
        if proof.outside is not None and proof.outside.is_away:
            self._log_refusal(auth.user, caller, proof.why, auth.mechanism)
            busy = LoginBusy(address=caller.listener, retry_after_s=RETRY_AFTER_S)
            self._audit_refusal(auth.user, caller, busy, proof.why, now_ms, fx)
            self._end(peer, waiting.correlation, busy)
            return
        login, why = self._login_of(proof, auth.mechanism, caller, now_ms)
        if login is None:
            self._refuse_later(peer, auth, why, now_ms)
            return
        self._limits.succeeded(auth.user, caller.source, now_ms)
        del self._waiting[peer]
        self._let_in(peer, waiting.correlation, waiting.hello, login, now_ms, fx, login.mechanism)
        if proof.weak:
            self._strengthen(auth.user, proof.weak, auth.response)

    def _is_weak(self, stored: str) -> bool:
        settings = self.identities.document.security
        return is_weaker(stored, settings.password_passes, settings.password_memory_kib)

    def _strengthen(self, user: str, stored: str, password: bytes) -> None:
        """Have a hash made that costs enough, when the login is answered and no other one waits."""
        if user in self._strengthening:
            return
        wanted = self.identities.document.security
        cost = {"time_cost": wanted.password_passes, "memory_kib": wanted.password_memory_kib}

        def hash_again() -> None:
            try:
                if self._keeper.may_renew(user):
                    self._keeper.renew(user, stored, hash_password(password, **cost))
            finally:
                self._strengthening.discard(user)

        self._strengthening.add(user)
        if not self._workers.submit_spare(hash_again):
            self._strengthening.discard(user)

    def _login_of(
        self, proof: _Proof, mechanism: str, caller: Caller, now_ms: int
    ) -> tuple[Login | None, str]:
        """The login that a proof gives, or why none."""
        if not proof.name:
            return None, proof.why
        if proof.outside is not None and proof.outside.identity is not None:
            found = proof.outside.identity
            way = proof.outside.authenticator, mechanism, caller, now_ms
            return self.identities.outside_login(found, *way)
        return self.identities.login(
            proof.name, mechanism, caller, now_ms, proof.narrowed, proof.expires_ms
        )

    # in and out

    def _let_in(
        self,
        peer: Hashable,
        correlation: int,
        hello: wire.Hello,
        login: Login,
        now_ms: int,
        fx: Effects,
        by: str,
    ) -> None:
        token, token_ms = self._token(login, hello.uid, now_ms) if hello.secret else (b"", 0)
        try:
            if self._pace.is_exhausted(login.user, now_ms):
                where = login.caller.listener
                raise LoginBusy(address=where, retry_after_s=DENIALS_WAIT_S)
            self.counts.check_connection(self.identities, login.user, hello.uid)
            self._registry.hello(
                peer, correlation, hello, now_ms, fx, login=login, resume=(token, token_ms)
            )
        except HmsError as error:
            why = why_of(error)
            self._log_refusal(login.user, login.caller, why, by)
            self._audit_refusal(login.user, login.caller, error, why, now_ms, fx)
            self._end(peer, correlation, error)
            return
        number = self._registry.numbers[peer]
        self.counts.came(number, login.user)
        self._came["let_in", by] += 1
        if login.user != NODE_USER:
            self._limits.came(login.caller.source, now_ms)
            if self.identities.document.security.audit_logins:
                self._auditing.let_in(login, by, now_ms, fx, self._whose(number))
        log.info("user %s is let in by %s from %s", login.user, by, login.caller)

    def _token(self, login: Login, uid: int, now_ms: int) -> tuple[bytes, int]:
        """The proof of a login for later, and until when; none of the node's own servers."""
        if login.user == NODE_USER:
            return b"", 0
        return self._tokens.issue(
            login.user,
            login.generation,
            login.mechanism,
            uid,
            login.caller,
            now_ms,
            login.expires_ms,
            login.narrowed,
            login.authenticator,
            () if login.identity is None else login.identity.roles,
            "" if login.identity is None else login.identity.key,
        )

    def _refuse_later(self, peer: Hashable, auth: wire.Auth, why: str, now_ms: int) -> None:
        """Say no at the next multiple of fail_delay_ms; nobody learns why."""
        user = auth.user
        waiting = self._waiting[peer]
        if self._limits.failed(user, waiting.caller.source, now_ms):
            self.look_at_locks(now_ms)
        self._log_refusal(user, waiting.caller, why, auth.mechanism)
        said = LoginRefused(address=waiting.caller.listener)

        def refuse(fx: Effects, now_ms: int) -> None:
            if self._waiting.get(peer) is waiting:
                self._audit_refusal(user, waiting.caller, said, why, now_ms, fx)
                self._end(peer, waiting.correlation, said)

        waiting.workers.at_next_multiple(lambda: self._change(refuse))

    def _end(self, peer: Hashable, correlation: int, error: HmsError) -> None:
        """Tell a peer why, and know it no more."""
        self._waiting.pop(peer, None)
        words = Words(Kind.ERROR, error.with_traceback(None), correlation)
        self._registry.releases.say([peer], words)
        self._registry.releases.outlet.forget(peer)

    def _audit_refusal(
        self,
        user: str,
        caller: Caller,
        error: HmsError,
        why: str,
        now_ms: int,
        fx: Effects,
        details: AuditDetails = NO_DETAILS,
    ) -> None:
        resource, number = f"listener:{caller.listener}", error.number or 0
        about = user, caller.source, str(Action.CONNECT), resource, number
        said = {"why": why[:WHY_MAX], **({"key": caller.key} if caller.key else {})}
        self._auditing.refused(*about, now_ms, fx, details, said)

    def _log_refusal(self, user: str, caller: Caller, why: str, mechanism: str) -> None:
        self.refused += 1
        self._came["refused", mechanism if mechanism in COUNTED else OTHER] += 1
        of_its_own = f"login of %r from %s is refused: {why.replace('%', '%%')}"  # hides no other
        lines = self._throttled if why == TOO_MANY else self._refusals
        lines.say(of_its_own, user[:63], caller, extra={"event": "login_refused"})


def check_grant(login: Login, text: str) -> None:
    """Who may change some roles only gives no more than it has: else it would give itself all."""
    try:
        wanted = read_permission(text)
    except Unacceptable:
        return  # the keeper says what is wrong with it
    if not (login.rights.holds(EVERY_ROLE) or login.rights.holds(wanted)):
        raise NotAuthorized(user=login.user, action=str(Action.SECURE), resource="role:*")
