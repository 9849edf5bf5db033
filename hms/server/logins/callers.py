"""What a connection's transport proves of who is behind it, before it has said a word."""

import ipaddress

import msgspec

from hms.errors.catalogue import InvalidArgument

__all__ = ["UNKNOWN", "UNMAPPED_UID", "Caller", "caller_at", "network_text", "source_of"]

UNMAPPED_UID = 65_534
"""What a process of another user namespace shows when its user has no number here."""

UNKNOWN = "unknown"
"""In place of an address that libzmq does not tell."""
_BITS = {4: 32, 6: 64}
"""How long the networks are that failures are counted for."""
_WORDS = 4
"""So many words of an IPv6 address are its network."""


class Caller(msgspec.Struct, frozen=True):
    """listener: its name or address; address: where a TCP connection comes from, else ""; uid, gid:
    of the process at the other end of a local socket, else -1; key: its CURVE key, else ""."""

    listener: str
    address: str = ""
    uid: int = -1
    gid: int = -1
    key: str = ""

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what it sends."""
        return bool(self.key) or not self.address

    @property
    def source(self) -> str:
        """What failures are counted for: an address, of IPv6 its network, or a local user."""
        if not self.address:
            return f"uid {self.uid}"
        return _network_of(self.address) if ":" in self.address else self.address

    @property
    def remote(self) -> str:
        """The source, when it is another machine; "" for this one."""
        source = self.source
        is_here = not self.address or source.startswith("127.") or source in ("::1", UNKNOWN)
        return "" if is_here else source

    def __str__(self) -> str:
        where = self.address or f"uid {self.uid}"
        return f"{where} at {self.listener}"


def _network_of(address: str) -> str:
    """The first 64 bits of an IPv6 address, such as 2001:db8:0:1; an IPv4 address that is written
    as one of IPv6 as itself, and the machine's own as ::1."""
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.is_loopback:
        return "::1"
    return ":".join(f"{int(word, 16):x}" for word in found.exploded.split(":")[:4])


def source_of(text: str) -> str:
    """What failures from there are counted for, of an address or network that somebody typed;
    InvalidArgument."""
    try:
        if "/" in text:
            found = ipaddress.ip_network(text)
            if found.prefixlen != _BITS[found.version]:
                detail = f"{text}: IPv6 addresses are counted by their /64, others one by one"
                raise InvalidArgument(what="address", detail=detail)
            text = str(found.network_address)
        address = str(ipaddress.ip_address(text))
    except ValueError as fault:
        raise InvalidArgument(what="address", detail=str(fault)) from fault
    return _network_of(address) if ":" in address else address


def network_text(source: str) -> str:
    """What failures are counted for, as it is written elsewhere: 2001:db8:0:1::/64."""
    if source.count(":") != _WORDS - 1:
        return source
    return str(ipaddress.ip_network(f"{source}::/64"))


def caller_at(listener: str, peer_address: str, key: str) -> Caller:
    """From what libzmq tells of a connection: an address, or localhost:UID:GID:PID."""
    words = peer_address.split(":")
    is_local = listener.startswith("ipc://") or (len(words) == 4 and words[0] == "localhost")  # noqa: PLR2004
    if is_local:
        try:
            return Caller(listener, "", int(words[1]), int(words[2]), key)
        except (IndexError, ValueError):
            return Caller(listener, "", UNMAPPED_UID, UNMAPPED_UID, key)
    return Caller(listener, peer_address or UNKNOWN, key=key)
