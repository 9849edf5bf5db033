"""Functions of Tmax that this version does not have; calling one says so."""

from typing import NoReturn

from field_buffer.catalogue import NotSupported
from tpmon.context import keeps_tperrno

_CONVERSATION = "Use tpcall() or tpacall()."
_EVENTS = "Publish to a topic and subscribe to it instead."


@keeps_tperrno
def tpconnect(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="a conversation", instead=_CONVERSATION)


@keeps_tperrno
def tpsend(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="a conversation", instead=_CONVERSATION)


@keeps_tperrno
def tprecv(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="a conversation", instead=_CONVERSATION)


@keeps_tperrno
def tpdiscon(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="a conversation", instead=_CONVERSATION)


@keeps_tperrno
def tpsetunsol(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="tpsetunsol()", instead=_EVENTS)


@keeps_tperrno
def tpbroadcast(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="tpbroadcast()", instead=_EVENTS)


@keeps_tperrno
def tpsubscribe(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="tpsubscribe()", instead=_EVENTS)


@keeps_tperrno
def tpunsubscribe(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="tpunsubscribe()", instead=_EVENTS)


@keeps_tperrno
def tppost(*_: object, **__: object) -> NoReturn:
    """Refused: NotSupported."""
    raise NotSupported(feature="tppost()", instead=_EVENTS)


__all__ = [
    "tpbroadcast",
    "tpconnect",
    "tpdiscon",
    "tppost",
    "tprecv",
    "tpsend",
    "tpsetunsol",
    "tpsubscribe",
    "tpunsubscribe",
]
