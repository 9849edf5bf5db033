"""Keys: each node has a CURVE key pair; hms.conf names the file with the secret one.

A key file is two lines, "public KEY" and "secret KEY", each key 40 characters of Z85; only its
owner may read it.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

import zmq

from hms.errors.catalogue import LinkKeyError

KEY_CHARACTERS = 40


class KeyPair(NamedTuple):
    """Both halves, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.public.decode()}, ...)"


def make_key_file(path: Path) -> str:
    """Write a new pair, never over an old one; the public key."""
    public, secret = zmq.curve_keypair()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as fault:
        raise LinkKeyError(detail=f"{path} cannot be written: {fault.strerror}") from fault
    with os.fdopen(handle, "wb") as file:
        file.write(b"public " + public + b"\nsecret " + secret + b"\n")
    return public.decode()


def read_key_file(path: Path) -> KeyPair:
    """The pair of a file that only its owner may read."""
    try:
        mode, text = path.stat().st_mode, path.read_bytes()
    except OSError as fault:
        raise LinkKeyError(detail=f"{path} cannot be read: {fault.strerror}") from fault
    if stat.S_IMODE(mode) & 0o077:  # not above: a LinkKeyError is an OSError too
        raise LinkKeyError(detail=f"{path} may be read by others: chmod 600 it")
    found = dict(line.split(b" ", 1) for line in text.splitlines() if line.count(b" ") == 1)
    public, secret = found.get(b"public", b""), found.get(b"secret", b"")
    if not _is_pair(public, secret):
        raise LinkKeyError(detail=f"{path} does not hold a key pair")
    return KeyPair(public, secret)


def _is_pair(public: bytes, secret: bytes) -> bool:
    if len(public) != KEY_CHARACTERS or len(secret) != KEY_CHARACTERS:
        return False
    try:
        return zmq.curve_public(secret) == public
    except (zmq.ZMQError, ValueError):
        return False


def is_public_key(text: str) -> bool:
    """Whether this can be a public key."""
    return len(text) == KEY_CHARACTERS and text.isascii() and text.isprintable()
