"""Who takes part in a link: consumers, and sessions that are opened again after a loss."""

from collections.abc import Callable, Sequence
from typing import Protocol

from hms.client.core.operations import Steps
from hms.client.core.pending_requests import Pending
from hms.errors.tree import HmsError
from hms.wire.packed_messages import DeliveredRow


class Receiver(Protocol):
    """A consumer."""

    def delivered(
        self,
        epoch: int,
        messages: Sequence[tuple[DeliveredRow, bytes, bytes]],
        size_bytes: int,
    ) -> None:
        """Messages came, as (row, head, body), with so many bytes of heads and bodies; others may
        be given the very same."""

    def taken_back(self, error: HmsError) -> None:
        """The node closed it, and has back what was not settled."""


class Ticking(Protocol):
    """What asks, in link.ticking, to be ticked."""

    tick_s: float
    """How long after it asked for it."""

    def tick(self) -> None:
        """Do what is due."""


class Participant(Ticking, Protocol):
    """A session, or whatever else has to be opened again on a new connection."""

    def restore(self) -> None:
        """Ask the node to open all that was open."""

    def lost(self, error: HmsError) -> None:
        """The connection is lost, and all that the node knew of it."""

    def drain(self) -> None:
        """The node begins nothing new: say what is held back, give back what nobody has seen."""

    def tick(self) -> None:
        """Send what was held back to be sent together."""

    def leave(self) -> Pending | None:
        """The connection closes in order: what is asked of the node before."""


class Caller(Protocol):
    """Who calls functions of the application, one at a time: a session's listeners."""

    @property
    def is_calling(self) -> bool:
        """Whether one of them is running, or what called them has still to end."""

    def is_within(self, me: object) -> bool:
        """Whether this thread or task is the one that runs it."""

    def serves(self, session: object) -> bool:
        """Whether its functions are the listeners of that session."""

    def hush(self) -> None:
        """Call none any more."""

    def afterwards(self, closing: Callable[[], Steps[None]]) -> None:
        """Do that when the running one has ended."""
