"""Passwords: only their argon2id hashes are kept; a check takes about a tenth of a second.

argon2-cffi, of the extra `security`, is loaded when the first password is hashed or checked.
"""

import re
import unicodedata
from typing import Any

from hms.errors.catalogue import InvalidArgument, NotSupported

__all__ = [
    "MEMORY_KIB",
    "PASSWORD_BYTES_MAX",
    "TIME_COST",
    "check_hash",
    "hash_password",
    "is_weaker",
    "prepared",
    "verify",
]

PASSWORD_BYTES_MAX = 1024
TIME_COST, MEMORY_KIB, PARALLELISM = 3, 65_536, 4
"""RFC 9106's second recommendation, the default of argon2-cffi."""
_HASH = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,8}),t=(\d{1,3}),p=(\d{1,3})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,128}"
)
_BOUNDS = (("m", 8 << 10, 256 << 10), ("t", 1, 10), ("p", 1, 16))
"""What a stored hash may ask for: one of 4 GiB would end the node."""


def check_hash(text: str) -> str:
    """Why this cannot be a stored password; "" when it can."""
    found = _HASH.fullmatch(text)
    if found is None:
        return "it is no argon2id hash; set it with hms user password"
    for (name, least, most), value in zip(_BOUNDS, map(int, found.groups()), strict=True):
        if not least <= value <= most:
            return f"the hash asks for {name}={value}; {least} to {most} are allowed"
    return ""


def is_weaker(stored: str, time_cost: int, memory_kib: int) -> bool:
    """Whether a stored hash costs less, in passes or in memory."""
    found = _HASH.fullmatch(stored)
    return found is not None and (int(found[1]) < memory_kib or int(found[2]) < time_cost)


def prepared(password: str | bytes) -> bytes:
    """The bytes that are hashed: NFC of UTF-8, 1 to 1,024 of them, no NUL; InvalidArgument."""
    try:
        text = password.decode() if isinstance(password, bytes) else password
        data = unicodedata.normalize("NFC", text).encode()
    except UnicodeError as fault:
        raise InvalidArgument(what="password", detail="it is no UTF-8 text") from fault
    if not 1 <= len(data) <= PASSWORD_BYTES_MAX or b"\0" in data:
        detail = f"1 to {PASSWORD_BYTES_MAX} bytes of UTF-8, none of them 0"
        raise InvalidArgument(what="password", detail=detail)
    return data


def hash_password(password: str | bytes, *, time_cost: int = TIME_COST, memory_kib: int = 0) -> str:
    """The hash to keep."""
    hasher = _argon2().PasswordHasher(
        time_cost=time_cost, memory_cost=memory_kib or MEMORY_KIB, parallelism=PARALLELISM
    )
    made: str = hasher.hash(prepared(password))
    return made


def verify(stored: str, password: bytes) -> bool:
    """Whether the password is the one of a hash; releases the interpreter's lock meanwhile."""
    try:
        data = prepared(password)
    except InvalidArgument:
        data = b"\0"  # takes as long as any other, and is nobody's
    argon2 = _argon2()
    try:
        return bool(argon2.PasswordHasher().verify(stored, data))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _argon2() -> Any:
    try:
        import argon2  # noqa: PLC0415 - the extra is needed for passwords only
    except ImportError as fault:
        instead = "Install hybrid-messaging[security]."
        raise NotSupported(feature="a password without argon2-cffi", instead=instead) from fault
    return argon2
