"""Bodies: head and body of a message, from memory or from the log."""

from hms.engine.messages import StoredMessage
from hms.store.interface import SegmentGoneError, Store


class Bodies:
    """Reads back what is not in memory; never under the engine's lock (P5)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, message: StoredMessage) -> bytes:
        """Head and body.

        A message that is moved while its old place is read is read again at its new one.
        """
        while True:
            payload, block, slot = message.payload, message.block, message.slot
            if len(payload) == message.length:
                return payload
            assert block is not None, "only what lies in the log is taken out of memory"
            try:
                return self._store.read(block.base + block.offsets[slot], message.length)
            except SegmentGoneError:
                if message.block is block:
                    raise
