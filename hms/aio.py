"""The same client for asyncio: not in this version. hms.connect() works in asyncio.to_thread()."""

from typing import NoReturn

from field_buffer.catalogue import NotSupported


def connect(*_: object, **__: object) -> NoReturn:
    """Refused in this version: NotSupported."""
    raise NotSupported(feature="hms.aio", instead="Use hms.connect() in asyncio.to_thread().")


__all__ = ["connect"]
