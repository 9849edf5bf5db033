"""The policy: from roles to rights. Nothing is allowed unless it was granted."""

from collections.abc import Iterable, Mapping

import msgspec

from hms.engine.security.permissions import Permission, hold_together
from hms.engine.security.roles import BUILT_IN, Role, included
from hms.engine.topic.patterns import Pattern
from hms.wire.commands import Action

__all__ = ["Explanation", "Policy", "Rights"]

_NEAREST_MAX = 5
DECISIONS_MAX = 100_000
"""So many answers are kept at hand; then they are found anew."""


class Explanation(msgspec.Struct, frozen=True):
    """Why something is allowed, or what comes near it. by: the permissions, each with the way of
    roles that leads to it."""

    is_allowed: bool
    by: tuple[str, ...]


class Rights:
    """What one set of roles may do, compiled once; the answers are kept."""

    def __init__(self, roles: Mapping[str, tuple[str, ...]], known: Mapping[str, Role]) -> None:
        self._granted: dict[tuple[Action, str], list[tuple[Permission, tuple[str, ...]]]] = {}
        self._every: list[tuple[Permission, tuple[str, ...]]] = []
        for name, way in roles.items():
            for one in known[name].permissions:
                self._granted.setdefault((one.action, one.kind), []).append((one, way))
                self._every.append((one, way))
        self.decided: dict[tuple[Action, str, str], bool] = {}
        """Answers that allows() has given, for who asks for every message and wants no call."""

    def allows(self, action: Action, kind: str, name: str) -> bool:
        """Whether an action on the resource of that name is granted."""
        key = (action, kind, name)
        decided = self.decided.get(key)
        if decided is None:
            if len(self.decided) >= DECISIONS_MAX:
                self.decided.clear()
            granted = self._granted.get((action, kind), ())
            decided = self.decided[key] = any(one.covers(name) for one, _ in granted)
        return decided

    def allows_any(self, action: Action, kind: str) -> bool:
        """Whether there is a resource of the kind on which it is granted."""
        return (action, kind) in self._granted

    def reaches(self, action: Action, wanted: Pattern) -> bool:
        """Whether a topic pattern can match a topic on which it is granted."""
        return any(one.reaches(wanted) for one, _ in self._granted.get((action, "topic"), ()))

    def covers_all(self, action: Action, wanted: Pattern) -> bool:
        """Whether one permission grants it on every topic that a pattern can match."""
        return any(one.covers_all(wanted) for one, _ in self._granted.get((action, "topic"), ()))

    def holds(self, wanted: Permission) -> bool:
        """Whether all that this one would grant is granted, by several together too."""
        return hold_together((one for one, _ in self._granted.get(_about(wanted), ())), wanted)

    def meets(self, wanted: Permission) -> bool:
        """Whether a part of what this one would grant is granted."""
        return any(one.meets(wanted) for one, _ in self._granted.get(_about(wanted), ()))

    @property
    def permissions(self) -> list[Permission]:
        """All that are granted."""
        return [one for one, _ in self._every]

    def explain(self, action: Action, kind: str, name: str) -> Explanation:
        """The permissions that decide, or else those that come nearest."""
        granted = self._granted.get((action, kind), [])
        deciding = [_told(one, way) for one, way in granted if one.covers(name)]
        if deciding:
            return Explanation(is_allowed=True, by=tuple(deciding))
        same_name = [(o, w) for o, w in self._every if o.kind == kind and o.covers(name)]
        near = dict.fromkeys(_told(one, way) for one, way in [*granted, *same_name])
        return Explanation(is_allowed=False, by=tuple(near)[:_NEAREST_MAX])

    def describe(self) -> list[str]:
        """Every permission, with the way of roles that leads to it."""
        return [_told(one, way) for one, way in self._every]


def _about(permission: Permission) -> tuple[Action, str]:
    return permission.action, permission.kind


def _told(permission: Permission, way: tuple[str, ...]) -> str:
    return f"{permission} (role {' > '.join(way)})"


class Policy:
    """All roles of a node. The same set of roles has the same rights, compiled once."""

    def __init__(self, roles: Mapping[str, Role] | None = None, version: int = 0) -> None:
        self.version = version
        self.roles: dict[str, Role] = {**(roles or {}), **BUILT_IN}
        self._rights: dict[frozenset[str], Rights] = {}

    def rights_of(self, roles: Iterable[str]) -> Rights:
        """What the roles of these names may do; a name that there is not gives nothing."""
        names = frozenset(roles)
        found = self._rights.get(names)
        if found is None:
            ways = included(sorted(names), self.roles)
            found = self._rights[names] = Rights(ways, self.roles)
        return found
