"""Keys of an encrypted connection: those that the node may show, and the client's own pair."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq

from hms.errors.catalogue import InvalidArgument, KeyFileError

__all__ = ["ClientKeys", "check_server_keys", "client_keys"]

KEY_CHARACTERS = 40
SERVER_KEYS_MAX = 64


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """servers: tried in turn; public and secret: its own pair, in Z85."""

    servers: tuple[bytes, ...]
    public: bytes
    secret: bytes = field(repr=False)


def check_server_keys(server_keys: Sequence[str]) -> None:
    """InvalidArgument for what are no public keys."""
    if isinstance(server_keys, str) or not isinstance(server_keys, list | tuple):
        raise InvalidArgument(what="server_keys", detail="it is no list of keys")
    for key in server_keys:
        if not isinstance(key, str) or len(key) != KEY_CHARACTERS or not key.isascii():
            detail = f"each has {KEY_CHARACTERS} characters, as hms keys create prints them"
            raise InvalidArgument(what="server_keys", detail=detail)
    if len(server_keys) > SERVER_KEYS_MAX:
        raise InvalidArgument(what="server_keys", detail=f"at most {SERVER_KEYS_MAX} are tried")


def client_keys(server_keys: Sequence[str], key_file: str) -> ClientKeys | None:
    """What was given, checked; without a file a pair is drawn. None: not encrypted."""
    check_server_keys(server_keys)
    if not isinstance(key_file, str):
        raise InvalidArgument(what="key_file", detail="it is no path")
    if not server_keys:
        if key_file:
            detail = "the node's own key is missing: give server_keys too"
            raise InvalidArgument(what="key_file", detail=detail)
        return None
    public, secret = _read(key_file) if key_file else zmq.curve_keypair()
    return ClientKeys(tuple(key.encode() for key in server_keys), public, secret)


def _read(path: str) -> tuple[bytes, bytes]:
    """The pair of a file that only its owner may read: "public KEY", "secret KEY"."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - its mode is looked at before it is read
            mode, lines = os.fstat(file.fileno()).st_mode, file.read(1024).splitlines()
    except (OSError, ValueError) as fault:
        raise KeyFileError(path=path, detail=str(fault)) from fault
    if stat.S_IMODE(mode) & 0o077:
        raise KeyFileError(path=path, detail="others may read it: chmod 600 it")
    found = dict(line.split(b" ", 1) for line in lines if line.count(b" ") == 1)
    public, secret = found.get(b"public", b""), found.get(b"secret", b"")
    try:
        is_pair = len(secret) == KEY_CHARACTERS and zmq.curve_public(secret) == public
    except (zmq.ZMQError, ValueError):
        is_pair = False
    if not is_pair:
        raise KeyFileError(path=path, detail="it does not hold a key pair")
    return public, secret
