"""Connection: one client's, or one server's, connection to a node, which outlives its sockets."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, Self

from hms.client.core import current_transaction
from hms.client.core.arguments import check_seconds, check_text, check_word
from hms.client.core.calls import Calls
from hms.client.core.connection_options import Options
from hms.client.core.conversation import Conversation
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import Requests, checked_addresses, new_link
from hms.client.core.service_data import Data, encode_data
from hms.client.core.service_reply import Reply
from hms.client.core.thread_driver import ThreadDriver
from hms.wire.frames import Kind
from hms.wire.packed_messages import KIND_CARRAY
from hms.wire.structures import (
    Advertise,
    InvokeHead,
    NoticeHead,
    Request,
    ResultHead,
    Unadvertise,
    encode_with_body,
)


class Connection:
    """For threads, any number of them; options: the fields of
    hms.client.core.connection_options.Options."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        addresses, chosen = checked_addresses(address), Options(**options)
        self.link = new_link(chosen)
        self.driver = ThreadDriver(self.link, addresses, chosen)
        self.requests = Requests(self.driver, chosen)
        self.calls = Calls(self.requests)
        self.run, self.flush = self.driver.run, self.driver.flush

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held around all that touches the link; ConnectionForked in the child of a fork."""
        return self.driver.lock

    # ---- open and close

    def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        try:
            self.run(self.requests.opening())
        except BaseException:
            self.driver.join()
            raise
        return self

    def close(self) -> None:
        """Wait for running listeners and for the confirmation of what was sent, settle what was
        received, and disconnect. A listener that closes its connection is not waited for: its
        message is settled when it has ended, and then the connection closes.

        Confirmations have request_timeout_s, but only 5 s while the connection is lost, when nobody
        waits for them any more, and when an exception leaves its block; what has none by then is in
        doubt."""
        self._close(is_hasty=False)

    def _close(self, *, is_hasty: bool) -> None:
        self.run(self.requests.closing(is_hasty=is_hasty))
        if self.is_ended:
            self.driver.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_trace: object) -> None:
        self._close(is_hasty=kind is not None)

    # ---- requests

    def request(
        self, request: Request, timeout_s: float | None = None, on_loss: OnLoss = OnLoss.REPEAT
    ) -> Any:
        """Ask, wait, and return the reply's plain data, or raise what the node answered."""
        return self.run(self.requests.asking(request, timeout_s, on_loss))

    # ---- services

    def call_async(
        self, service: str, data: Data = None, timeout_s: float | None = None
    ) -> "Future[Reply]":
        """Run a service without waiting; the future has its reply, or what call() would raise."""
        with self.lock:
            try:
                return self.calls.promise(service, data, timeout_s)
            finally:
                self.flush()

    def run_service(
        self,
        service: str,
        data: bytes,
        kind: int = KIND_CARRAY,
        timeout_s: float | None = None,
        *,
        may_wait: bool = True,
    ) -> tuple[ResultHead, bytes]:
        """The same with data as it crosses the wire; may_wait: else ServiceBusy if it has to."""
        return self.run(self.calls.calling(service, data, kind, timeout_s, may_wait=may_wait))

    def start_call(
        self,
        service: str,
        data: bytes,
        kind: int,
        timeout_s: float | None,
        *,
        is_reply_wanted: bool = True,
        may_wait: bool = True,
        notify: object = None,
    ) -> Pending | None:
        """Call a service without waiting; None when no reply is wanted. notify: another key to be
        woken by the answer."""
        with self.lock:
            try:
                if is_reply_wanted:
                    return self.calls.begin_call(
                        service, data, kind, timeout_s, notify, may_wait=may_wait
                    )
                self.calls.tell_call(service, data, kind, timeout_s)
                return None
            finally:
                self.flush()

    def conversation(
        self, service: str, data: Data = None, start: str = "send", timeout_s: float = 30
    ) -> Conversation:
        """Begin a conversation with a service; start: "send" keeps control, "receive" leaves it to
        the service; timeout_s: how long to wait for each word. ServiceNotFound, RequestTimeout."""
        check_text("service", service, least=1)
        check_word("start", start, ("send", "receive"))
        check_seconds("timeout_s", timeout_s)
        kind, encoded = encode_data(data)
        deadline = monotonic() + timeout_s
        talk = self.run(
            self.calls.connecting(
                service, encoded, kind, has_control=start == "send", deadline=deadline
            )
        )
        return Conversation(self.driver, self.calls, talk, service, timeout_s)

    def notify(self, head: NoticeHead, data: bytes) -> int:
        """Send unsolicited data; to how many clients. HandleUnknown for one that has gone."""
        count: int = self.run(self.calls.notifying(head, data))
        return count

    def on_notice(self, callback: Callable[[NoticeHead, bytes], None]) -> None:
        """Have this called for unsolicited data, on a thread of the library."""
        with self.lock:
            self.link.on_notice = callback

    def on_invoke(self, callback: Callable[[InvokeHead, bytes], None]) -> None:
        """Have this called for every INVOKE, by whichever thread reads, with the lock held: it may
        only note it, and whom it wakes (link.woken)."""
        with self.lock:
            self.link.on_invoke = callback

    def send_result(self, result: ResultHead, data: bytes = b"") -> None:
        """Answer an INVOKE; said to nobody when the connection was lost meanwhile."""
        driver = self.driver
        with driver.lock:
            driver.link.tell(Kind.RESULT, encode_with_body(result, data))
            driver.flush()

    def advertise(self, service: str, signature: str = "", places: int = 1) -> None:
        """Offer a service, also after every reconnect; places: so many calls of all its services
        this connection runs at once. ServiceMismatch."""
        self.request(Advertise(service, signature, places))

    def unadvertise(self, service: str) -> None:
        """Offer it no longer."""
        self.request(Unadvertise(service))

    # ---- as in asyncio; made by scripts/generate-client

    @property
    def addresses(self) -> Sequence[str]:
        """Where it looks for the node, in this order."""
        return self.driver.loop.addresses

    @property
    def request_timeout_s(self) -> float:
        """How long an operation waits, also through an outage."""
        return self.requests.request_timeout_s

    @property
    def is_connected(self) -> bool:
        """Whether the node is reached right now."""
        return self.requests.is_connected

    @property
    def is_ended(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self.requests.is_ended

    @property
    def client_id(self) -> str:
        """The client id that it was given, "" for none."""
        return self.link.hello.client_id

    @property
    def node_name(self) -> str:
        """The node's name, from its last WELCOME."""
        return self.link.welcome.node if self.link.welcome is not None else ""

    def renew(self, token: str) -> None:
        """Prove anew who this is before the login ends (EventKind.LOGIN_EXPIRES), by another token
        of the same user; what it may is looked at again. LoginRefused, LoginBusy."""
        self.run(self.requests.renewing(token))

    def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command, such as "queue.list"; returns plain data. One that changes
        something is not repeated when the connection is lost: ConnectionLost."""
        return self.run(self.requests.administering(verb, arguments))

    def transaction(self, timeout_s: float = 0, wait: str = "completed") -> Any:
        """A block that is one global transaction: it commits at its end, or rolls back by a fault.

        timeout_s: after so long it can only be rolled back, 0 never; wait: "completed", or "logged"
        to go on as soon as the decision is durable. TransactionRolledBack, TxMixed, TxHazard.
        """
        return current_transaction.blocks().Block(self, timeout_s, wait)

    def call(self, service: str, data: Data = None, timeout_s: float | None = None) -> Reply:
        """Run a service and wait for its reply; timeout_s None: as long as the service or the node
        says. ServiceTimeout, ServiceNotFound, ServerLost, ServiceHung; ServiceFailedReply when the
        service itself fails, with its reply as attribute."""
        return self.run(self.calls.asking_service(service, data, timeout_s))

    # ---- end of what is made
