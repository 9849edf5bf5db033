"""Bytes in flight of a user: how much its consumers hold together, delivered and not settled.

At the limit none of them gets more until something is settled; consumers of others go on, and no
acknowledgement is limited. The last message may go beyond, so none is too large. An acknowledgement
in a transaction counts as settled: a transaction that takes more than the limit could not end.
"""

__all__ = ["BytesInFlight"]

UNLIMITED = 1 << 62


class BytesInFlight:
    """bytes_max: 0 when there is no limit any more. size_bytes: of what is in flight."""

    __slots__ = ("bytes_max", "size_bytes")

    def __init__(self) -> None:
        self.bytes_max = self.size_bytes = 0

    @property
    def room_bytes(self) -> int:
        """How much more may be delivered; none below 1."""
        return self.bytes_max - self.size_bytes if self.bytes_max else UNLIMITED
