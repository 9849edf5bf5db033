"""The security document: users, roles, tokens and keys, as security.toml holds them.

read_document() takes the plain tables of the file and looks at all of it: each fault is told with
the path of its section and key, and what is good stands in the document nevertheless.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import msgspec

from hms.engine.security import Permission, Role, Unacceptable, check_roles, read_permission
from hms.engine.security.permissions import nearest
from hms.engine.security.roles import BUILT_IN
from hms.server.logins.passwords import MEMORY_KIB, TIME_COST, check_hash
from hms.server.logins.secret_references import fault_of_reference
from hms.server.logins.user_limits import Limits, effective, faults_of
from hms.wire.commands import Action

__all__ = [
    "BY_NODE",
    "BY_USER",
    "SECTIONS",
    "AuthenticatorEntry",
    "Fault",
    "KeyEntry",
    "RoleEntry",
    "SecurityDocument",
    "SecuritySettings",
    "TokenEntry",
    "UserEntry",
    "check_document",
    "differences",
    "is_name",
    "limits_of",
    "may_secure",
    "read_document",
    "role_of",
]

Fault = tuple[tuple[str, ...], str]
"""Where, as the path of section and key, and what."""
GRANTS_MAX = 20_000
BY_USER = "user:"
"""No user of an operating system is called so."""
BY_NODE = f"{BY_USER}$node"
"""No user of the node is called so."""
TIMEOUT_S_MAX = 60
ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
"""Of tokens, with a public key: none and HS* would let in every holder of that."""
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,63}")
_KEY = re.compile(r"[!-~]{40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A section of the file."""


class SecuritySettings(_Entry, frozen=True):
    """[security]: how logins are checked. Times in milliseconds, seconds; memory in KiB."""

    fail_delay_ms: int = 500
    login_workers: int = 2
    login_queue_max: int = 256
    resume_s: int = 3600
    failures_per_address: int = 10
    failures_per_user: int = 20
    failures_per_node: int = 200
    password_passes: int = TIME_COST
    password_memory_kib: int = MEMORY_KIB
    """What a hash of a password costs; a cheaper one is renewed when its user logs in."""
    audit_logins: bool = True
    """Whether who logs in is a record of the audit, not only who is refused."""
    limits: dict[str, int | str] = {}


class UserEntry(_Entry, frozen=True):
    """[user.NAME]. generation: grows with each change after which older resume tokens count no
    more."""

    password: str = ""
    keys: tuple[str, ...] = ()
    os_users: tuple[str, ...] = ()
    os_groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    enabled: bool = True
    not_after: datetime | None = None
    addresses: tuple[str, ...] = ()
    limits: dict[str, int | str] = {}
    two_factors: bool = False
    """Its key or process, and its password or token too."""
    generation: int = 1


class RoleEntry(_Entry, frozen=True):
    """[role.NAME]."""

    permissions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    limits: dict[str, int | str] = {}


class TokenEntry(_Entry, frozen=True):
    """[token.ID]: sha256 of the token's bytes; roles narrower than those of its user."""

    user: str
    sha256: str
    expires_at: datetime
    roles: tuple[str, ...] = ()


class KeyEntry(_Entry, frozen=True):
    """[key.NAME]: a client key that only admits to a login, and is no user's."""

    public: str


class AuthenticatorEntry(_Entry, frozen=True):
    """[authenticator.NAME]: ldap, jwt or plug-in. Times in seconds; files beside this one."""

    kind: str
    prefix: str = ""
    timeout_s: float = 5
    role_map: dict[str, str] = {}
    urls: tuple[str, ...] = ()
    ca_file: str = ""
    start_tls: bool = False
    bind_dn: str = ""
    bind_password: str = ""
    user_base: str = ""
    user_filter: str = "(uid={user})"
    group_base: str = ""
    group_filter: str = "(member={dn})"
    refresh_s: float = 300
    issuer: str = ""
    audience: str = ""
    algorithms: tuple[str, ...] = ()
    jwks_file: str = ""
    jwks_url: str = ""
    jwks_refresh_s: float = 3600
    user_claim: str = "sub"
    roles_claim: str = ""
    leeway_s: float = 30
    required_claims: tuple[str, ...] = ("exp", "sub")
    plug_in: str = ""
    options: dict[str, str | int | float | bool] = {}


class SecurityDocument(_Entry, frozen=True):
    """The whole file. version: grows with each change; changed_by: who made the last one: a user of
    the operating system by a command, or behind BY_USER one of the node."""

    version: int = 1
    changed_by: str = ""
    domain_password: str = ""
    security: SecuritySettings = SecuritySettings()
    user: dict[str, UserEntry] = {}
    role: dict[str, RoleEntry] = {}
    token: dict[str, TokenEntry] = {}
    key: dict[str, KeyEntry] = {}
    authenticator: dict[str, AuthenticatorEntry] = {}
    authenticators: tuple[str, ...] = ()


SECTIONS: Mapping[str, type[_Entry]] = {
    "user": UserEntry,
    "role": RoleEntry,
    "token": TokenEntry,
    "key": KeyEntry,
    "authenticator": AuthenticatorEntry,
}
_PLAIN: Mapping[str, Any] = {
    "version": int,
    "changed_by": str,
    "domain_password": str,
    "authenticators": tuple[str, ...],
}
_BOUNDS = {
    "fail_delay_ms": (0, 10_000),
    "login_workers": (1, 16),
    "login_queue_max": (1, 10_000),
    "resume_s": (10, 86_400),
    "failures_per_address": (1, 100_000),
    "failures_per_user": (1, 100_000),
    "failures_per_node": (1, 1_000_000),
    "password_passes": (1, 10),
    "password_memory_kib": (8 << 10, 256 << 10),
}
_LATER = {
    "certificates": "doors with certificates are not available in this version",
    "scram": "SCRAM is not available in this version",
}


def is_name(text: str) -> bool:
    """Whether a user, role, token or key can be called so; names are case-exact."""
    return _NAME.fullmatch(text) is not None


def role_of(entry: RoleEntry) -> Role:
    """What a role's section says; Unacceptable."""
    return Role(tuple(map(read_permission, entry.permissions)), entry.roles)


def differences(before: SecurityDocument, after: SecurityDocument) -> list[str]:
    """The sections that are other ones, such as user.billing; no value of them."""
    plain = ("domain_password", "security", "authenticators")
    found = [word for word in plain if getattr(before, word) != getattr(after, word)]
    for section in SECTIONS:
        old, new = getattr(before, section), getattr(after, section)
        names = sorted(old.keys() | new.keys())
        found += [f"{section}.{name}" for name in names if old.get(name) != new.get(name)]
    return found


def limits_of(document: SecurityDocument, name: str) -> dict[str, int]:
    """The limits of a user that hold."""
    user = document.user.get(name)
    if user is None:
        return effective({}, (), document.security.limits)
    roles = [document.role[one].limits for one in user.roles if one in document.role]
    return effective(user.limits, roles, document.security.limits)


def read_document(data: Mapping[str, Any]) -> tuple[SecurityDocument, list[Fault]]:
    """The document of the file's tables, and every fault of it."""
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    for word, value in data.items():
        if word in SECTIONS:
            values[word] = _read_named(word, value, faults)
        elif word == "security":
            values[word] = _read_entry((word,), SecuritySettings, value, faults)
        elif word in _PLAIN:
            _convert((word,), _PLAIN[word], value, values, faults)
        else:
            known = (*SECTIONS, "security", *_PLAIN)
            faults.append(((word,), _LATER.get(word) or f"unknown {word!r}{nearest(word, known)}"))
    if "version" not in data:
        faults.append((("version",), "version is missing: the number of the last change"))
    document = SecurityDocument(**{k: v for k, v in values.items() if v is not None})
    return document, [*faults, *check_document(document)]


def _read_named(word: str, tables: Any, faults: list[Fault]) -> dict[str, Any]:
    if not isinstance(tables, dict):
        faults.append(((word,), f"[{word}] must be a table with a name: [{word}.NAME]"))
        return {}
    found = {}
    for name, table in tables.items():
        entry = _read_entry((word, name), SECTIONS[word], table, faults)
        if entry is not None:
            found[name] = entry
    return found


def _read_entry(
    path: tuple[str, ...], kind: type[_Entry], table: Any, faults: list[Fault]
) -> _Entry | None:
    if not isinstance(table, dict):
        faults.append((path, f"[{'.'.join(path)}] must be a table"))
        return None
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for word, value in table.items():
        if word not in kind.__struct_fields__:
            said = (
                _LATER.get(word) or f"unknown key {word!r}{nearest(word, kind.__struct_fields__)}"
            )
            faults.append(((*path, word), said))
        else:
            _convert((*path, word), hints[word], value, values, faults)
    missing = [one.name for one in msgspec.structs.fields(kind) if one.required]
    missing = [word for word in missing if word not in values]
    title = ".".join(path)
    faults += [(path, f"[{title}] needs {word}") for word in missing if word not in table]
    return None if missing else kind(**values)


def _convert(
    path: tuple[str, ...], kind: Any, value: Any, values: dict[str, Any], faults: list[Fault]
) -> None:
    word = path[-1]
    try:
        values[word] = msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        faults.append((path, f"{word}: {str(fault)[:1].lower()}{str(fault)[1:]}"))


def check_document(document: SecurityDocument) -> Iterator[Fault]:
    """Every fault of values that are of the right type."""
    if document.version < 1:
        yield ("version",), "version counts from 1"
    if document.domain_password and (said := check_hash(document.domain_password)):
        yield ("domain_password",), f"domain_password: {said}"
    for word, (least, most) in _BOUNDS.items():
        if not least <= getattr(document.security, word) <= most:
            yield ("security", word), f"{word} is between {least} and {most}"
    for section in SECTIONS:
        for name in getattr(document, section):
            if not is_name(name):
                yield (section, name), f"{name[:80]!r} is no name: 1 to 63 of A-Z a-z 0-9 . _ @ -"
    for path, held in _limits_of(document):
        yield from (((*path, "limits"), said) for said in faults_of(held))
    yield from authenticator_faults(document)
    yield from _check_roles(document)
    yield from _check_users(document)
    yield from _check_keys(document)
    yield from _check_tokens(document)


def _limits_of(document: SecurityDocument) -> Iterator[tuple[tuple[str, ...], Limits]]:
    yield ("security",), document.security.limits
    yield from ((("user", name), one.limits) for name, one in document.user.items())
    yield from ((("role", name), one.limits) for name, one in document.role.items())


def _check_tokens(document: SecurityDocument) -> Iterator[Fault]:
    for name, token in document.token.items():
        if token.user not in document.user:
            yield ("token", name, "user"), _no_such("user", token.user, document.user)
        if not _DIGEST.fullmatch(token.sha256):
            yield ("token", name, "sha256"), "sha256: 64 characters of 0-9 and a-f"
        yield from _check_role_names(document, ("token", name, "roles"), token.roles)


def _no_such(kind: str, name: str, known: Mapping[str, Any]) -> str:
    return f"there is no {kind} {name[:80]!r}{nearest(name, known)}"


def _check_roles(document: SecurityDocument) -> Iterator[Fault]:
    if sum(len(entry.permissions) for entry in document.role.values()) > GRANTS_MAX:
        yield ("role",), f"there are more than {GRANTS_MAX} permissions"
        return
    roles = {}
    for name, entry in document.role.items():
        permissions: list[Permission] = []
        for text in entry.permissions:
            try:
                permissions.append(read_permission(text))
            except Unacceptable as fault:
                yield ("role", name, "permissions"), str(fault)
        roles[name] = Role(tuple(permissions), entry.roles)
    for name, said in check_roles(roles):
        yield ("role", name), said


def _check_role_names(
    document: SecurityDocument, path: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[Fault]:
    known = {**document.role, **BUILT_IN}
    for name in names:
        if name not in known:
            yield path, _no_such("role", name, known)


def _check_users(document: SecurityDocument) -> Iterator[Fault]:
    taken: dict[str, str] = {}
    for name, user in document.user.items():
        path = ("user", name)
        yield from _check_role_names(document, (*path, "roles"), user.roles)
        if user.password and (said := check_hash(user.password)):
            yield (*path, "password"), f"password: {said}"
        for os_user in user.os_users:
            if taken.setdefault(os_user, name) != name:
                said = f"os_users: {os_user!r} is user {taken[os_user]} already"
                yield (*path, "os_users"), said
        for address in user.addresses:
            try:
                ipaddress.ip_network(address)
            except ValueError as fault:
                yield (*path, "addresses"), f"addresses: {fault}"
        if user.two_factors and not _has_both(document, name):
            said = "it needs keys, os_users or os_groups, and a password or a token"
            yield (*path, "two_factors"), f"two_factors: {said}"
        if user.generation < 1:
            yield (*path, "generation"), "generation counts from 1"


def _has_both(document: SecurityDocument, name: str) -> bool:
    user = document.user[name]
    has_token = any(one.user == name for one in document.token.values())
    return bool(user.keys or user.os_users or user.os_groups) and bool(user.password or has_token)


def _check_keys(document: SecurityDocument) -> Iterator[Fault]:
    taken: dict[str, str] = {}
    shown = [
        (("user", n, "keys"), f"user {n}", key) for n, u in document.user.items() for key in u.keys
    ]
    shown += [(("key", n, "public"), f"key {n}", k.public) for n, k in document.key.items()]
    for path, owner, key in shown:
        if not _KEY.fullmatch(key):
            yield (
                path,
                f"{key[:80]!r} is no public key: 40 characters, as hms keys create prints it",
            )
        elif taken.setdefault(key, owner) != owner:
            yield path, f"the key {key} is that of {taken[key]} already"


def authenticator_faults(document: SecurityDocument) -> Iterator[Fault]:
    """Of the authenticators, and of the order in which they are asked."""
    for name in document.authenticators:
        if name != "file" and name not in document.authenticator:
            yield ("authenticators",), _no_such("authenticator", name, document.authenticator)
    for name, one in document.authenticator.items():
        path = ("authenticator", name)
        yield from _check_role_names(document, (*path, "role_map"), tuple(one.role_map.values()))
        for word, said in _KINDS.get(one.kind, _no_kind)(one):
            yield (*path, word), f"{word}: {said}"
        if one.prefix and not is_name(one.prefix):
            yield (*path, "prefix"), "prefix: characters of a name"
        if not 0 < one.timeout_s <= TIMEOUT_S_MAX:
            yield (*path, "timeout_s"), f"timeout_s is between 0 and {TIMEOUT_S_MAX}"


def _no_kind(one: AuthenticatorEntry) -> Iterator[tuple[str, str]]:
    yield "kind", f"{one.kind[:80]!r} is none of ldap, jwt and plug-in{nearest(one.kind, _KINDS)}"


def _ldap_faults(one: AuthenticatorEntry) -> Iterator[tuple[str, str]]:
    if not one.urls:
        yield "urls", "it needs at least one, such as ldaps://ldap.example.net"
    for url in one.urls:
        parts = urlsplit(url)
        if parts.scheme not in ("ldap", "ldaps") or not parts.hostname:
            yield "urls", f"{url!r} is not ldaps://HOST or ldap://HOST"
        elif parts.scheme == "ldap" and not one.start_tls and not _is_loopback(parts.hostname):
            yield "urls", f"{url!r} would send passwords in clear: use ldaps:// or start_tls"
    if not one.ca_file and any(not url.startswith("ldap://") for url in one.urls):
        yield "ca_file", "it is needed: which certificates count"
    if one.start_tls and not one.ca_file:
        yield "ca_file", "it is needed: which certificates count"
    if "{user}" not in one.user_filter:
        yield "user_filter", "it has to contain {user}"
    if one.group_base and "{dn}" not in one.group_filter:
        yield "group_filter", "it has to contain {dn}"
    if one.bind_password and (said := fault_of_reference(one.bind_password)):
        yield "bind_password", said


def _jwt_faults(one: AuthenticatorEntry) -> Iterator[tuple[str, str]]:
    if not one.algorithms:
        yield "algorithms", "they are needed; there is no default"
    for word in one.algorithms:
        if word not in ALGORITHMS:
            yield "algorithms", f"{word!r} is none of {', '.join(ALGORITHMS)}"
    for word in ("issuer", "audience"):
        if not getattr(one, word):
            yield word, "it is needed"
    if bool(one.jwks_file) == bool(one.jwks_url):
        yield "jwks_file", "either jwks_file or jwks_url is needed"
    if one.jwks_url and not one.jwks_url.startswith("https://"):
        yield "jwks_url", f"{one.jwks_url!r} is not https://…"


def _plug_in_faults(one: AuthenticatorEntry) -> Iterator[tuple[str, str]]:
    if not one.plug_in:
        yield "plug_in", "it is needed: its name in the entry point group hms.authenticators"


_KINDS: Mapping[str, Callable[[AuthenticatorEntry], Iterator[tuple[str, str]]]] = {
    "ldap": _ldap_faults,
    "jwt": _jwt_faults,
    "plug-in": _plug_in_faults,
}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def may_secure(document: SecurityDocument) -> list[str]:
    """The enabled users who may change users and roles."""
    roles = {**{name: role_of(entry) for name, entry in document.role.items()}, **BUILT_IN}
    giving: set[str] = set()
    for _ in range(len(roles)):
        for name, role in roles.items():
            own = any(p.action is Action.SECURE and p.pattern == "*" for p in role.permissions)
            if own or giving.intersection(role.roles):
                giving.add(name)
    return [n for n, u in document.user.items() if u.enabled and giving.intersection(u.roles)]
