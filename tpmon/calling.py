"""Calling services, and answering calls: what threads and asyncio have in common."""

from time import monotonic

from field_buffer.catalogue import ServiceTimeout
from field_buffer.packing import KIND_CARRAY
from tpmon.asked import Pending, own_copy
from tpmon.asking import Asking
from tpmon.link import State
from tpmon.protocol.frames import Kind
from tpmon.protocol.structures import CallHead, ResultHead, decode_with_body, encode_with_body
from tpmon.steps import Steps, Wait

_ANSWER_LATE_S = 5.0
"""How much longer than the node the client waits for the answer to a call."""


class Calling(Asking):
    """See the module."""

    def calling(
        self, service: str, data: bytes, kind: int = KIND_CARRAY, timeout_s: float = 30
    ) -> Steps[tuple[ResultHead, bytes]]:
        """Run a service and wait for its result; ServiceTimeout, ServiceNotFound, ServerLost."""
        pending = self.begin_call(service, data, kind, timeout_s)
        return (yield from self.ending_call(pending, timeout_s))

    def begin_call(
        self, service: str, data: bytes, kind: int, timeout_s: float, notify: object = None
    ) -> Pending:
        """Call a service; notify: another key to be woken by the answer."""
        pending = Pending(service, then=lambda _: self.link.woken.append(notify))
        self.link.ask(Kind.CALL, _call(service, data, kind, timeout_s, is_wanted=True), pending)
        return pending

    def tell_call(self, service: str, data: bytes, kind: int, timeout_s: float) -> None:
        """Call a service whose result nobody wants."""
        if self.link.state is not State.UP:
            raise own_copy(self.link.error)
        self.link.tell(Kind.CALL, _call(service, data, kind, timeout_s, is_wanted=False))

    def ending_call(self, pending: Pending, timeout_s: float) -> Steps[tuple[ResultHead, bytes]]:
        """Wait for the result of a call."""
        deadline = monotonic() + timeout_s + _ANSWER_LATE_S
        is_done = False
        try:
            is_done = yield Wait(pending, lambda: pending.is_done, deadline)
        finally:
            if not is_done:
                self.link.abandon(pending)
        if not is_done:
            raise ServiceTimeout(service=pending.what, timeout_s=timeout_s)
        return decode_with_body(pending.checked().payload, ResultHead)


def _call(service: str, data: bytes, kind: int, timeout_s: float, *, is_wanted: bool) -> bytes:
    head = CallHead(service, max(1, int(timeout_s * 1000)), kind, is_wanted)
    return encode_with_body(head, data)
