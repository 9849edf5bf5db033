"""Who sent a message: the node writes it into the heads of a batch that a client packed."""

from collections.abc import Mapping

import msgspec

from hms.engine.queue.incoming import Incoming, accepted
from hms.wire.packed_messages import decode_head, encode_head, with_heads

__all__ = ["with_sender"]


def with_sender(batch: Incoming, sender: Mapping[str, str]) -> Incoming:
    """The batch with heads that say who sent it, whatever they said. MessageFormatError for a head
    that nobody can read: it could not say so."""
    rows, pack = with_heads(batch.rows, batch.pack, lambda _, data: _stamped(data, sender))
    return accepted(pack, rows)


def _stamped(data: bytes, sender: Mapping[str, str]) -> bytes:
    head = decode_head(data)
    return encode_head(msgspec.structs.replace(head, node={**head.node, **sender}))
