"""Logins by LDAP: search the user, bind with its password, read its groups (RFC 4511, 4513).

ldap3, of the extra `ldap`, speaks the protocol. Its own TLS checks neither certificate nor host
name unless told to, and matches names by itself; ours is the one of the standard library.
"""

import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hms.errors.catalogue import NotSupported
from hms.server.logins.authenticators import (
    AwayError,
    Identity,
    LoginAttempt,
    NotMineError,
    mapped,
)
from hms.server.logins.security_document import AuthenticatorEntry

__all__ = ["LdapLogins", "escaped"]

CONNECT_S = 2.0
GROUPS_MAX = 1000
_ESCAPED = {"\\": r"\5c", "*": r"\2a", "(": r"\28", ")": r"\29", "\0": r"\00"}
_PORTS = {"ldap": 389, "ldaps": 636}
_WRONG_PASSWORD = 49


def escaped(text: str) -> str:
    """A value inside a filter (RFC 4515 §3): it matches itself, and says nothing."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text)


class LdapLogins:
    """One [authenticator.NAME] of kind ldap. secret: the password of bind_dn."""

    def __init__(self, entry: AuthenticatorEntry, folder: Path, secret: Callable[[], str]) -> None:
        self._ldap3 = _ldap3()
        self._entry, self._secret = entry, secret
        self._ca_file = str(folder / entry.ca_file) if entry.ca_file else None
        self.refresh_s, self.timeout_s = entry.refresh_s, entry.timeout_s * len(entry.urls) + 1
        ssl.create_default_context(cafile=self._ca_file)  # an unusable file is told at once

    def authenticate(self, attempt: LoginAttempt) -> Identity | None:
        """Who has this password."""
        if attempt.mechanism != "PASSWORD":
            raise NotMineError
        password = attempt.response.decode("utf-8", "replace")
        if not password or "\0" in password or not attempt.user:
            return None  # an empty one would be let in as nobody (RFC 4513 §5.1.2)
        with self._searching() as (url, connection):
            try:
                dn = self._dn_of(connection, attempt.user)
            except NotMineError:
                # As long as for a name that is there: a second connection, and its bind.
                absent = f"cn={secrets.token_hex(8)},{self._entry.user_base}"
                with self._connected(url, absent, secrets.token_hex(8)):
                    raise
            with self._connected(url, dn, password) as (_, code):
                if code == _WRONG_PASSWORD:
                    return None
                if code:
                    raise AwayError(f"the bind ended with {code}")
            return Identity(attempt.user, self._roles_of(connection, dn), key=dn)

    def refresh(self, identity: Identity) -> Identity | None:
        """The groups as they are now."""
        user = identity.user.removeprefix(self._entry.prefix)
        with self._searching() as (_, connection):
            try:
                dn = self._dn_of(connection, user)
            except NotMineError:
                return None
            return Identity(user, self._roles_of(connection, dn), key=dn)

    def _dn_of(self, connection: Any, user: str) -> str:
        wanted = self._entry.user_filter.replace("{user}", escaped(user))
        found = self._search(connection, self._entry.user_base, wanted, 2)
        if len(found) != 1:
            raise NotMineError
        return found[0]

    def _roles_of(self, connection: Any, dn: str) -> tuple[str, ...]:
        entry, groups = self._entry, []
        if entry.group_base:
            wanted = entry.group_filter.replace("{dn}", escaped(dn))
            groups = self._search(connection, entry.group_base, wanted, GROUPS_MAX)
        return mapped(groups, entry.role_map)

    def _search(self, connection: Any, base: str, wanted: str, most: int) -> list[str]:
        """Names of the entries that match; referrals are not followed."""
        is_done = connection.search(
            base, wanted, attributes=[self._ldap3.NO_ATTRIBUTES], size_limit=most
        )
        code = connection.result["result"]
        if not is_done and code not in (0, 4, 32):  # too many, no such base
            raise AwayError(f"the search ended with {code} {connection.result['description']}")
        return [one["dn"] for one in connection.response or () if one["type"] == "searchResEntry"]

    @contextmanager
    def _searching(self) -> Iterator[tuple[str, Any]]:
        """A connection that may search, at the first server that answers."""
        why = "no server is configured"
        for url in self._entry.urls:
            try:
                made = self._connected(url, self._entry.bind_dn, self._secret())
                connection, code = made.__enter__()
            except AwayError as fault:
                why = str(fault)
                continue
            try:
                if code:
                    raise AwayError(f"{url}: bind_dn is refused with {code}")
                yield url, connection
            finally:
                made.__exit__(None, None, None)
            return
        raise AwayError(why)

    @contextmanager
    def _connected(self, url: str, dn: str, password: str) -> Iterator[tuple[Any, int]]:
        """A connection that has bound, and the code of that."""
        ldap3, connection = self._ldap3, None
        try:
            connection = self._open(url, dn, password)
            connection.bind()
            code = int(connection.result["result"])
        except (ldap3.core.exceptions.LDAPException, OSError) as fault:
            if connection is not None:
                _end(connection)
            raise AwayError(f"{url}: {type(fault).__name__}: {fault}") from fault
        try:
            yield connection, code
        except (ldap3.core.exceptions.LDAPException, OSError) as fault:
            raise AwayError(f"{url}: {type(fault).__name__}: {fault}") from fault
        finally:
            _end(connection)

    def _open(self, url: str, dn: str, password: str) -> Any:
        ldap3, parts = self._ldap3, urlsplit(url)
        tls = _tls(ldap3, self._ca_file, self._entry.timeout_s)
        server = ldap3.Server(
            parts.hostname,
            parts.port or _PORTS[parts.scheme],
            use_ssl=parts.scheme == "ldaps",
            tls=tls,
            get_info=ldap3.NONE,
            connect_timeout=CONNECT_S,
        )
        connection = ldap3.Connection(
            server,
            dn or None,
            password if dn else None,
            authentication=ldap3.SIMPLE if dn else ldap3.ANONYMOUS,
            auto_referrals=False,
            check_names=False,
            read_only=True,
            raise_exceptions=False,
        )
        try:
            connection.open(read_server_info=False)
            connection.socket.settimeout(self._entry.timeout_s)
            is_clear = self._entry.start_tls and not connection.start_tls(read_server_info=False)
        except BaseException:
            _end(connection)
            raise
        if is_clear:
            _end(connection)
            raise AwayError(f"{url}: it does not take STARTTLS")
        return connection


def _end(connection: Any) -> None:
    with suppress(Exception):
        connection.unbind()
    with suppress(Exception):
        connection.socket.close()


def _tls(ldap3: Any, ca_file: str | None, timeout_s: float) -> Any:
    """ldap3's seam, with the standard library's checks behind it."""

    class Checked(ldap3.Tls):  # type: ignore[misc]
        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            context = ssl.create_default_context(cafile=ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            connection.socket.settimeout(timeout_s)
            wrapped = context.wrap_socket(
                connection.socket,
                server_hostname=connection.server.host,
                do_handshake_on_connect=False,
            )
            connection.socket = wrapped
            if do_handshake:
                wrapped.do_handshake()

    return Checked(validate=ssl.CERT_REQUIRED)


def _ldap3() -> Any:
    try:
        import ldap3  # noqa: PLC0415 - the extra is needed for these logins only
        import ldap3.core.exceptions  # noqa: PLC0415
    except ImportError as fault:
        instead = "Install hybrid-messaging[ldap]."
        raise NotSupported(feature="logins by LDAP without ldap3", instead=instead) from fault
    return ldap3
