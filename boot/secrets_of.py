"""Passwords that hms.conf names and does not hold: env:NAME or file:PATH."""

import os
from collections.abc import Callable
from pathlib import Path

from hms.errors.tree import HmsError

__all__ = ["password_of"]


def password_of(
    named: str | None, base: Path, key: str, refused: Callable[[str], HmsError]
) -> str | None:
    """What a key names; refused: the error for one that cannot be had."""
    if named is None:
        return None
    kind, _, name = named.partition(":")
    try:
        return os.environ[name] if kind == "env" else (base / name).read_text().rstrip("\r\n")
    except KeyError as error:
        raise refused(f"the variable {name}, which {key} names, is not set") from error
    except (OSError, UnicodeDecodeError) as error:
        raise refused(f"the file {name}, which {key} names, cannot be read: {error}") from error
