"""Global order: what a producer adds to its messages while it is in one (F-C16)."""

from typing import Any

import msgspec

from field_buffer.types import FieldType
from hms.client.core.arguments import check_text
from hms.client.pending_sends import Encoded
from hms.errors.catalogue import InvalidArgument
from hms.wire.packed_messages import (
    FLAG_ORDER,
    HEAD_BYTES_MAX,
    PROPERTY_GLOBAL_ORDER,
    ROW,
    decode_head,
    encode_head,
)


def check_order_name(name: Any) -> str:
    """A name that an order may have."""
    return check_text("name", name, least=1)


def in_order(encoded: Encoded, name: str) -> Encoded:
    """The message as one of that order; the application's own message stays as it is."""
    row, data, body = encoded
    head = decode_head(data)
    types = head.types and head.types + bytes((FieldType.STRING,))
    properties = dict(head.properties)
    if PROPERTY_GLOBAL_ORDER in properties:  # it says itself in which one it is
        return encoded
    properties[PROPERTY_GLOBAL_ORDER] = name
    data = encode_head(msgspec.structs.replace(head, properties=properties, types=types))
    if len(data) > HEAD_BYTES_MAX:
        detail = f"they take {len(data)} bytes; {HEAD_BYTES_MAX} are allowed"
        raise InvalidArgument(what="the message's properties", detail=detail)
    _, *sizes, flags, spare = ROW.unpack(row)
    return ROW.pack(len(data), *sizes, flags | FLAG_ORDER, spare), data, body
