"""The entrance of a node process: open, or secured by its security file, which is looked at every
second."""

import grp
import logging
import os
import pwd
import stat
import time
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from hms.boot.audit_checks import AuditChecks, verify_command
from hms.boot.compose import hms_version
from hms.boot.entries import Config, Listener, Node
from hms.boot.policy_sharing import PolicySharing
from hms.boot.resume_keys import ResumeKeys
from hms.boot.security_file import change_security, load_security, own_name, read_marked
from hms.boot.watched_files import stamp_of
from hms.boot.withheld_variables import named_by_policy
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import NotConfigMaster, SecurityFileError
from hms.errors.tree import HmsError
from hms.server.connection_registry import ConnectionRegistry
from hms.server.entrance import Change
from hms.server.logins import document_changes as changes
from hms.server.logins.auditing import Auditing
from hms.server.logins.authorization import Authorization
from hms.server.logins.callers import Caller, network_text
from hms.server.logins.identities import Identities
from hms.server.logins.live_changes import LiveChanges
from hms.server.logins.login_gate import LISTENERS_OFFER, LoginGate
from hms.server.logins.login_workers import LoginWorkers
from hms.server.logins.outside_logins import WORKERS as OUTSIDE_WORKERS
from hms.server.logins.outside_logins import OutsideLogins, make_authenticators
from hms.server.logins.passwords import hash_password
from hms.server.logins.plain_policy import differences_of, plain_policy
from hms.server.logins.policy_pages import PolicyPages
from hms.server.logins.resume_tokens import ResumeTokens
from hms.server.logins.security_document import (
    BY_NODE,
    BY_USER,
    SecurityDocument,
    SecuritySettings,
    differences,
)
from hms.server.node_operations import Later
from hms.server.refused_connections import Refused, RefusedConnections
from hms.server.service_monitor import ServiceMonitor
from hms.wire.operations import Operation, WhoMay

__all__ = ["Securing", "audit_boot", "make_securing"]

log = logging.getLogger("hms.security")


DIFFERENCES_SHOWN = 500
NO_LOGIN = (1 << 32) - 1
"""What the kernel says of a process that nobody's login has begun."""
RENEW_EVERY_S = 10.0
"""A thousand users who come back together cost a few versions of the file, not one each."""
RENEW_TRIES, RENEW_AGAIN_S = 3, 600.0
"""A command may be changing the file just then."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What an operator asks of it. audit_number: of the record of the order."""

    verb: str
    arguments: Any = None
    user: str = ""
    audit_number: int = 0
    later: Later = field(default_factory=Later)


_CHANGES: Mapping[str, Callable[[SecurityDocument, Any], SecurityDocument]] = {
    "user.enable": lambda d, asked: changes.alter_user(d, asked.name, enabled=True),
    "user.disable": lambda d, asked: changes.alter_user(d, asked.name, enabled=False),
    "user.logout": lambda d, asked: changes.log_out(d, asked.name),
    "permission.grant": lambda d, asked: changes.grant(d, asked.name, asked.permission),
    "permission.revoke": lambda d, asked: changes.revoke(d, asked.name, asked.permission),
}


class Securing:
    """What a secured node has more than an open one. caller_of, drop: as LoginGate; verify: the
    command that verifies its audit; refused: what did not get as far as the gate; master: the node
    where alone the policy is changed, "" here."""

    def __init__(
        self,
        path: Path,
        listeners: dict[str, Listener],
        node: Node,
        engine: Engine,
        monitor: ServiceMonitor,
        caller_of: Callable[[Hashable], Caller | None],
        clock_ms: Callable[[], int],
        verify: Sequence[str] = (),
        master: str = "",
        *,
        is_master: bool = False,
        refused: RefusedConnections | None = None,
        drop: Callable[[tuple[str, ...]], None] = lambda _sources: None,
    ) -> None:
        self._master, self._is_master = master, is_master
        self._clock_ms = clock_ms
        self._refused = refused or RefusedConnections(is_audited=True)
        self._audits = AuditChecks(node.name, verify, engine.cluster)
        self._path = path
        self._listeners = listeners
        self._node = node
        self._engine = engine
        self._monitor = monitor
        self._caller_of, self._drop = caller_of, drop
        self._seen = stamp_of(path)
        self._asked: deque[_Asked] = deque()
        """What operators have asked of it since the last look."""
        self._keys: deque[tuple[str, str, str]] = deque()
        """Keys that are not in the audit yet; see key_changed()."""
        self._renewed: dict[str, tuple[str, str]] = {}
        """Hashes that are to be kept: by user, the stored one and the one in its place."""
        self._renew_at = self._refused_until = float("-inf")
        self._refusals = 0
        """How often in a row it was tried to keep them, and they could not be written."""
        self._unmarked: tuple[int, int, int] | None = None
        self._rejected = ""
        self._document = load_security(path)
        settings = self._document.security
        is_sharing = engine.cluster is not None and node.group.link_key_file is not None
        self._sharing = (
            PolicySharing(path, engine.cluster, engine.state.settings.node_index)
            if is_sharing and engine.cluster is not None
            else None
        )
        self._workers = LoginWorkers(
            settings.login_workers, settings.login_queue_max, settings.fail_delay_ms
        )
        self._outside_roles: dict[str, tuple[str, ...]] = {}
        self._outside = OutsideLogins(
            make_authenticators(self._document, path.parent),
            settings.login_queue_max,
            settings.fail_delay_ms,
        )
        self._dummy = _dummy_hash(self._document)
        self._auditing = Auditing(engine.state.audit)
        self.gate: LoginGate
        self._changes: LiveChanges
        self._change: Change

    def entrance(self, registry: ConnectionRegistry, change: Change) -> LoginGate:
        """The gate of the broker that asks."""
        identities = self._identities(self._document)
        monitor = self._monitor
        authorization = Authorization(
            self._engine, registry.logins, self._node.name, monitor.calls_of
        )
        self._change = change
        self._resume_keys = ResumeKeys(self._path.with_name("resume.keys"))
        self._changes = LiveChanges(self._engine, registry, authorization, monitor)
        self.gate = LoginGate(
            registry,
            change,
            identities,
            authorization,
            self._workers,
            ResumeTokens(self._resume_keys.held, self._document.security.resume_s),
            self._caller_of,
            self._dummy,
            self._auditing,
            self._changes.renew,
            outside=self._outside,
            keeper=self,
            offered=self._offered_at,
            refused=self._refused,
            drop=self._drop,
        )
        self._engine.obey(self.gate)
        return self.gate

    def look(self) -> None:
        """End logins whose time is over; take over a file that was changed, while a faulty one
        leaves what holds."""
        if self._changes.is_any_over(self._clock_ms()):
            self._change(lambda fx, now_ms: self._changes.expire(now_ms, fx))
        if self.gate.is_warning_due(self._clock_ms()):
            self._change(lambda fx, now_ms: self.gate.warn(now_ms, fx))
        if self._resume_keys.look():
            self._change(lambda _fx, _now_ms: self.gate.sign_with(self._resume_keys.held))
        if self.gate.has_locks:
            self._change(lambda _, now_ms: self.gate.look_at_locks(now_ms))
        self.gate.refresh_outside(self._clock_ms())
        while self._keys:
            self._change(partial(self._audit_key, *self._keys.popleft()))
        for some in self._refused.take():
            self._change(partial(self._audit_refused, some))
        if self._auditing.is_due(self._clock_ms()):
            self._change(lambda fx, now_ms: self._auditing.flush(now_ms, fx))
        if self._sharing is not None:
            self._sharing.look(self._document, self._change)
        self._audits.look(self._clock_ms(), self._change, self._answer)
        self._look_at_file([self._asked.popleft() for _ in range(len(self._asked))])
        self._write_renewed()

    def _audit_key(self, resource: str, command: str, key: str, fx: Effects, now_ms: int) -> None:
        self._auditing.key_changed(resource, command, key, now_ms, fx)

    def _audit_refused(self, some: Sequence[Refused], fx: Effects, now_ms: int) -> None:
        self._auditing.not_let_in(some, now_ms, fx)

    def _look_at_file(self, asked: "list[_Asked]") -> None:
        """Take it over when it was changed; what operators have asked and ordered."""
        reloads = [one.later for one in asked if one.verb == "security.reload"]
        stamp = stamp_of(self._path)
        if reloads or stamp != self._seen:
            said = self._read(stamp, is_whole=bool(reloads))
            for later in reloads:
                self._answer(later, said)
        for one in asked:
            if one.verb == "security.show":
                self._answer(one.later, self._shown())
            elif one.verb != "security.reload":
                self._answer(one.later, self._kept(one))

    def show(self) -> Later:
        """What holds, at the next look; under the engine's lock."""
        return self._later(_Asked("security.show"))

    def reload(self) -> Later:
        """The file is read at the next look, changed or not: who asks says that it is whole."""
        return self._later(_Asked("security.reload"))

    def keep(self, verb: str, asked: Operation, user: str, audit_number: int) -> Later:
        """It is looked up, or the file changed, at the next look: what was permitted is done."""
        return self._later(_Asked(verb, asked, user, audit_number))

    def verify_audits(self, wait_s: int) -> Later:
        """Each node of the cluster verifies its audit; under the engine's lock."""
        return self._audits.begin(self._clock_ms() + 1000 * wait_s)

    def _later(self, asked: "_Asked") -> Later:
        self._asked.append(asked)
        return asked.later

    def _answer(self, later: Later, said: dict[str, Any] | HmsError) -> None:
        known = self._engine.state.connections
        self._change(lambda fx, now_ms: later.answer(said, known, now_ms, fx))

    def _shown(self) -> dict[str, Any]:
        found = plain_policy(self._document)
        return {"version": self._document.version, "policy": found, "rejected": self.rejected()}

    def _kept(self, one: "_Asked") -> dict[str, Any] | HmsError:
        asked = one.arguments
        try:
            if isinstance(asked, WhoMay):
                identities = self.gate.identities
                pages = PolicyPages(identities.document, identities.policy)
                now = datetime.fromtimestamp(self._clock_ms() / 1000, UTC)
                return {"rows": pages.matrix(asked.resource, asked.name, now)}
            if one.verb == "security.diff":
                return self._differing(self._in_file() or load_security(self._path))
            return self._changed(one)
        except HmsError as error:
            return error.with_traceback(None)

    def _differing(self, file: SecurityDocument) -> dict[str, Any]:
        """What is other in the file than what holds, the first of it."""
        rows = differences_of(plain_policy(self._document), plain_policy(file))
        versions = {"file": file.version, "running": self._document.version}
        more = {"rejected": self.rejected(), "count": len(rows)}
        return {**versions, **more, "differences": rows[:DIFFERENCES_SHOWN]}

    def _changed(self, one: "_Asked") -> dict[str, Any]:
        """The file says what an operator has ordered, and it holds."""
        if self._master:
            about = {"kind": "policy", "destination": "", "what": "change"}
            raise NotConfigMaster(**about, master=self._master)
        before, by = self._document, f"{BY_USER}{one.user}"
        made, closed = self._write(lambda d: _CHANGES[one.verb](d, one.arguments), by)
        return {
            "version": made.version,
            "before": before.version,
            "changed": differences(before, made),
            "closed": closed,
            "audit": one.audit_number,
        }

    def may_renew(self, user: str) -> bool:
        """Whether another hash of that user would be written; from a login worker. In a cluster one
        node does it, while all are up and agree: of two changes that are made apart one is gone,
        and that must not be an operator's."""
        is_tried = user in self._renewed or time.monotonic() < self._refused_until
        return not is_tried and self._is_writer()

    def renew(self, user: str, stored: str, fresh: str) -> None:
        """It is written at the next look, with others; from a login worker."""
        self._renewed[user] = stored, fresh

    def _write_renewed(self) -> None:
        """Passwords whose hashes cost too little, RENEW_EVERY_S apart. What cannot be written, in
        RENEW_TRIES, is said, and comes again with another login."""
        if not self._renewed or time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + RENEW_EVERY_S
        taken = {user: self._renewed[user] for user in list(self._renewed)}

        def change(document: SecurityDocument) -> SecurityDocument:
            users = {
                user: structs.replace(document.user[user], password=fresh)
                for user, (stored, fresh) in taken.items()
                if user in document.user and document.user[user].password == stored
            }
            return structs.replace(document, user={**document.user, **users})

        try:
            if self._is_writer():
                self._write(change, BY_NODE)
        except HmsError as error:
            self._refusals += 1
            if self._refusals < RENEW_TRIES:
                return
            log.warning("hashes of passwords that cost too little are not renewed: %s", error)
            self._refused_until = time.monotonic() + RENEW_AGAIN_S
        self._refusals = 0
        for user in taken:
            del self._renewed[user]

    def _is_writer(self) -> bool:
        """Whether this node writes its file without an order."""
        is_alone = self._sharing is None or self._is_master or self._sharing.is_first()
        return not self._master and is_alone and _is_writable(self._path)

    def _write(
        self, made_of: Callable[[SecurityDocument], SecurityDocument], by: str
    ) -> tuple[SecurityDocument, int]:
        """Another version, which holds; how much of what was open is closed. SecurityFileError."""

        def change(document: SecurityDocument) -> SecurityDocument:
            if document is not self._document and stamp_of(self._path) != self._seen:
                said = f"{self._path}: was changed and is not taken over yet; order it again"
                raise SecurityFileError(report=said)
            if document.version < self._document.version:
                said = f"{self._path}: version {document.version} is older than the one that holds"
                raise SecurityFileError(report=said)
            return made_of(document)

        written: list[tuple[int, int, int]] = []
        before = self._document
        made = change_security(
            self._path,
            change,
            by=by,
            is_patient=False,
            held=self._in_file,
            saved=lambda: written.append(stamp_of(self._path)),
        )
        closed = 0 if made == before else self.take_over(made)
        if written:
            self._seen, self._rejected = written[0], ""
        return made, closed

    def _in_file(self) -> SecurityDocument | None:
        """What holds, if the file says that; to read it takes seconds where there are many."""
        is_known = stamp_of(self._path) == self._seen and not self._rejected
        return self._document if is_known else None

    def _read(self, stamp: tuple[int, int, int], *, is_whole: bool) -> dict[str, Any] | HmsError:
        """Take over what the file says; what became of it. is_whole: nobody is writing it."""
        before = self._document
        said: dict[str, Any] | HmsError = {}
        try:
            document, is_marked = read_marked(self._path)
            if not (is_marked or is_whole) and stamp != self._unmarked:
                self._unmarked = stamp  # somebody may still be writing it: when it is so again
                return {}
            closed = 0
            if document != before:
                closed = self.take_over(document)
            elif is_whole:  # certificates and secrets of directories may be other ones
                self._outside.replace(make_authenticators(document, self._path.parent))
            changed = differences(before, document)
            about = {"version": document.version, "before": before.version}
            said = {**about, "changed": changed, "closed": closed}
            self._rejected = ""
        except HmsError as error:
            self._rejected = str(error)
            log.error("not taken over, what held before holds: %s", error)  # noqa: TRY400 - it says all
            said = error.with_traceback(None)
        self._seen = stamp
        return said

    def rejected(self) -> str:
        """Why a newer policy, of the file or of another node, does not hold; "" when it does."""
        return self._rejected or ("" if self._sharing is None else self._sharing.rejected)

    def differs(self) -> str:
        """Which other nodes hold another policy; "" none."""
        return "" if self._sharing is None else self._sharing.differs()

    def addresses_locked(self) -> list[str]:
        """Whose new connections are dropped."""
        return [network_text(one) for one in self.gate.locked]

    def certificates(self) -> Iterator[Path]:
        """The files of certificates that the document names."""
        for one in self._document.authenticator.values():
            if one.ca_file:
                yield self._path.parent / one.ca_file

    def secret_variables(self) -> set[str]:
        """The variables that hold secrets which the document names."""
        return named_by_policy(self._document)

    def booted(
        self, start: str, deleted: int, killed_ms: int, fx: Effects, *, has_waited: bool
    ) -> None:
        """See audit_boot()."""
        about = self._node.name, start, deleted, killed_ms, self._clock_ms(), fx
        audit_boot(self._auditing, *about, has_waited=has_waited)

    def stopped(self, moves_to: str, fx: Effects, now_ms: int) -> None:
        """Audit a stop, and what is counted and not told yet; under the engine's lock."""
        while self._keys:
            self._audit_key(*self._keys.popleft(), fx, now_ms)
        for some in self._refused.take():
            self._auditing.not_let_in(some, now_ms, fx)
        self._auditing.flush(now_ms, fx, is_last=True)
        self._auditing.stopped(self._node.name, moves_to, now_ms, fx)

    def announce(self, listener: str, key: str) -> None:
        """Tell who is connected there, and has not been told, which key comes next."""
        if self.gate.is_untold(listener, key):
            self._change(lambda fx, _now_ms: self.gate.announce(listener, key, fx))

    def key_changed(self, resource: str, command: str, key: str) -> None:
        """A listener or a node shows another key, or is going to: audited at the next look. From
        any thread."""
        self._keys.append((resource, command, key))

    def take_over(self, document: SecurityDocument) -> int:
        """A newer version of the document holds from now on; how much of what was open is
        closed."""
        if document.version < self._document.version:
            said = (
                f"{self._path}: version {document.version} is older than {self._document.version}"
            )
            raise SecurityFileError(report=said)
        if _cost_of(document) != _cost_of(self._document):
            self._dummy = _dummy_hash(document)
        if _outside_of(document) != _outside_of(self._document):
            self._outside.replace(make_authenticators(document, self._path.parent))
        before, self._document = self._document, document
        self._size(document.security)
        identities = self._identities(document)
        closed = 0

        def change(fx: Effects, now_ms: int) -> None:
            nonlocal closed
            self.gate.obey(identities, self._dummy)
            closed = self._changes.apply(identities, now_ms, fx)
            said = "policy version %d holds; %d connections, consumers and services were closed"
            self._auditing.changed(before, document, closed, now_ms, fx)
            log.info(said, document.version, closed)

        self._change(change)
        return closed

    def _size(self, settings: SecuritySettings) -> None:
        queue_max, delay_ms = settings.login_queue_max, settings.fail_delay_ms
        self._workers.change(settings.login_workers, queue_max, delay_ms)
        self._outside.workers.change(OUTSIDE_WORKERS, queue_max, delay_ms)

    def close(self) -> None:
        """No more logins."""
        self._workers.close()
        self._outside.workers.close()
        self._audits.close()

    def known_keys(self) -> Container[str]:
        """The client keys that are let in; from the main thread."""
        return self.gate.identities.known_keys

    def _identities(self, document: SecurityDocument) -> Identities:
        return Identities(document, _user_name, _group_names, self._roles_at, self._outside_roles)

    def _roles_at(self, listener: str) -> Sequence[str]:
        found = self._listeners.get(listener)
        return ("*",) if found is None else found.roles

    def _offered_at(self, listener: str) -> Sequence[str]:
        found = self._listeners.get(listener)
        return LISTENERS_OFFER if found is None else found.mechanisms


def audit_boot(
    auditing: Auditing,
    name: str,
    start: str,
    deleted: int,
    killed_ms: int,
    now_ms: int,
    fx: Effects,
    *,
    has_waited: bool,
    is_open: bool = False,
) -> None:
    """Audit a boot: by whose process, or, has_waited, because another machine went away. start:
    WARM or COLD; deleted: so many messages; killed_ms: see NodeProcess; is_open: nobody logs in,
    and nothing more is audited until a boot of a secured node."""
    if killed_ms:
        auditing.was_killed(name, killed_ms, now_ms, fx)
    who = ("system", "") if has_waited else (f"os:{own_name()}", _operator())
    facts: dict[str, Any] = {"start": start, "version": hms_version()}
    facts |= {"deleted": deleted} if start == "COLD" or deleted else {}
    facts |= {"takes_over": True} if has_waited else {}
    facts |= {"security": "open"} if is_open else {}
    auditing.booted(who, name, facts, now_ms, fx)


def make_securing(
    config: Config,
    node: Node,
    engine: Engine,
    monitor: ServiceMonitor,
    caller_of: Callable[[Hashable], Caller | None],
    clock_ms: Callable[[], int],
    refused: RefusedConnections,
    drop: Callable[[tuple[str, ...]], None],
) -> Securing | None:
    """The security of a node; None when it is open."""
    if node.security is None:
        return None
    about = node, engine, monitor, caller_of, clock_ms
    return Securing(
        node.security,
        config.listeners,
        *about,
        verify_command(config, node),
        config.policy_master_of(node),
        is_master=config.domain.config_master == node.name,
        refused=refused,
        drop=drop,
    )


def _operator() -> str:
    """Whose process this is, and who logged in at the machine where that is another one: the kernel
    keeps it over sudo."""
    own = os.getuid()
    try:
        login = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        login = NO_LOGIN
    return f"uid {own}" if login in (own, NO_LOGIN) else f"uid {own}, logged in as uid {login}"


def _is_writable(path: Path) -> bool:
    """Whether nobody has taken the right to write the file, or its folder, away; root obeys."""
    try:
        own = (path.lstat().st_mode, path.parent.stat().st_mode)
    except OSError:
        return False
    return all(mode & stat.S_IWUSR for mode in own) and os.access(path.parent, os.W_OK)


def _dummy_hash(document: SecurityDocument) -> str:
    """What the passwords of unknown users are compared with, as costly as those of users."""
    cost = _cost_of(document)
    if not cost:
        return ""
    return hash_password(os.urandom(16).hex(), time_cost=cost[0], memory_kib=cost[1])


def _cost_of(document: SecurityDocument) -> tuple[int, int] | None:
    """Passes and KiB of the dearest password; None without any."""
    stored = {user.password.split("$")[3] for user in document.user.values() if user.password}
    found = [dict(part.split("=") for part in one.split(",")) for one in stored]
    costs = [(int(one["t"]), int(one["m"])) for one in found]
    return max(costs, key=lambda one: one[0] * one[1], default=None)


def _outside_of(document: SecurityDocument) -> tuple[object, ...]:
    return document.authenticators, document.authenticator


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group_names(uid: int, gid: int) -> Sequence[str]:
    name, found = _user_name(uid), []
    for number in os.getgrouplist(name, gid) if name else [gid]:
        try:
            found.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found
