"""[listener.NAME]: where clients of a secured node connect from beyond the machine, encrypted."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from hms.boot import kinds
from hms.boot.kinds import Refused, did_you_mean, shown
from hms.boot.sections.section import Named, Section, key, reads

__all__ = ["LISTENER", "Listener"]

MECHANISMS = ("KEY", "PASSWORD", "TOKEN")
_ROLE = re.compile(r"[A-Za-z0-9._@*?-]{1,63}")
_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+):(\d{1,5})")


def _address(value: Any) -> str:
    """An address, tcp://HOST:PORT."""
    match = _TCP.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match.group(2)) <= kinds.PORT_MAX:
        raise Refused(f"must be such as tcp://0.0.0.0:7700, not {shown(value)}")
    return str(value)


def _networks(value: Any) -> tuple[str, ...]:
    """A list of networks in CIDR form."""
    if not isinstance(value, list):
        raise Refused(f'must be a list such as ["10.20.0.0/16"], not {shown(value)}')
    for one in value:
        try:
            ipaddress.ip_network(one)
        except (ValueError, TypeError) as fault:
            raise Refused(f"{shown(one)} is no network: {fault}") from fault
    return tuple(value)


def _roles(value: Any) -> tuple[str, ...]:
    """A list of roles, with * and ?."""
    good = isinstance(value, list) and all(isinstance(i, str) and _ROLE.fullmatch(i) for i in value)
    if not good:
        raise Refused(f'must be a list such as ["application.*"], not {shown(value)}')
    return tuple(value)


def _mechanisms(value: Any) -> tuple[str, ...]:
    """A list of KEY, PASSWORD and TOKEN."""
    if not isinstance(value, list) or not value:
        raise Refused(f'must be a list such as ["KEY", "PASSWORD"], not {shown(value)}')
    for one in value:
        if one not in MECHANISMS:
            hint = did_you_mean(one, MECHANISMS) if isinstance(one, str) else ""
            raise Refused(f"{shown(one)} is none of {', '.join(MECHANISMS)}{hint}")
    if len(set(value)) < len(value):
        raise Refused(f"{shown(value)} has one twice")
    return tuple(value)


Address = Annotated[str, reads(_address)]
Networks = Annotated[tuple[str, ...], reads(_networks)]
Roles = Annotated[tuple[str, ...], reads(_roles)]
Mechanisms = Annotated[tuple[str, ...], reads(_mechanisms)]


class Listener(Named, frozen=True, kw_only=True):
    """Where clients connect over TCP, encrypted; a secured node names it in listen."""

    address: Annotated[Address, key(example="tcp://0.0.0.0:7701")]
    """The address, such as tcp://0.0.0.0:7700."""
    server_key_file: Annotated[Path, key(example="keys/NODE1.server.key")]
    """The file with the node's key pair; hms keys create writes it. Relative to this file."""
    client_keys: Literal["KNOWN", "ANY"] = "KNOWN"
    """KNOWN lets in who has a key of security.toml; ANY everybody as far as the login."""
    mechanisms: Mechanisms = MECHANISMS
    """Which logins are offered: a client key of a user, passwords, tokens."""
    roles: Roles = ("*",)
    """Which roles are active here; ["application.*"] keeps administrators out."""
    addresses: Networks = ()
    """Networks from which clients may come; none: from anywhere."""


LISTENER = Section(("listener",), Listener, "# [listener.clients]")
