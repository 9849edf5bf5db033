"""A secured node for a test: its users, its security file, and a local address."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hms.testing
from hms.boot.security_file import save_security
from hms.server.logins.passwords import hash_password
from hms.server.logins.security_document import (
    RoleEntry,
    SecurityDocument,
    SecuritySettings,
    UserEntry,
)

__all__ = ["PASSWORD", "document", "me", "secured_node"]

PASSWORD = "correct horse"
_HASHES: dict[str, str] = {}


def me() -> str:
    """Who runs this test."""
    return pwd.getpwuid(os.geteuid()).pw_name


def cheap_hash(password: str = PASSWORD) -> str:
    """A hash that takes 20 ms; each password is hashed once."""
    if password not in _HASHES:
        _HASHES[password] = hash_password(password, time_cost=1, memory_kib=8 << 10)
    return _HASHES[password]


def document(*, audit_logins: bool = False, **roles: list[str]) -> SecurityDocument:
    """A user with a password for each role, of the same name; the user root, who is whoever runs
    this test, may do everything. Most tests count records, so
    logins leave none."""
    users = {name: UserEntry(password=cheap_hash(), roles=(name,)) for name in roles}
    users["root"] = UserEntry(os_users=(me(),), roles=("admin", "security"))
    granted = {
        name: RoleEntry(permissions=("connect listener:*", *given)) for name, given in roles.items()
    }
    many = {f"failures_per_{what}": 10_000 for what in ("address", "user", "node")}
    cheap = {"password_passes": 1, "password_memory_kib": 8 << 10}
    settings = SecuritySettings(fail_delay_ms=20, audit_logins=audit_logins, **many, **cheap)
    return SecurityDocument(security=settings, user=users, role=granted)


@contextmanager
def secured_node(
    folder: Path,
    held: SecurityDocument,
    config: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Any]:
    """A node that checks logins, at a local socket; own: keys of its section."""
    path = folder / "security.toml"
    save_security(path, held)
    settings = dict(
        config or {"hms": {"queue": {"orders": {}, "payments": {}}, "topic": {"news": {}}}}
    )
    own = {**settings.pop("own", {}), **(own or {})}
    listen = [f"ipc://{folder}/s", *settings.get("listener", {})]
    settings["node"] = {"NODE1": {"listen": listen, "security": str(path), **own}}
    with hms.testing.node(config=settings, **options) as node:
        node.security = path
        yield node
