"""Asking a node: requests, and calls of services in both directions."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from field_buffer.catalogue import RequestTimeout, ServiceTimeout
from field_buffer.errors import HmsError
from field_buffer.packing import KIND_CARRAY
from tpmon.asked import OnLoss, Pending, own_copy
from tpmon.background import Background
from tpmon.link import Link, State
from tpmon.protocol.frames import Kind
from tpmon.protocol.structures import (
    Advertise,
    CallHead,
    InvokeHead,
    Request,
    ResultHead,
    Unadvertise,
    decode_with_body,
    encode_with_body,
)
from tpmon.reconnect import Attempts

_ANSWER_LATE_S = 5.0
"""How much longer than the node the client waits for the answer to a call."""


class Calling(Background):
    """See the module. request_timeout_s: how long a request waits, through an outage too."""

    def __init__(
        self,
        link: Link,
        addresses: Sequence[str],
        *,
        reconnect: bool,
        attempts: Attempts,
        request_timeout_s: float,
    ) -> None:
        super().__init__(link, addresses, reconnect=reconnect, attempts=attempts)
        self.request_timeout_s = request_timeout_s
        self._services = _Services(link)

    # ---- requests

    def request(
        self, request: Request, timeout_s: float | None = None, on_loss: OnLoss = OnLoss.REPEAT
    ) -> Any:
        """Ask, wait, and return the reply's plain data, or raise what the node answered."""
        pending = Pending(type(request).__name__, on_loss)
        with self.lock:
            if isinstance(request, Advertise | Unadvertise):
                self._services.note(request)
            self.link.request(request, pending)
            self.answer_to(pending, timeout_s)
        return pending.value()

    def answer_to(self, pending: Pending, timeout_s: float | None = None) -> Pending:
        """Wait until it is done, lock held; RequestTimeout, ConnectionLost, or the node's error."""
        self.flush()
        patience_s = self.request_timeout_s if timeout_s is None else timeout_s
        if not self.wait_for(pending, lambda: pending.is_done, monotonic() + patience_s):
            self.link.abandon(pending)
            raise self.too_late(pending.what, patience_s)
        return pending.checked()

    def too_late(self, what: str, timeout_s: float) -> HmsError:
        """The error for a wait that took too long, lock held."""
        if self.link.state is not State.UP:
            return own_copy(self.link.error)
        return RequestTimeout(what=what, timeout_s=timeout_s)

    # ---- services

    def call(
        self, service: str, data: bytes, kind: int = KIND_CARRAY, timeout_s: float = 30
    ) -> tuple[ResultHead, bytes]:
        """Run a service and wait for its result; ServiceTimeout, ServiceNotFound, ServerLost."""
        pending = self.start_call(service, data, kind, timeout_s)
        assert pending is not None
        return self.end_call(pending, timeout_s)

    def start_call(
        self,
        service: str,
        data: bytes,
        kind: int = KIND_CARRAY,
        timeout_s: float = 30,
        *,
        is_reply_wanted: bool = True,
        notify: object = None,
    ) -> Pending | None:
        """Call a service without waiting; None when no reply is wanted. notify: another key to be
        woken by the answer."""
        head = CallHead(service, max(1, int(timeout_s * 1000)), kind, is_reply_wanted)
        payload = encode_with_body(head, data)
        pending = Pending(service, then=lambda _: self.link.woken.append(notify))
        if not is_reply_wanted:
            self._tell_call(payload)
            return None
        with self.lock:
            self.link.ask(Kind.CALL, payload, pending)
            self.flush()
        return pending

    def _tell_call(self, payload: bytes) -> None:
        with self.lock:
            if self.link.state is not State.UP:
                raise own_copy(self.link.error)
            self.link.tell(Kind.CALL, payload)
            self.flush()

    def end_call(self, pending: Pending, timeout_s: float) -> tuple[ResultHead, bytes]:
        """Wait for the result of a call."""
        deadline = monotonic() + timeout_s + _ANSWER_LATE_S
        with self.lock:
            if not self.wait_for(pending, lambda: pending.is_done, deadline):
                self.link.abandon(pending)
                raise ServiceTimeout(service=pending.what, timeout_s=timeout_s)
        return decode_with_body(pending.checked().payload, ResultHead)

    def on_invoke(self, callback: Callable[[InvokeHead, bytes], None]) -> None:
        """Have this called for every INVOKE, on a thread of the library; it must not block."""
        with self.lock:
            self.link.on_invoke = callback

    def send_result(self, result: ResultHead, data: bytes = b"") -> None:
        """Answer an INVOKE; said to nobody when the connection was lost meanwhile."""
        with self.lock:
            self.link.tell(Kind.RESULT, encode_with_body(result, data))
            self.flush()

    def advertise(self, service: str) -> None:
        """Offer a service, also after every reconnect."""
        self.request(Advertise(service))

    def unadvertise(self, service: str) -> None:
        """Offer it no longer."""
        self.request(Unadvertise(service))


class _Services:
    """The services that this connection offers: a participant that offers them again."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._names: dict[str, None] = {}
        link.participants.append(self)

    def note(self, request: Advertise | Unadvertise) -> None:
        if isinstance(request, Advertise):
            self._names[request.service] = None
        else:
            self._names.pop(request.service, None)

    def restore(self) -> None:
        for name in self._names:
            self._link.request(Advertise(name), Pending("Advertise", OnLoss.DONE))

    def lost(self, error: HmsError) -> None:
        pass

    def tick(self) -> None:
        pass
