"""What a connection's transport proves of who is behind it, before it has said a word."""

import ipaddress

import msgspec

__all__ = ["UNMAPPED_UID", "Caller", "caller_at"]

UNMAPPED_UID = 65_534
"""What a process of another user namespace shows when its user has no number here."""


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


def caller_at(listener: str, peer_address: str, key: str) -> Caller:
    """From what libzmq tells of a connection: an address, or localhost:UID:GID:PID."""
    words = peer_address.split(":")
    is_local = listener.startswith("ipc://") or (len(words) == 4 and words[0] == "localhost")  # noqa: PLR2004
    if is_local:
        try:
            return Caller(listener, "", int(words[1]), int(words[2]), key)
        except (IndexError, ValueError):
            return Caller(listener, "", UNMAPPED_UID, UNMAPPED_UID, key)
    return Caller(listener, peer_address or "unknown", key=key)
