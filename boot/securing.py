"""The entrance of a node process: open, or secured by its security file, which is looked at every
second."""

import grp
import logging
import os
import pwd
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from pathlib import Path

from hms.boot.entries import Config, Listener, Node
from hms.boot.policy_sharing import PolicySharing
from hms.boot.resume_keys import resume_keys
from hms.boot.security_file import load_security, read_marked
from hms.boot.watched_files import stamp_of
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import SecurityFileError
from hms.server.connection_registry import ConnectionRegistry
from hms.server.entrance import Change
from hms.server.logins.auditing import Auditing
from hms.server.logins.authorization import Authorization
from hms.server.logins.callers import Caller, network_text
from hms.server.logins.identities import Identities
from hms.server.logins.live_changes import LiveChanges
from hms.server.logins.login_gate import LoginGate
from hms.server.logins.login_workers import LoginWorkers
from hms.server.logins.outside_logins import OutsideLogins, make_authenticators
from hms.server.logins.passwords import hash_password
from hms.server.logins.resume_tokens import ResumeTokens
from hms.server.logins.security_document import SecurityDocument
from hms.server.service_monitor import ServiceMonitor

__all__ = ["Securing", "make_securing"]

log = logging.getLogger("hms.security")


class Securing:
    """What a secured node has more than an open one. caller_of: as LoginGate."""

    def __init__(
        self,
        path: Path,
        listeners: dict[str, Listener],
        node: Node,
        engine: Engine,
        monitor: ServiceMonitor,
        caller_of: Callable[[Hashable], Caller | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._clock_ms = clock_ms
        self._path = path
        self._listeners = listeners
        self._node = node
        self._engine = engine
        self._monitor = monitor
        self._caller_of = caller_of
        self._seen = stamp_of(path)
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
        self._changes = LiveChanges(self._engine, registry, authorization, monitor)
        self.gate = LoginGate(
            registry,
            change,
            identities,
            authorization,
            self._workers,
            ResumeTokens(self._resume_keys(), self._document.security.resume_s),
            self._caller_of,
            _dummy_hash(self._document),
            self._auditing,
            outside=self._outside,
        )
        self.gate.renewed = self._changes.renew
        self._engine.obey(self.gate)
        return self.gate

    def _resume_keys(self) -> list[bytes]:
        return resume_keys(self._path.with_name("resume.keys"))

    def look(self) -> None:
        """End logins whose time is over; take over a file that was changed, while a faulty one
        leaves what holds."""
        if self._changes.is_any_over(self._clock_ms()):
            self._change(lambda fx, now_ms: self._changes.expire(now_ms, fx))
        if self.gate.is_warning_due(self._clock_ms()):
            self._change(lambda fx, now_ms: self.gate.warn(now_ms, fx))
        if self.gate.has_locks:
            self._change(lambda _, now_ms: self.gate.look_at_locks(now_ms))
        self.gate.refresh_outside(self._clock_ms())
        if self._auditing.is_due(self._clock_ms()):
            self._change(lambda fx, now_ms: self._auditing.flush(now_ms, fx))
        if self._sharing is not None:
            self._sharing.look(self._document, self._change)
        stamp = stamp_of(self._path)
        if stamp == self._seen:
            return
        try:
            document, is_marked = read_marked(self._path)
            if not is_marked and stamp != self._unmarked:
                self._unmarked = stamp  # somebody may still be writing it: when it is so again
                return
            self.take_over(document)
            self._rejected = ""
        except SecurityFileError as error:
            self._rejected = str(error)
            log.error("not taken over, what held before holds: %s", error)  # noqa: TRY400 - it says all
        self._seen = stamp

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

    def announce(self, listener: str, key: str) -> None:
        """Tell who is connected there, and has not been told, which key comes next."""
        if self.gate.is_untold(listener, key):
            self._change(lambda fx, _now_ms: self.gate.announce(listener, key, fx))

    def key_changed(self, listener: str, key: str) -> None:
        """A listener shows another key."""
        self._change(lambda fx, now_ms: self._auditing.key_changed(listener, key, now_ms, fx))

    def take_over(self, document: SecurityDocument) -> None:
        """A newer version of the document holds from now on."""
        if document.version < self._document.version:
            said = (
                f"{self._path}: version {document.version} is older than {self._document.version}"
            )
            raise SecurityFileError(report=said)
        if _outside_of(document) != _outside_of(self._document):
            self._outside.replace(make_authenticators(document, self._path.parent))
        before, self._document = self._document, document
        identities = self._identities(document)

        def change(fx: Effects, now_ms: int) -> None:
            self.gate.identities = identities
            closed = self._changes.apply(identities, now_ms, fx)
            said = "policy version %d holds; %d connections, consumers and services were closed"
            self._auditing.changed(before, document, closed, now_ms, fx)
            log.info(said, document.version, closed)

        self._change(change)

    def close(self) -> None:
        """No more logins."""
        self._workers.close()
        self._outside.workers.close()

    def known_keys(self) -> Container[str]:
        """The client keys that are let in; from the main thread."""
        return self.gate.identities.known_keys

    def _identities(self, document: SecurityDocument) -> Identities:
        return Identities(document, _user_name, _group_names, self._roles_at, self._outside_roles)

    def _roles_at(self, listener: str) -> Sequence[str]:
        found = self._listeners.get(listener)
        return ("*",) if found is None else found.roles


def make_securing(
    config: Config,
    node: Node,
    engine: Engine,
    monitor: ServiceMonitor,
    caller_of: Callable[[Hashable], Caller | None],
    clock_ms: Callable[[], int],
) -> Securing | None:
    """The security of a node; None when it is open."""
    if node.security is None:
        return None
    return Securing(node.security, config.listeners, node, engine, monitor, caller_of, clock_ms)


def _dummy_hash(document: SecurityDocument) -> str:
    """What the passwords of unknown users are compared with, as costly as those of users."""
    stored = [user.password for user in document.user.values() if user.password]
    if not stored:
        return ""
    costs = dict(part.split("=") for part in max(stored).split("$")[3].split(","))
    return hash_password(
        os.urandom(16).hex(), time_cost=int(costs["t"]), memory_kib=int(costs["m"])
    )


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
