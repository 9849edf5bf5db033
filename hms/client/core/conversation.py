"""Conversation: one side of a conversation as an object, for clients and for generator services."""

from time import monotonic
from types import TracebackType
from typing import Any, Self

from hms.client.core.calls import Calls
from hms.client.core.conversation_state import ConversationState, Part
from hms.client.core.pending_requests import own_copy
from hms.client.core.service_data import Data, decode_data, encode_data
from hms.client.core.thread_driver import ThreadDriver
from hms.errors.catalogue import ConversationEnded, RequestTimeout
from hms.wire.service_codes import TPEV_DISCONIMM, TPEV_SVCERR, TPEV_SVCFAIL, TPEV_SVCSUCC

__all__ = ["Conversation"]

BLOCK_TIME_S = 30.0
"""How long to wait for the other side when nothing else is said."""

_ENDS = {
    TPEV_DISCONIMM: "the other side has left",
    TPEV_SVCERR: "its server failed",
    TPEV_SVCFAIL: "the service failed",
    TPEV_SVCSUCC: "the service has returned",
}


class Conversation:
    """One side of a conversation as an object: send() and receive() raise when it is over, or
    return what it ended with. See Connection.conversation()."""

    def __init__(
        self,
        driver: ThreadDriver,
        calls: Calls,
        talk: ConversationState,
        service: str,
        timeout_s: float,
        cd: int = 0,
    ) -> None:
        self._driver, self._calls = driver, calls
        self._talk = talk
        self._service = service
        self._timeout_s = timeout_s
        self._is_told = False
        self.cd = cd

    @property
    def has_control(self) -> bool:
        """Whether this side may speak."""
        return self._talk.has_control and not self._talk.event

    @property
    def is_over(self) -> bool:
        """Whether nothing can be said any more; what came before can still be received."""
        return bool(self._talk.event)

    def send(self, data: Data, *, gives_control: bool = False) -> None:
        """Say something; ConversationEnded, ConversationProtocol, RequestTimeout."""
        kind, encoded = encode_data(data)
        part = Part(kind, encoded, gives_control)
        event = self._driver.run(self._calls.saying(self._talk, part, self._deadline()))
        if event:
            raise self._ended(event)

    def receive(self) -> Any:
        """What the other side says. What a service returned is the last of it; then, and when it
        ended otherwise, ConversationEnded. RequestTimeout when nothing came in time."""
        found = self._driver.run(self._talk.receiving(self._deadline()))
        if found is None:
            raise self._late()
        event, part = found
        if event:
            if event != TPEV_SVCSUCC or self._is_told:
                raise self._ended(event)
            self._is_told = True
        return decode_data(part.kind, part.data)

    def close(self) -> None:
        """Leave; after the end it does nothing."""
        with self._driver.lock:
            self._calls.leave(self._talk)
            self._driver.flush()

    # ---- the server's side

    def say(self, data: Any) -> None:
        """Say something and hand control over, as soon as this side has it."""
        if not self._driver.run(self._talk.awaiting_control(self._deadline())):
            raise self._late()
        self.send(data, gives_control=True)

    def hear(self) -> Any:
        """What the other side says next; ConversationEnded."""
        return self.receive()

    def _deadline(self) -> float:
        return monotonic() + self._timeout_s

    def _late(self) -> RequestTimeout:
        what = f"conversation with {self._service}"
        return RequestTimeout(what=what, timeout_s=self._timeout_s)

    def _ended(self, event: int) -> Exception:
        if self._talk.error is not None:
            return own_copy(self._talk.error)
        return ConversationEnded(service=self._service, detail=_ENDS.get(event, str(event)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
