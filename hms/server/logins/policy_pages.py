"""The policy as an operator looks at it: users, roles, and who may do what; a page at a time, and
nothing of it a secret."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from hms.engine.security import BUILT_IN, Permission, Policy, Rights, Unacceptable, read_permission
from hms.engine.security.actions import KINDS, KINDS_OF
from hms.engine.security.permissions import nearest
from hms.errors.catalogue import InvalidArgument
from hms.server.logins.document_changes import user_of
from hms.server.logins.identities import Login
from hms.server.logins.security_document import SecurityDocument, UserEntry, limits_of
from hms.wire.operations import ListNames

__all__ = ["PERMISSIONS_SHOWN", "PolicyPages", "asked_of", "facts_of", "kept_out", "shown_login"]

PERMISSIONS_SHOWN = 500
NAMES_SHOWN = 50
"""So many of those who may, or who have a role; of the rest the number is told."""
Row = dict[str, Any]


class PolicyPages:
    """Of one version of the document. A page costs what it shows, and a look at each name."""

    def __init__(self, document: SecurityDocument, policy: Policy) -> None:
        self.document = document
        self._policy = policy
        self._users = sorted(document.user)
        self._roles = sorted({*document.role, *BUILT_IN})
        self._tokens: dict[str, list[str]] = {}
        for name, token in document.token.items():
            self._tokens.setdefault(token.user, []).append(name)
        self._holders = Counter(role for one in document.user.values() for role in one.roles)

    def users(self, asked: ListNames) -> Row:
        """Users by name. more: whether some come behind the last; count: of all that match."""
        page, more, count = _page(self._users, asked)
        rows = [{"name": name, **self._facts(name)} for name in page]
        return {"users": rows, "more": more, "count": count}

    def user(self, name: str) -> Row:
        """One of them, with what it may do; InvalidArgument."""
        entry = user_of(self.document, name)
        ends = entry.not_after
        may = self._policy.rights_of(entry.roles).describe()
        return {
            "name": name,
            **self._facts(name),
            "keys": list(entry.keys),
            "tokens": self._tokens.get(name, []),
            "not_after": ends.isoformat() if ends else None,
            "addresses": list(entry.addresses),
            "generation": entry.generation,
            "limits": limits_of(self.document, name),
            "permissions": may[:PERMISSIONS_SHOWN],
            "permission_count": len(may),
        }

    def roles(self, asked: ListNames) -> Row:
        """Roles by name, the built-in ones too, as users()."""
        page, more, count = _page(self._roles, asked)
        rows = [
            {
                "name": name,
                "built_in": name in BUILT_IN,
                "permissions": len(self._policy.roles[name].permissions),
                "roles": list(self._policy.roles[name].roles),
                "users": self._holders[name],
            }
            for name in page
        ]
        return {"roles": rows, "more": more, "count": count}

    def role(self, name: str) -> Row:
        """One of them. permissions: its own, which can be revoked; included: by other roles."""
        if name not in self._policy.roles:
            detail = f"there is no role {name!r}{nearest(name, self._roles)}"
            raise InvalidArgument(what="role", detail=detail)
        role = self._policy.roles[name]
        every = self._policy.rights_of([name]).describe()
        included = [said for said in every if not said.endswith(f"(role {name})")]
        own = [str(one) for one in role.permissions]
        users = self.document.user.items()
        return {
            "name": name,
            "built_in": name in BUILT_IN,
            "roles": list(role.roles),
            "permissions": own[:PERMISSIONS_SHOWN],
            "permission_count": len(own),
            "included": included[:PERMISSIONS_SHOWN],
            "included_count": len(included),
            "users": sorted(n for n, user in users if name in user.roles)[:NAMES_SHOWN],
            "user_count": self._holders[name],
        }

    def matrix(self, resource: str, name: str, now: datetime) -> list[Row]:
        """For each action on a resource who may do it to all of it, and who to some of it.
        NAME:ROLE stands for users who have a role by authenticator NAME. InvalidArgument."""
        wanted = list(asked_of([resource]))
        if name:
            user_of(self.document, name)
        held = self._held([name] if name else self._users, now)
        if not name:
            held += self._held_outside()
        return [{"action": str(one.action), **_who(held, one)} for one in wanted]

    def _held(self, names: Sequence[str], now: datetime) -> list[tuple[Rights, list[str]]]:
        """Rights, each with the users of these who have them and can log in."""
        users = self.document.user
        having: dict[frozenset[str], list[str]] = {}
        for name in names:
            if not kept_out(users[name], now):
                having.setdefault(frozenset(users[name].roles), []).append(name)
        return [(self._policy.rights_of(roles), found) for roles, found in having.items()]

    def _held_outside(self) -> list[tuple[Rights, list[str]]]:
        return [
            (self._policy.rights_of([role]), [f"{name}:{role}"])
            for name, one in sorted(self.document.authenticator.items())
            for role in sorted(set(one.role_map.values()))
        ]

    def _facts(self, name: str) -> Row:
        return facts_of(self.document.user[name], has_token=name in self._tokens)


def facts_of(entry: UserEntry, *, has_token: bool) -> Row:
    """A user without what is secret."""
    ways = [
        word
        for word, is_it in (
            ("password", entry.password),
            ("key", entry.keys),
            ("process", entry.os_users or entry.os_groups),
            ("token", has_token),
        )
        if is_it
    ]
    return {
        "roles": list(entry.roles),
        "enabled": entry.enabled,
        "logs in by": ways,
        "os_users": list(entry.os_users),
    }


def kept_out(entry: UserEntry, now: datetime) -> str:
    """Why a user cannot log in; "" when it can."""
    ends = entry.not_after
    if ends is not None and ends.replace(tzinfo=ends.tzinfo or UTC) <= now:
        return "has ended"
    return "" if entry.enabled else "is disabled"


def asked_of(resources: Sequence[str]) -> Iterator[Permission]:
    """Every action on each of these, such as queue:orders.*; InvalidArgument."""
    for text in dict.fromkeys(resources):
        kind = text.partition(":")[0]
        if kind not in KINDS:
            detail = f"{text!r} is not KIND:PATTERN{nearest(kind, KINDS)}"
            raise InvalidArgument(what="resource", detail=detail)
        for action, kinds in KINDS_OF.items():
            if kind in kinds:
                try:
                    yield read_permission(f"{action} {text}")
                except Unacceptable as fault:
                    raise InvalidArgument(what="resource", detail=str(fault)) from fault


def shown_login(login: Login) -> Row:
    """What a connection may know of itself: its user, by which proof, and what that may do."""
    may = login.rights.describe()
    ends = datetime.fromtimestamp(login.expires_ms / 1000, UTC) if login.expires_ms else None
    return {
        "user": login.user,
        "by": login.authenticator or login.mechanism,
        "roles": sorted(login.roles),
        "ends": ends.isoformat(timespec="seconds") if ends else None,
        "permissions": may[:PERMISSIONS_SHOWN],
        "permission_count": len(may),
    }


def _page(names: Sequence[str], asked: ListNames) -> tuple[list[str], bool, int]:
    found = [name for name in names if asked.names in name]
    behind = [name for name in found if name > asked.behind] if asked.behind else found
    return behind[: asked.limit], len(behind) > asked.limit, len(found)


def _who(held: Sequence[tuple[Rights, list[str]]], wanted: Permission) -> Row:
    every: list[str] = []
    some: list[str] = []
    for rights, names in held:
        if rights.holds(wanted):
            every += names
        elif rights.meets(wanted):
            some += names
    return {
        "all": sorted(every)[:NAMES_SHOWN],
        "all_count": len(every),
        "some": sorted(some)[:NAMES_SHOWN],
        "some_count": len(some),
    }
