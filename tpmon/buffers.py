"""tpalloc and its family: buffers have a type; in Python they grow by themselves."""

from typing import Any

from field_buffer import FieldBuffer
from hms.client.core.service_data import Data, encode_data
from hms.errors.catalogue import InvalidArgument
from tpmon.context import keeps_tperrno

__all__ = ["tpalloc", "tpfree", "tprealloc", "tptypes"]


@keeps_tperrno
def tpalloc(type: str, subtype: str = "", size: int = 0) -> Any:  # noqa: A002, ARG001 - Tmax's
    """An empty buffer of a type: STRING, CARRAY, X_OCTET or FIELD."""
    made = {"STRING": str, "CARRAY": bytearray, "X_OCTET": bytearray, "FIELD": FieldBuffer}
    if type not in made:
        raise InvalidArgument(what="tpalloc()", detail=f"{type!r} is no buffer type here")
    return made[type]()


def tprealloc(buf: Any, size: int) -> Any:  # noqa: ARG001 - Tmax's arguments
    """The buffer; buffers grow by themselves."""
    return buf


def tpfree(buf: Any) -> None:
    """Nothing; kept for the reader's eye."""


@keeps_tperrno
def tptypes(buf: Data) -> tuple[str, str, int]:
    """Type, subtype and size in bytes of a buffer."""
    name = "CARRAY"
    if isinstance(buf, str):
        name = "STRING"
    elif isinstance(buf, FieldBuffer | dict):
        name = "FIELD"
    return name, "", len(encode_data(buf)[1])
