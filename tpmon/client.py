"""Connection: one client's, or one server's, connection to a node, which outlives its sockets.

With reconnect (F-K4) it connects again by itself, over all the addresses in turn, and every call
waits through the outage up to request_timeout_s; without, a lost connection ends all calls at once.
"""

import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Self

from field_buffer.catalogue import (
    ConnectionClosed,
    ConnectionRefused,
    InvalidArgument,
    RequestTimeout,
    ServiceTimeout,
)
from field_buffer.errors import HmsError
from field_buffer.packing import KIND_CARRAY
from tpmon.asked import OnLoss, Pending, own_copy
from tpmon.driver import GOODBYE_MS, Driver
from tpmon.link import Link, State
from tpmon.protocol.frames import Kind
from tpmon.protocol.structures import (
    Administer,
    Advertise,
    CallHead,
    Hello,
    InvokeHead,
    Request,
    ResultHead,
    Unadvertise,
    decode_with_body,
    encode_with_body,
)
from tpmon.reconnect import Attempts

LIBRARY = "hms-python"
_ANSWER_LATE_S = 5.0
"""How much longer than the node the client waits for the answer to a call."""
_READING = (".list", ".show", ".status")


class Connection(Driver):
    """See the module. Times are seconds; reconnect_period_s 0: try for ever.

    exception_listener is called, on a thread of the library, with every error that no call raises.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        user: str = "",
        password: str = "",
        client_id: str = "",
        client_name: str = "",
        is_server: bool = False,
        reconnect: bool = True,
        reconnect_interval_s: float = 5,
        reconnect_period_s: float = 0,
        request_timeout_s: float = 200,
        connect_timeout_s: float = 10,
        exception_listener: Callable[[HmsError], None] | None = None,
    ) -> None:
        addresses = [address] if isinstance(address, str) else list(address)
        _check_addresses(addresses)
        uid = int.from_bytes(os.urandom(8), "little") or 1
        hello = Hello(uid, client_id, user, password, client_name, LIBRARY, is_server)
        link = Link(hello)
        link.on_error = exception_listener
        self.request_timeout_s = request_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._services = _Services(link)
        attempts = Attempts(addresses, reconnect_interval_s, reconnect_period_s)
        super().__init__(link, addresses, reconnect=reconnect, attempts=attempts)

    # ---- open and close

    def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        link = self.link
        with self.lock:
            self.start()
            deadline = monotonic() + self._connect_timeout_s
            self.wait_for(link, lambda: link.state in (State.UP, State.ENDED), deadline)
            if link.state is State.UP:
                return self
            error = link.error if link.state is State.ENDED else self._refused()
            self.stop(error, 0)
        self.join()
        raise own_copy(error)

    def _refused(self) -> ConnectionRefused:
        address = ", ".join(self.addresses)
        return ConnectionRefused(address=address, timeout_s=self._connect_timeout_s)

    def close(self) -> None:
        """Wait for the confirmation of what was sent, settle what was received, and disconnect."""
        link = self.link
        with self.lock:
            if link.state is not State.ENDED:
                self._settle_all()
                link.tell(Kind.GOODBYE)
                self.flush()
                self.stop(
                    ConnectionClosed(what="connection"),
                    GOODBYE_MS if link.state is State.UP else 0,
                )
        self.join()

    def _settle_all(self) -> None:
        for participant in list(self.link.participants):
            participant.tick()
        for push in list(self.link.on_room.values()):
            push()
        self.flush()
        deadline = monotonic() + self.request_timeout_s
        self.wait_for(self.link, self._is_settled, deadline)

    def _is_settled(self) -> bool:
        link = self.link
        return link.state is State.ENDED or not (link.sends_in_flight or link.on_room)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        """Whether the node is reached right now."""
        return self.link.state is State.UP

    @property
    def is_ended(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self.link.state is State.ENDED

    @property
    def node_name(self) -> str:
        """The node's name, from its last WELCOME."""
        return self.link.welcome.node if self.link.welcome is not None else ""

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

    def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command, such as "queue.list"; returns plain data.

        One that changes something is not repeated when the connection is lost: ConnectionLost.
        """
        on_loss = OnLoss.REPEAT if verb.endswith(_READING) else OnLoss.FAIL
        return self.request(Administer(verb, arguments or {}), on_loss=on_loss)

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


def _check_addresses(addresses: Sequence[str]) -> None:
    if not addresses:
        raise InvalidArgument(what="address", detail="there is none")
    for address in addresses:
        if not address.startswith(("tcp://", "ipc://")):
            detail = f"{address!r} is not of the form tcp://HOST:PORT or ipc://PATH"
            raise InvalidArgument(what="address", detail=detail)
