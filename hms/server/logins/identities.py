"""Identities: which user a proof belongs to, and what that user may do. Made anew from each version
of the security document; nothing here waits."""

import hashlib
import ipaddress
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import msgspec

from hms.engine.security import Policy, Rights
from hms.engine.topic import Pattern
from hms.server.logins.authenticators import Identity
from hms.server.logins.callers import UNMAPPED_UID, Caller
from hms.server.logins.security_document import SecurityDocument, UserEntry, limits_of, role_of
from hms.wire.commands import Action

__all__ = ["NODE_USER", "Identities", "Login"]

NODE_USER = "$node"
"""What server processes that the node itself has started are logged in as; no user is called so."""
DIGEST_DIGITS = 16
OUTSIDE_MAX = 100_000
"""So many users of authenticators are remembered: their subscriptions go on without them."""


class Login(msgspec.Struct, frozen=True):
    """A user on a connection. roles: those that are active here; expires_ms: when it ends, 0
    never."""

    user: str
    mechanism: str
    roles: tuple[str, ...]
    rights: Rights
    caller: Caller
    expires_ms: int = 0
    narrowed: tuple[str, ...] | None = None
    """Of a token: the only roles that it may have."""
    generation: int = 0
    authenticator: str = ""
    identity: Identity | None = None
    """Of a user that is not in the security file: who says so, and what."""
    is_whole: bool = True
    """Whether all roles of the user are active."""

    def reaches(self, action: Action, pattern: Pattern) -> bool:
        """Whether it may subscribe with a pattern. Publications are withheld by what the user may,
        so one that has not all of its roles here has to have a right to all that it matches."""
        if self.is_whole or not pattern.is_wildcard:
            return self.rights.reaches(action, pattern)
        return self.rights.covers_all(action, pattern)

    @property
    def authority(self) -> str:
        """How it was proved, and a digest of its active roles: the beginning of the SHA-256 of
        their names, sorted, each with a line's end."""
        names = "".join(f"{role}\n" for role in sorted(self.roles))
        digest = hashlib.sha256(names.encode()).hexdigest()[:DIGEST_DIGITS]
        return f"by {self.authenticator or self.mechanism}, roles {digest}"


class Identities:
    """See the module. user_name, group_name: of a number of the operating system, "" for none."""

    def __init__(
        self,
        document: SecurityDocument,
        user_name: Callable[[int], str],
        group_names: Callable[[int, int], Sequence[str]],
        listener_roles: Callable[[str], Sequence[str]] = lambda _listener: ("*",),
        outside: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """outside: roles of the users that are not in the document, as they were told last."""
        self._outside = {} if outside is None else outside
        self.document = document
        roles = {name: role_of(entry) for name, entry in document.role.items()}
        self.policy = Policy(roles, document.version)
        self._user_name, self._group_names = user_name, group_names
        self._listener_roles = listener_roles
        users = document.user.items()
        self._of_key = {key: name for name, user in users for key in user.keys}
        self._of_os_user = {one: name for name, user in users for one in user.os_users}
        self._of_token = {one.sha256: one for one in document.token.values()}
        self.known_keys = {*self._of_key, *[one.public for one in document.key.values()]}

    def user(self, name: str) -> UserEntry | None:
        """The user of that name."""
        return self.document.user.get(name)

    def of_transport(self, caller: Caller) -> tuple[str, str]:
        """(mechanism, user) that a connection has by its key or its process; empty for none."""
        if caller.key:
            return "KEY", self._of_key.get(caller.key, "")
        if caller.uid < 0 or caller.uid == UNMAPPED_UID:
            return "", ""
        found = self._of_os_user.get(self._user_name(caller.uid), "")
        if found:
            return "PEER", found
        groups = set(self._group_names(caller.uid, caller.gid))
        for name, user in self.document.user.items():
            if groups.intersection(user.os_groups):
                return "PEER", name
        return "", ""

    def token(self, response: bytes) -> tuple[str, int, tuple[str, ...]] | None:
        """(user, when it expires in milliseconds, its roles) of an API token."""
        found = self._of_token.get(hashlib.sha256(response).hexdigest())
        if found is None:
            return None
        return found.user, _ms(found.expires_at), found.roles

    def login(
        self,
        name: str,
        mechanism: str,
        caller: Caller,
        now_ms: int,
        narrowed: tuple[str, ...] | None = None,
        expires_ms: int = 0,
    ) -> tuple[Login | None, str]:
        """The login of a user that has been proved, or why it is not let in."""
        user = self.document.user.get(name)
        if user is None:
            return None, "there is no such user"
        ends_ms = _ms(user.not_after) if user.not_after is not None else 0
        ends_ms = min(ends_ms, expires_ms) if ends_ms and expires_ms else ends_ms or expires_ms
        refused = ""
        if not user.enabled:
            refused = "the user is disabled"
        elif ends_ms and now_ms >= ends_ms:
            refused = "the user's or the token's time is over"
        elif not _is_from(caller, user.addresses):
            refused = "the user is not let in from this address"
        elif user.two_factors and not self._has_both(name, mechanism, caller):
            refused = "it takes a key or process of the user, and a password or token too"
        roles = self._active(narrowed or user.roles, user.roles, caller)
        rights = self.policy.rights_of(roles)
        if not refused and not rights.allows(Action.CONNECT, "listener", caller.listener):
            refused = f"no role allows to connect to listener {caller.listener}"
        if refused:
            return None, refused
        made = Login(name, mechanism, roles, rights, caller, ends_ms, narrowed, user.generation)
        return msgspec.structs.replace(made, is_whole=set(roles) == set(user.roles)), ""

    def _has_both(self, name: str, mechanism: str, caller: Caller) -> bool:
        return mechanism in ("PASSWORD", "TOKEN") and self.of_transport(caller)[1] == name

    def outside_login(
        self,
        found: Identity,
        authenticator: str,
        mechanism: str,
        caller: Caller,
        now_ms: int,
    ) -> tuple[Login | None, str]:
        """The login of a user that an authenticator knows, or why it is not let in."""
        name, refused = found.user, ""
        roles = self._active(found.roles, found.roles, caller)
        rights = self.policy.rights_of(role for role in roles if role in self.policy.roles)
        if name in self.document.user:
            refused = f"{name} is a user of the security file, and {authenticator} knows another"
        elif authenticator not in self.document.authenticator:
            refused = f"there is no authenticator {authenticator}"
        elif found.expires_ms and now_ms >= found.expires_ms:
            refused = "the token's time is over"
        elif not rights.allows(Action.CONNECT, "listener", caller.listener):
            refused = f"no role allows to connect to listener {caller.listener}"
        if refused:
            return None, refused
        self._outside[name] = found.roles
        while len(self._outside) > OUTSIDE_MAX:
            del self._outside[next(iter(self._outside))]
        return Login(
            name,
            mechanism,
            roles,
            rights,
            caller,
            found.expires_ms,
            authenticator=authenticator,
            identity=found,
            is_whole=set(roles) == set(found.roles),
        ), ""

    def forget_outside(self, name: str, roles: tuple[str, ...] = ()) -> None:
        """What a user that is not in the document may do from now on."""
        self._outside[name] = roles

    def limits(self, name: str) -> dict[str, int]:
        """The limits of a user that hold."""
        return limits_of(self.document, name)

    def may_receive(self, name: str, topic: str) -> bool:
        """Whether a user, wherever it is, may have what is published on a topic."""
        return self.may(name, Action.SUBSCRIBE, "topic", topic)

    def may_receive_some(self, name: str, pattern: Pattern) -> bool:
        """The same, of any topic that a pattern matches."""
        return name == NODE_USER or self._rights_of(name).reaches(Action.SUBSCRIBE, pattern)

    def may(self, name: str, action: Action, kind: str, resource: str) -> bool:
        """Whether a user, wherever it is, may do something."""
        return name == NODE_USER or self._rights_of(name).allows(action, kind, resource)

    def _rights_of(self, name: str) -> Rights:
        user = self.document.user.get(name)
        if user is None:
            roles = [one for one in self._outside.get(name, ()) if one in self.policy.roles]
        else:
            roles = list(user.roles) if user.enabled else []
        return self.policy.rights_of(roles)

    def _active(self, wanted: Sequence[str], own: Sequence[str], caller: Caller) -> tuple[str, ...]:
        patterns = self._listener_roles(caller.listener)
        return tuple(
            role
            for role in wanted
            if role in own and any(fnmatchcase(role, pattern) for pattern in patterns)
        )


def _is_from(caller: Caller, networks: Sequence[str]) -> bool:
    """Local sockets have no address, so a user that is bound to some does not come through them."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(caller.address)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network) for network in networks)


def _ms(at: datetime) -> int:
    """A time of the file, which means UTC where it names no zone."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
