"""Who a client is: a secret that it alone knows, and the number that others may see.

The number (uid) stands in message ids, file names and the log, so many learn it. It is the digest
of the secret: who knows only the number cannot come as that client, take its connection over, or
use its deduplication memory (P12). The node keeps no secret.
"""

import hashlib

from hms.errors.catalogue import IdentityRefused

__all__ = ["SECRET_BYTES", "check_identity", "uid_of"]

SECRET_BYTES = 16
SECRET_BYTES_MAX = 64


def uid_of(secret: bytes) -> int:
    """The number of the client that has this secret: 64 bits of its SHA-256, never 0."""
    return int.from_bytes(hashlib.sha256(secret).digest()[:8], "big") or 1


def check_identity(uid: int, secret: bytes) -> None:
    """IdentityRefused unless the uid belongs to the secret; 0 is the node itself."""
    if not SECRET_BYTES <= len(secret) <= SECRET_BYTES_MAX or uid != uid_of(secret):
        raise IdentityRefused(uid=f"{uid:#x}")
