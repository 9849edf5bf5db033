"""Outcome tokens: what a client keeps of a send or commit in doubt, to ask about it later.

The client makes the token, because the node is not there when it is needed. It signs it with a key
that the node's log has given to this client and user in its WELCOME, so that only that log, asked
by the same user, answers; a token that was altered is not one.
"""

import base64
import binascii
import hashlib
import hmac

import msgspec

from hms.errors.catalogue import TokenRefused

__all__ = ["TOKEN_CHARACTERS_MAX", "Token", "is_signed", "key_of", "read_token", "seal"]

TOKEN_CHARACTERS_MAX = 1024
_MAC_BYTES = 16
_PREFIX = "hms1."


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """log: which one may hold it; client_uid, user: whose it is; handle: of the producer or
    session; number: first sequence of the frame, or the commit's number; offset, count: which
    messages of its frame_count; is_logged: whether the log has it if it was taken."""

    log: bytes
    client_uid: int
    user: str
    is_commit: bool
    handle: int
    number: int
    offset: int = 0
    count: int = 1
    frame_count: int = 1
    is_logged: bool = True


def key_of(secret: bytes, client_uid: int, user: str) -> bytes:
    """What a client of that number and user signs its tokens with; empty without a secret."""
    if not secret:
        return b""
    said = msgspec.msgpack.encode(("outcome", client_uid, user))
    return hmac.new(secret, said, hashlib.sha256).digest()


def seal(token: Token, key: bytes) -> str:
    """The token as text, signed; "" without a key."""
    if not key:
        return ""
    body = msgspec.msgpack.encode(token)
    said = base64.urlsafe_b64encode(_mac(key, body) + body).decode().rstrip("=")
    return _PREFIX + said


def read_token(text: str) -> Token:
    """What a text says, before anybody knows whether it is true; TokenRefused when it is none."""
    if not text.startswith(_PREFIX) or len(text) > TOKEN_CHARACTERS_MAX:
        raise TokenRefused
    said = text.removeprefix(_PREFIX)
    try:
        found = base64.b64decode(said + "=" * (-len(said) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(found[_MAC_BYTES:], type=Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise TokenRefused from None


def is_signed(token: Token, text: str, secret: bytes) -> bool:
    """Whether the text is this token, signed with a key of this secret."""
    signed = seal(token, key_of(secret, token.client_uid, token.user))
    return bool(signed) and hmac.compare_digest(signed.encode(), text.encode())


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).digest()[:_MAC_BYTES]
