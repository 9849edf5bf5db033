"""Connection: one client's, or one server's, connection to a node, which outlives its sockets."""

from collections.abc import Callable
from typing import Any, Self

from field_buffer.packing import KIND_CARRAY
from tpmon.asked import OnLoss, Pending
from tpmon.background import Background
from tpmon.protocol.frames import Kind
from tpmon.protocol.structures import (
    Advertise,
    InvokeHead,
    Request,
    ResultHead,
    Unadvertise,
    encode_with_body,
)


class Connection(Background):
    """For threads, any number of them; options: the fields of tpmon.options.Options."""

    # ---- open and close

    def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        try:
            self.run(self.opening())
        except BaseException:
            self.join()
            raise
        return self

    def close(self) -> None:
        """Wait for the confirmation of what was sent, settle what was received, and disconnect."""
        self.run(self.closing())
        self.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- requests

    def request(
        self, request: Request, timeout_s: float | None = None, on_loss: OnLoss = OnLoss.REPEAT
    ) -> Any:
        """Ask, wait, and return the reply's plain data, or raise what the node answered."""
        return self.run(self.asking(request, timeout_s, on_loss))

    def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command, such as "queue.list"; returns plain data.

        One that changes something is not repeated when the connection is lost: ConnectionLost.
        """
        return self.run(self.administering(verb, arguments))

    # ---- services

    def call(
        self, service: str, data: bytes, kind: int = KIND_CARRAY, timeout_s: float = 30
    ) -> tuple[ResultHead, bytes]:
        """Run a service and wait for its result; ServiceTimeout, ServiceNotFound, ServerLost."""
        return self.run(self.calling(service, data, kind, timeout_s))

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
        with self.lock:
            try:
                if is_reply_wanted:
                    return self.begin_call(service, data, kind, timeout_s, notify)
                self.tell_call(service, data, kind, timeout_s)
                return None
            finally:
                self.flush()

    def end_call(self, pending: Pending, timeout_s: float) -> tuple[ResultHead, bytes]:
        """Wait for the result of a call."""
        return self.run(self.ending_call(pending, timeout_s))

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
