"""What was asked of the node and waits for its answer. No socket, thread or clock.

An answer finds its question by the correlation number. When the connection is lost, the question
itself knows whether it may be asked again: an open or a browse may, a purge may not.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.structures import OpenProducer, OpenSession, decode_error, decode_reply

TURNED_AWAY = "the connection was lost, and their producer is refused since: {}"
"""Why nobody knows of what came again."""
Frame = Sequence[bytes]
"""Envelope and payload."""


def own_copy(error: HmsError) -> HmsError:
    """The error for one caller: raised by several threads, one object would mix their traces."""
    copy = type(error)(**error.fields)
    copy.request = error.request
    return copy


def reason_of(error: HmsError) -> str:
    """Why a connection was lost, in short."""
    return str(error.fields.get("reason", error.symbol))


class Travelling(Protocol):
    """A producer, whose frames another link may carry."""

    opening: tuple[OpenSession, OpenProducer] | None
    """What opens its session and itself at a node."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""

    @property
    def last_sequence(self) -> int:
        """The last number that was used."""

    def move(self, link: Any) -> None:
        """That link carries it from now on."""

    def push(self) -> None:
        """Send what waits."""

    def lost_of(self, log: bytes | None, last_sequence: int) -> HmsError | None:
        """What that log had confirmed and lacks now."""


class Asked(Protocol):
    """A frame that expects an answer."""

    frame: Frame
    is_bound: bool
    """Whether it must not be repeated at another log than the one that may hold it."""
    log: bytes | None
    """The log that may hold it; None for none yet, or when it does not matter."""
    is_written: bool
    """Whether a node may have it; what was never written to a socket is known not to be sent."""
    is_repeated: bool
    """Whether it was sent more than once, so that the first one may have been applied."""

    @property
    def outlives_epochs(self) -> bool:
        """Whether it may be repeated at a later primary of the same log."""

    @property
    def is_wanted(self) -> bool:
        """Whether it is something sent whose outcome somebody still waits for."""

    @property
    def travelling(self) -> Travelling | None:
        """The producer whose frame it is, if a side link may look after it."""

    def answered(self, kind: Kind, payload: bytes, request: str = "") -> None:
        """The answer is here; ERROR is one too."""

    @property
    def is_kept(self) -> bool:
        """Whether it goes to the next primary when this one says that it did not take it."""

    def lost(self, error: HmsError) -> bool:
        """The connection is lost: True to be sent again, byte for byte, on the next one."""

    def is_late(self, now: float) -> bool:
        """Whether it is not to be sent again any more."""

    def failed(self, error: HmsError) -> None:
        """There will be no answer."""

    def estranged(self, why: str = "") -> None:
        """Only another log answers, or a later epoch that cannot know it, or its producer is
        refused: whether it took effect will not be known. why: another reason than the first."""

    def unanswered(self, error: HmsError) -> None:
        """The connection has ended for good, and the answer will not come: what may have taken
        effect is in doubt (P11)."""


class OnLoss(enum.Enum):
    """What the loss of the connection means for a request."""

    FAIL = "its outcome is not known"
    REPEAT = "asking twice is the same as asking once"
    BREAK = "what it is a part of ends with the connection"
    DONE = "the loss itself brought it about"


class Pending(msgspec.Struct, eq=False):
    """A request that waits for its answer.

    error_if_lost: what its caller gets when it FAILs by a loss, instead of ConnectionLost.
    error_if_strange: what its caller gets when it would have to be repeated at another log than
    the one it may have changed, which is_bound tells; None where that does no harm.
    then: is called with the pending as soon as it is done.
    """

    what: str
    on_loss: OnLoss = OnLoss.FAIL
    error_if_lost: HmsError | None = None
    error_if_strange: HmsError | None = None
    then: "Callable[[Pending], None] | None" = None
    is_bound: bool = False
    log: bytes | None = None
    is_written: bool = False
    frame: Frame = ()
    kind: Kind = Kind.REPLY
    payload: bytes = b""
    error: HmsError | None = None
    is_done: bool = False
    is_answered: bool = False
    is_repeated: bool = False

    @property
    def outlives_epochs(self) -> bool:
        """What it changes is in the log."""
        return True

    @property
    def is_wanted(self) -> bool:
        """It sends nothing."""
        return False

    @property
    def travelling(self) -> Travelling | None:
        """It is no producer's."""
        return None

    @property
    def is_kept(self) -> bool:
        """Where it does not depend on the connection."""
        return self.on_loss in (OnLoss.FAIL, OnLoss.REPEAT)

    def is_late(self, _now: float) -> bool:
        """Whether it is not to be sent again any more."""
        return False

    def answered(self, kind: Kind, payload: bytes, request: str = "") -> None:
        """Keep the answer."""
        self.kind, self.payload, self.is_answered = kind, payload, True
        self._end(decode_error(payload, request) if kind is Kind.ERROR else None)

    def lost(self, error: HmsError) -> bool:
        """Whether it is asked again."""
        if self.on_loss is OnLoss.REPEAT:
            self.is_repeated = True
            return True
        if self.on_loss is OnLoss.DONE:
            self._end(None)
        else:
            self._end(self.error_if_lost or error)
        return False

    def failed(self, error: HmsError) -> None:
        """End it with an error."""
        self._end(error)

    def estranged(self, why: str = "") -> None:  # noqa: ARG002 - it has its error
        """End it with what it says for that case."""
        self._end(self.error_if_strange)

    def unanswered(self, error: HmsError) -> None:
        """It fails as by a loss, and is not repeated."""
        if self.on_loss is OnLoss.REPEAT:
            self._end(self.error_if_strange or error)
        else:
            self.lost(error)

    def done(self) -> None:
        """End it well, without an answer from the node."""
        self._end(None)

    def checked(self) -> "Pending":
        """Itself, or the error it ended with."""
        if self.error is not None:
            raise own_copy(self.error)
        return self

    def value(self) -> Any:
        """The plain data of the reply, or the error it ended with."""
        return decode_reply(self.checked().payload)

    def _end(self, error: HmsError | None) -> None:
        self.error = error
        self.is_done = True
        if self.then is not None:
            self.then(self)
