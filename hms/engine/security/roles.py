"""Roles: named sets of permissions, which may include those of other roles."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hms.engine.security.actions import KINDS_OF
from hms.engine.security.permissions import (
    OWN_PREFIX,
    Permission,
    Unacceptable,
    nearest,
    read_permission,
)
from hms.engine.topic.topic_strings import OWN_LEVEL
from hms.wire.commands import Action

__all__ = ["BUILT_IN", "DEPTH_MAX", "Role", "check_roles"]

DEPTH_MAX = 8
"""A role that includes one that includes one …: so many steps."""


class Role(msgspec.Struct, frozen=True):
    """What it may, and the roles that it includes."""

    permissions: tuple[Permission, ...] = ()
    roles: tuple[str, ...] = ()


def _all(*actions: Action) -> Role:
    """These actions on everything, the node's own resources included."""
    return Role(
        tuple(
            read_permission(f"{action} {kind}:{pattern}")
            for action in actions
            for kind in KINDS_OF[action]
            for pattern in _everything(kind)
        )
    )


def _everything(kind: str) -> tuple[str, ...]:
    if kind == "topic":
        return ("#", f"{OWN_LEVEL}/#", f"{OWN_PREFIX}BASE.TOPIC")
    return ("*",) if kind in ("node", "transaction") else ("*", f"{OWN_PREFIX}*")


_OPERATOR = (
    Action.VIEW,
    Action.BROWSE,
    Action.CONFIGURE,
    Action.PURGE,
    Action.MANAGE,
    Action.OPERATE,
    Action.RESOLVE,
)
_NOT_OF_ADMIN = (Action.SECURE, Action.IMPERSONATE)
BUILT_IN: Mapping[str, Role] = {
    "admin": _all(*[action for action in KINDS_OF if action not in _NOT_OF_ADMIN]),
    "security": _all(Action.CONNECT, Action.SECURE, Action.AUDIT, Action.VIEW),
    "operator": _all(Action.CONNECT, *_OPERATOR),
    "monitor": _all(Action.CONNECT, Action.VIEW),
    "auditor": _all(Action.CONNECT, Action.AUDIT, Action.VIEW),
}
"""Roles that every policy has, and none can change."""


def check_roles(roles: Mapping[str, Role]) -> Iterator[tuple[str, str]]:
    """(role, fault) of everything between roles that cannot stand."""
    known = {**BUILT_IN, **roles}
    for name, role in roles.items():
        if name in BUILT_IN:
            yield name, f"role {name!r} is built in; give another one another name"
            continue
        unknown = [other for other in role.roles if other not in known]
        for other in unknown:
            yield name, f"there is no role {other!r}{nearest(other, known)}"
        if not unknown:
            yield from _check_depth(name, known)


def _check_depth(name: str, known: Mapping[str, Role]) -> Iterator[tuple[str, str]]:
    try:
        depth = _depth(name, known, (name,))
    except Unacceptable as fault:
        yield name, str(fault)
        return
    if depth > DEPTH_MAX:
        yield name, f"roles include one another {depth} deep; {DEPTH_MAX} are allowed"


def _depth(name: str, known: Mapping[str, Role], way: tuple[str, ...]) -> int:
    """How many steps lead down from a role."""
    deepest = 0
    for other in known[name].roles:
        if other in way:
            raise Unacceptable(
                f"roles include one another in a circle: {' > '.join((*way, other))}"
            )
        if other in known and len(way) <= 2 * DEPTH_MAX:
            deepest = max(deepest, 1 + _depth(other, known, (*way, other)))
    return deepest


def included(names: Iterable[str], known: Mapping[str, Role]) -> dict[str, tuple[str, ...]]:
    """All roles that these come to, each with the way that leads to it."""
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[str, ...]] = [(name,) for name in names]
    while waiting:
        way = waiting.pop(0)
        role = known.get(way[-1])
        if role is not None and way[-1] not in found:
            found[way[-1]] = way
            waiting += [(*way, other) for other in role.roles]
    return found
