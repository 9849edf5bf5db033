"""Changes of the security document, each a function from one to the next; InvalidArgument names the
nearest valid word, and nothing is changed."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hms.engine.security import Unacceptable, read_permission
from hms.engine.security.permissions import nearest
from hms.engine.security.roles import BUILT_IN
from hms.errors.catalogue import InvalidArgument
from hms.server.logins.security_document import (
    RoleEntry,
    SecurityDocument,
    TokenEntry,
    UserEntry,
    is_name,
    may_secure,
)
from hms.server.logins.user_limits import read_limit

__all__ = [
    "add_token",
    "add_user",
    "alter_user",
    "create_role",
    "delete_role",
    "delete_user",
    "grant",
    "log_out",
    "revoke",
    "revoke_token",
    "set_key",
    "set_limits",
    "user_of",
]

_REPLACE = msgspec.structs.replace
_Document = SecurityDocument


def user_of(document: _Document, name: str) -> UserEntry:
    """The user of that name."""
    found: UserEntry = _one("user", document.user, name)
    return found


def add_user(document: _Document, name: str, entry: UserEntry) -> _Document:
    """A new user."""
    _check_new("user", document.user, name)
    _check_roles(document, entry.roles)
    return _REPLACE(document, user={**document.user, name: entry})


def alter_user(document: _Document, name: str, **changes: Any) -> _Document:
    """Other attributes of a user. One that proves who it is ends what was proved before."""
    known = user_of(document, name)
    _check_roles(document, changes.get("roles", ()))
    if "password" in changes:
        changes["generation"] = known.generation + 1
    return _safe(document, _with_user(document, name, _REPLACE(known, **changes)))


def set_limits(document: _Document, name: str, wanted: Mapping[str, str]) -> _Document:
    """Other limits of a user; "none" takes one away."""
    held = dict(user_of(document, name).limits)
    for word, value in wanted.items():
        if value == "none":
            read_limit(word, 1)
            held.pop(word, None)
        else:
            number = read_limit(word, value)
            held[word] = value if not value.isdecimal() else number
    return alter_user(document, name, limits=held)


def log_out(document: _Document, name: str) -> _Document:
    """End all that a user has open; it may log in again."""
    known = user_of(document, name)
    return _with_user(document, name, _REPLACE(known, generation=known.generation + 1))


def set_key(document: _Document, name: str, key: str, *, is_removed: bool) -> _Document:
    """One client key more, or less, of a user."""
    known = user_of(document, name)
    if is_removed and key not in known.keys:
        raise InvalidArgument(what="key", detail=f"user {name} has no key {key}")
    left = tuple(one for one in known.keys if one != key)
    keys = left if is_removed else (*left, key)
    generation = known.generation + (1 if is_removed else 0)
    return _with_user(document, name, _REPLACE(known, keys=keys, generation=generation))


def delete_user(document: _Document, name: str) -> _Document:
    """A user less, with its tokens."""
    user_of(document, name)
    users = {one: entry for one, entry in document.user.items() if one != name}
    tokens = {one: entry for one, entry in document.token.items() if entry.user != name}
    return _safe(document, _REPLACE(document, user=users, token=tokens))


def add_token(
    document: _Document, name: str, user: str, expires_at: datetime, roles: Sequence[str] = ()
) -> tuple[_Document, str]:
    """A new API token of a user: the document, and the token, which is kept nowhere."""
    _check_new("token", document.token, name)
    own = user_of(document, user).roles
    for role in roles:
        if role not in own:
            detail = f"user {user} has no role {role!r}{nearest(role, own)}"
            raise InvalidArgument(what="role", detail=detail)
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    entry = TokenEntry(user=user, sha256=digest, expires_at=expires_at, roles=tuple(roles))
    return _REPLACE(document, token={**document.token, name: entry}), token


def revoke_token(document: _Document, name: str) -> _Document:
    """A token less; what it has open ends with its user's generation."""
    found: TokenEntry = _one("token", document.token, name)
    left = {one: entry for one, entry in document.token.items() if one != name}
    return log_out(_REPLACE(document, token=left), found.user)


def create_role(document: _Document, name: str, includes: Sequence[str] = ()) -> _Document:
    """A new role, which may include others."""
    if name in BUILT_IN:
        raise InvalidArgument(what="role", detail=f"{name} is built in; choose another name")
    _check_new("role", document.role, name)
    _check_roles(document, includes)
    return _REPLACE(document, role={**document.role, name: RoleEntry(roles=tuple(includes))})


def delete_role(document: _Document, name: str) -> _Document:
    """A role less, which nobody has."""
    _own_role(document, name)
    holders = [f"user {n}" for n, user in document.user.items() if name in user.roles]
    holders += [f"role {n}" for n, role in document.role.items() if name in role.roles]
    if holders:
        raise InvalidArgument(what="role", detail=f"{', '.join(holders[:5])} still has role {name}")
    left = {one: entry for one, entry in document.role.items() if one != name}
    return _REPLACE(document, role=left)


def grant(document: _Document, role: str, permission: str) -> _Document:
    """One permission more."""
    known, text = _own_role(document, role), _permission(permission)
    if text in known.permissions:
        return document
    return _with_role(document, role, (*known.permissions, text))


def revoke(document: _Document, role: str, permission: str) -> _Document:
    """One permission less."""
    known, text = _own_role(document, role), _permission(permission)
    if text not in known.permissions:
        detail = f"role {role} has no permission {text!r}{nearest(text, known.permissions)}"
        raise InvalidArgument(what="permission", detail=detail)
    left = tuple(one for one in known.permissions if one != text)
    return _safe(document, _with_role(document, role, left))


def _permission(text: str) -> str:
    try:
        return str(read_permission(text))
    except Unacceptable as fault:
        raise InvalidArgument(what="permission", detail=str(fault)) from fault


def _with_user(document: _Document, name: str, entry: UserEntry) -> _Document:
    return _REPLACE(document, user={**document.user, name: entry})


def _with_role(document: _Document, name: str, permissions: tuple[str, ...]) -> _Document:
    entry = _REPLACE(document.role[name], permissions=permissions)
    return _REPLACE(document, role={**document.role, name: entry})


def _own_role(document: _Document, name: str) -> RoleEntry:
    if name in BUILT_IN:
        raise InvalidArgument(what="role", detail=f"{name} is built in and cannot be changed")
    found: RoleEntry = _one("role", document.role, name)
    return found


def _one(kind: str, known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise InvalidArgument(
            what=kind, detail=f"there is no {kind} {name!r}{nearest(name, known)}"
        )
    return known[name]


def _check_new(kind: str, known: Mapping[str, Any], name: str) -> None:
    if name in known:
        raise InvalidArgument(what=kind, detail=f"there is a {kind} {name} already")
    if not is_name(name):
        detail = f"{name[:80]!r} is no name: 1 to 63 of A-Z a-z 0-9 . _ @ -"
        raise InvalidArgument(what=kind, detail=detail)


def _check_roles(document: _Document, names: Sequence[str]) -> None:
    known = {**document.role, **BUILT_IN}
    for name in names:
        _one("role", known, name)


def _safe(before: _Document, after: _Document) -> _Document:
    """The last user who may change users and roles stays one."""
    if may_secure(before) and not may_secure(after):
        detail = "nobody would be left who may change users and roles; give another user that first"
        raise InvalidArgument(what="the last administrator", detail=detail)
    return after
