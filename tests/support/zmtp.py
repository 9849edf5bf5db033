"""ZMTP 3.1 by hand (RFC 37): for what libzmq would not send."""

import socket
import struct

__all__ = ["HANDSHAKE", "connect", "part"]

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\0" + bytes(31)
_READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
HANDSHAKE = _GREETING + b"\x04" + bytes([len(_READY)]) + _READY
"""All that a client says before its first message."""


def connect(
    endpoint: str, timeout_s: float = 30, unused: socket.socket | None = None
) -> socket.socket:
    """A connection to an endpoint, past its handshake; unused: a socket to make it with."""
    scheme, _, where = endpoint.partition("://")
    raw = unused or socket.socket(socket.AF_UNIX if scheme == "ipc" else socket.AF_INET)
    raw.settimeout(timeout_s)
    host, _, port = where.rpartition(":")
    raw.connect(where if scheme == "ipc" else (host, int(port)))
    raw.sendall(_GREETING)
    _read(raw, len(_GREETING))
    raw.sendall(b"\x04" + bytes([len(_READY)]) + _READY)
    flags, size = _read(raw, 2)
    assert flags == 4
    _read(raw, size)
    return raw


def part(content: bytes, *, is_last: bool) -> bytes:
    """A part of a message as it crosses the wire."""
    more = 0 if is_last else 1
    if len(content) < 256:
        return bytes([more, len(content)]) + content
    return bytes([more | 2]) + struct.pack(">Q", len(content)) + content


def _read(raw: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = raw.recv(size - len(read))
        assert more, "the other side has closed the connection"
        read += more
    return read
