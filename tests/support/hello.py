"""HELLO of a client of a test, told apart by a small number."""

from typing import Any

from hms.wire.client_identity import uid_of
from hms.wire.structures import Hello

__all__ = ["hello_of"]


def hello_of(number: int, **options: Any) -> Hello:
    """The Hello of the client that has the secret of that number."""
    secret = b"%016d" % number
    return Hello(uid_of(secret), secret=secret, **options)
