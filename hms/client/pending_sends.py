"""Pending sends: what stands for messages until the node has said what became of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from hms.client.core.pending_requests import own_copy
from hms.client.core.tracing import Span
from hms.client.destinations import Destination
from hms.client.message import Message
from hms.client.receipt import Receipt, Run
from hms.errors.catalogue import SendFailed
from hms.errors.tree import HmsError
from hms.wire.packed_messages import KIND_CARRAY, PRIORITY_DEFAULT, ROW

_pack_row = ROW.pack
Encoded = tuple[bytes, bytes, bytes]
"""Row, head and body of a message."""


class SendOptions(NamedTuple):
    """How messages are sent."""

    is_persistent: bool = True
    ttl_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    flags: int = 0
    """FLAG_RETAIN or nothing."""
    delay_ms: int = 0
    codec: str = ""
    """How bodies are compressed."""

    def bare_row(self, size: int) -> bytes:
        """The row of bare bytes of that size, which have no head."""
        _, ttl_ms, priority, flags, delay_ms, _ = self
        return _pack_row(0, size, ttl_ms, delay_ms, priority, KIND_CARRAY, flags, 0)


class Outcome(Protocol):
    """A future, of threads or of asyncio."""

    def done(self) -> bool:
        """Whether it was told, or cancelled."""

    def set_result(self, result: Receipt, /) -> None:
        """The node has the message."""

    def set_exception(self, exception: HmsError, /) -> None:
        """The node has it not."""


class PendingSend(msgspec.Struct, eq=False):
    """What stands for consecutive messages of a frame until their outcome is known.

    messages: the application's own, with their places, to be marked as sent; a body that was given
    bare has none. future: where the outcome goes when nobody waits for it. is_unattended: nobody
    waits, as with a future; then the exception listener is told a bad outcome. is_in_doubt:
    somebody was told that its outcome is not known; then it is not sent again.
    """

    count: int
    messages: Sequence[tuple[int, Message]]
    options: SendOptions
    future: Outcome | None = None
    is_unattended: bool = False
    begun_at: float = 0.0
    is_given_up: bool = False
    is_in_doubt: bool = False
    is_sent: bool = False
    is_done: bool = False
    run: Run | None = None
    error: HmsError | None = None
    span: Span | None = None
    """Where sends are traced."""

    @property
    def receipts(self) -> list[Receipt]:
        """One for each message; none before it is confirmed."""
        return (
            [] if self.run is None else list(map(self.run.receipt, range(self.run.message_count)))
        )

    def ended(self) -> None:
        """Its sender stopped waiting: where it is traced, that ends."""
        if self.span is not None:
            self.span.end(self.error)

    def refused(self, error: BaseException) -> None:
        """It never was on its way."""
        if self.span is not None:
            self.span.end(error)

    def receipt(self) -> Receipt:
        """That of a single message, or the error it ended with."""
        if self.error is not None:
            raise own_copy(self.error)
        assert self.run is not None
        return self.run.receipt(0)

    def tell(self) -> None:
        """Tell the future, which calls functions of the application."""
        self.ended()
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(own_copy(self.error))
        else:
            self.future.set_result(self.receipt())

    def tell_late(self, error: HmsError) -> Callable[[], None]:
        """The same, before the outcome is known; later nobody is left who could be told."""
        future, self.future = self.future, None

        def tell() -> None:
            if future is not None and not future.done():
                future.set_exception(own_copy(error))

        return tell

    def failure(self, destination: Destination) -> SendFailed:
        """What the exception listener is told; its attribute `messages` has the application's own
        messages."""
        assert self.error is not None
        failure = SendFailed(
            destination=str(destination), count=self.count, reason=str(self.error), message_id=""
        )
        failure.__cause__ = self.error
        failure.messages = [message for _, message in self.messages]  # type: ignore[attr-defined]
        return failure
