"""A consumer as a queue or subscription sees it: whom it may give how much, and what that has.

Sessions know their destinations. That destinations do not know sessions keeps the two apart.
"""

from typing import Protocol

from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.messages import StoredMessage
from hms.engine.selector import Selector

__all__ = ["ConnectionView", "ConsumerView", "SessionView"]


class ConnectionView(Protocol):
    """The connection of a consumer."""

    number: int
    uid: int
    client_id: str
    in_flight: BytesInFlight | None


class SessionView(Protocol):
    """The session of a consumer."""

    handle: int
    ack_mode: int

    @property
    def connection(self) -> ConnectionView:
        """Whose it is."""


class ConsumerView(Protocol):
    """See hms.engine.session.session_objects.Consumer."""

    handle: int
    name: str
    credit: int
    room_bytes: int
    epoch: int
    listener: str
    priority: int
    selector: Selector | None
    out: dict[int, StoredMessage]
    out_bytes: int

    @property
    def connection(self) -> ConnectionView:
        """Whose it is."""

    @property
    def session(self) -> SessionView:
        """The unit of work that it belongs to."""

    def wants(self, message: StoredMessage) -> bool:
        """Whether its selector lets the message through."""
