"""The kinds of values in hms.conf that concern the links of a cluster."""

import ipaddress
import re
from typing import Any

from hms.boot.kinds import Refused, shown

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z")
KEY_CHARACTERS = 40


def host(value: Any) -> str:
    """A host's name or address, without a port."""
    if not isinstance(value, str) or not value:
        raise Refused(f'must be a host, such as "10.0.0.1", not {shown(value)}')
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if _NAME.match(value) is None:
            raise Refused(f"{shown(value)} is no host name or address") from None
    return value


def is_loopback(value: str) -> bool:
    """Whether a host is this machine alone."""
    if value == "localhost":
        return True
    try:
        return ipaddress.ip_address(value).is_loopback
    except ValueError:
        return False


def one_host(address: str) -> str:
    """An address as others are compared with it: this machine has one name."""
    is_tcp = address.startswith("tcp://")
    return address.lower().replace("//localhost:", "//127.0.0.1:") if is_tcp else address


def public_key(value: Any) -> str:
    """40 characters, as hms config keys prints them."""
    is_text = isinstance(value, str) and len(value) == KEY_CHARACTERS
    if not is_text or not value.isascii() or not value.isprintable():
        raise Refused(f"must be {KEY_CHARACTERS} characters, as hms config keys prints them")
    text: str = value
    return text
