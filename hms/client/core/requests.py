"""Requests to a node: the operations of a connection, written once for threads and for asyncio.

With reconnect (F-K4) a connection connects again by itself, over all the addresses in turn, and
every operation waits through the outage up to request_timeout_s; without, a lost connection ends
them all at once.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any, Protocol

from hms.client.core.advertised_services import AdvertisedServices
from hms.client.core.arguments import check_text, check_values, shown
from hms.client.core.connection_options import Options
from hms.client.core.credentials import SECRET_CHARACTERS_MAX
from hms.client.core.destination_watch import DestinationWatch
from hms.client.core.link import Link, State
from hms.client.core.link_participants import Caller
from hms.client.core.operations import FOREVER, Mark, Steps, Wait
from hms.client.core.outcomes import Outcome, outcome_of
from hms.client.core.pending_requests import OnLoss, Pending, own_copy
from hms.errors.catalogue import (
    ConnectionClosed,
    ConnectionLost,
    ConnectionRefused,
    InvalidArgument,
    NotPrimary,
    RequestTimeout,
)
from hms.errors.tree import HmsError
from hms.wire.client_identity import SECRET_BYTES, uid_of
from hms.wire.commands import OPERATIONS, Repeat
from hms.wire.frames import Kind
from hms.wire.outcome_tokens import TOKEN_CHARACTERS_MAX
from hms.wire.structures import (
    PROTOCOL,
    Administer,
    Advertise,
    AskOutcome,
    Hello,
    Request,
    Unadvertise,
)

LIBRARY = "hms-python"
GOODBYE_MS = 1000
"""How long a closed socket may take to send its last frames."""
LEAVE_S = 5.0
"""How long a node may take to answer that a connection closes; and how long a close waits for sends
that nobody waits for, or whose node is not there, or in a hurry."""
CONNECT_TIMEOUT_S = 10.0
"""How long a connection may take to open, where nothing was said."""
_TIMEOUT_MS_MAX = 1 << 40
_ADDRESS_CHARACTERS_MAX = 1024
_CALLS = {
    "Administer": "administer()",
    "Advertise": "advertise()",
    "Browse": "browser()",
    "CloseConsumer": "consumer.close()",
    "CloseProducer": "producer.close()",
    "CloseSession": "session.close()",
    "Commit": "commit()",
    "DeleteTemporary": "delete_temporary()",
    "OpenConsumer": "consumer()",
    "OpenProducer": "producer()",
    "OpenSession": "session()",
    "Recover": "recover()",
    "RequestRetained": "request_retained()",
    "Rollback": "rollback()",
    "Schedule": "schedule()",
    "Unadvertise": "unadvertise()",
    "Unsubscribe": "unsubscribe()",
    "send": "send()",
}
"""What an application calls for what is asked of the node."""


class Carrier(Protocol):
    """The transport loop, as the requests need it."""

    lost_at: float
    """Since when there is an outage, or FOREVER."""

    @property
    def addresses(self) -> Sequence[str]:
        """Where the node is looked for."""

    followed: NotPrimary | None
    """What a replica that follows has said last."""

    @property
    def is_refused(self) -> bool:
        """Whether nothing listens at any of the addresses."""


class Driver(Protocol):
    """What drives the operations: threads, or an event loop."""

    link: Link

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held around all that touches the link."""

    @property
    def loop(self) -> Carrier:
        """What carries the link."""

    def flush(self) -> None:
        """Send what the link has to send, wake who waits for what came, plan what is due."""

    def me(self) -> object:
        """The thread or task that asks."""

    def begin(self) -> None:
        """Begin to connect."""

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""

    def call_mark(self, mark: Mark) -> bool:
        """Have the mark reached behind the callbacks that are due; False when nobody can wait for
        it."""


class Requests:
    """See the module."""

    def __init__(self, driver: Driver, options: Options) -> None:
        self.driver = driver
        self.link = link = driver.link
        self.request_timeout_s = options.request_timeout_s
        self.member_defaults: Mapping[str, Mapping[str, Any]] = {}
        is_patient = options.connect_timeout_s is not None
        self._is_refusal_final = not (is_patient or options.is_server)
        self._is_told_once = self._is_refusal_final and not options.reconnect
        self._connect_timeout_s = (
            CONNECT_TIMEOUT_S if options.connect_timeout_s is None else options.connect_timeout_s
        )
        self._begun_until = FOREVER
        """Until when the first answer is waited for."""
        self._offers = AdvertisedServices(link)
        self._watching = DestinationWatch(link)

    def fill_in(self, members: Mapping[str, Mapping[str, Any]]) -> None:
        """What sessions, producers and consumers are given where a call says nothing, by part."""
        self.member_defaults = members

    def begin_within(self, seconds: float) -> None:
        """Connecting and the first answer together take no longer, from now on. Unlike
        connect_timeout_s it makes no refusal one that is tried again."""
        self._connect_timeout_s = min(self._connect_timeout_s, seconds)
        self._begun_until = monotonic() + seconds

    @property
    def is_connected(self) -> bool:
        """Whether the node is reached right now."""
        return self.link.state is State.UP

    @property
    def is_ended(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self.link.state is State.ENDED

    # ---- open and close

    def opening(self) -> Steps[None]:
        """Connect; ConnectionRefused after connect_timeout_s, at once where nothing listens and no
        connect_timeout_s was given; or the node's own refusal."""
        link = self.link
        self.driver.begin()
        deadline = monotonic() + self._connect_timeout_s
        try:
            yield Wait(link, self._is_opened, deadline)
        except BaseException:
            self.driver.stop(ConnectionClosed(what="connection"), 0)
            raise
        if link.state is not State.UP:
            error = link.error if link.state is State.ENDED else self._led_elsewhere()
            error = error or self._no_node()
            self.driver.stop(error, 0)
            raise own_copy(error)

    def _is_opened(self) -> bool:
        """Whether there is nothing more to wait for."""
        is_told = self.link.state in (State.UP, State.ENDED)
        is_told = is_told or (self._is_refusal_final and self.driver.loop.is_refused)
        return is_told or self._led_elsewhere() is not None

    def _led_elsewhere(self) -> NotPrimary | None:
        """The answer of the only replica that is known, where it follows one whose address nobody
        has told: a connection that does not come again, such as a command's, need not wait."""
        loop = self.driver.loop
        said = loop.followed
        if said is None or not self._is_told_once or len(loop.addresses) > 1:
            return None
        told = said.fields
        is_other = told["primary"] not in ("nobody", told["replica"])
        return said if is_other and not told["addresses"] else None

    def _no_node(self) -> ConnectionRefused:
        reason = f"no answer within {self._connect_timeout_s:g} s"
        if self.driver.loop.is_refused:
            reason = "nothing listens there"
        elif self.driver.loop.followed is not None:  # it has named a machine that does not answer
            reason = _said_by(self.driver.loop.followed)
        return ConnectionRefused(
            address=", ".join(self.driver.loop.addresses),
            reason=reason,
            timeout_s=self._connect_timeout_s,
        )

    def check_open(self) -> None:
        """ConnectionClosed when close() has begun; not for a listener, which it waits for."""
        if self.link.is_closing and self.caller_of(self.driver.me()) is None:
            raise ConnectionClosed(what="connection")

    def caller_of(self, me: object) -> Caller | None:
        """Who runs a listener of this connection in that thread or task."""
        return next((caller for caller in self.link.callers if caller.is_within(me)), None)

    def closing(self, *, is_hasty: bool = False) -> Steps[None]:
        """Wait for running listeners and for the confirmation of what was sent, settle what was
        received, and disconnect; behind a listener that asks for it. From its beginning on nothing
        new is taken, but from the running listeners that it waits for. is_hasty: an exception has
        left its block, so the confirmations have LEAVE_S."""
        link, me = self.link, self.driver.me()
        link.is_closing = True
        link.woken.append(None)
        for caller in list(link.callers):
            caller.hush()
        within = self.caller_of(me)
        if within is not None:
            within.afterwards(partial(self.closing, is_hasty=is_hasty))
            return
        if link.state is State.ENDED and not link.callers:
            return
        try:
            yield Wait(link, lambda: not any(one.is_calling for one in link.callers), FOREVER)
            yield from self._settling(is_hasty=is_hasty)
        finally:
            link.tell(Kind.GOODBYE)  # to nobody when it has ended
            self.driver.flush()
            linger_ms = GOODBYE_MS if link.state is State.UP else 0
            self.driver.stop(ConnectionClosed(what="connection"), linger_ms)

    def _settling(self, *, is_hasty: bool) -> Steps[None]:
        """All that was begun has its outcome, and the node has heard all that was said."""
        link = self.link
        for participant in list(link.participants):
            participant.tick()
        for one in self._links:
            for push in list(one.on_room.values()):
                push()
        yield from self.settled(self._is_settled, self._is_held, is_hasty=is_hasty)
        left = [participant.leave() for participant in list(link.participants)]
        deadline = monotonic() + LEAVE_S
        for pending in left:
            if pending is not None:
                yield Wait(pending, partial(getattr, pending, "is_done"), deadline)

    def settled(
        self, is_settled: Callable[[], bool], is_held: Callable[[], bool], *, is_hasty: bool
    ) -> Steps[bool]:
        """Wait for the outcome of sends before something closes; whether it is worth no more wait.
        request_timeout_s at most, and LEAVE_S in haste, while the connection is lost, and when
        is_held() is not, as nobody waits for them any more. Only False is a timeout."""
        link, deadline = self.link, monotonic() + self.request_timeout_s
        while True:
            if (yield Wait(link, is_settled, min(deadline, monotonic() + LEAVE_S))):
                return True
            if monotonic() >= deadline:
                return False
            if is_hasty or not link.is_whole or not is_held():
                return True
            yield Wait(
                link,
                lambda: is_settled() or not link.is_whole or not is_held(),
                deadline,
            )

    def _is_held(self) -> bool:
        return any(
            bool(one.on_room) or any(asked.is_wanted for asked in one.asked.values())
            for one in self._links
        )

    @property
    def _links(self) -> list[Link]:
        link = self.link
        return [link] if link.side is None else [link, link.side]

    def _is_settled(self) -> bool:
        is_ended = self.link.state is State.ENDED
        return is_ended or not any(one.sends_in_flight or one.on_room for one in self._links)

    # ---- requests

    def asking(
        self,
        request: Request,
        timeout_s: float | None = None,
        on_loss: OnLoss = OnLoss.REPEAT,
        call: str = "",
    ) -> Steps[Any]:
        """Ask, wait, and return the reply's plain data, or raise what the node answered. call: what
        the application called, where the request does not tell."""
        pending = Pending(call or type(request).__name__, on_loss)
        if isinstance(request, Advertise | Unadvertise):
            self._offers.note(request)
        self.link.request(request, pending)
        yield from self.answer_to(pending, timeout_s)
        return pending.value()

    def asking_log(self, request: Request, log: bytes | None) -> Steps[Any]:
        """The same of the node that writes this log, and of no other; ConnectionLost when only
        another one answers."""
        pending = self.link.request(request, self.for_log(request, log))
        yield from self.answer_to(pending)
        return pending.value()

    def for_log(self, request: Request, log: bytes | None) -> Pending:
        """A request that is never repeated at another log."""
        reason = "it goes on at another node, and this is asked of the one before"
        return Pending(
            type(request).__name__,
            OnLoss.REPEAT,
            error_if_strange=ConnectionLost(address=self.link.address, reason=reason),
            is_bound=True,
            log=log,
        )

    def telling(self) -> Steps[None]:
        """Wait until the application's callbacks that are due have run, unless one of them asks."""
        mark = Mark()
        if not self.driver.call_mark(mark):
            return
        deadline = monotonic() + self.request_timeout_s
        if not (yield Wait(mark, lambda: mark.is_done, deadline)):
            raise self.too_late("callbacks of send_async()", self.request_timeout_s)

    def administering(
        self, verb: str, arguments: dict[str, Any] | None, call: str = ""
    ) -> Steps[Any]:
        """An operator's command; one that changes something is not repeated after a loss. call: as
        of asking()."""
        check_text("verb", verb)
        check_values("arguments", arguments)
        known = OPERATIONS.get(verb)  # a newer node may know more
        is_read = known is not None and known.repeat is Repeat.READ
        on_loss = OnLoss.REPEAT if is_read else OnLoss.FAIL
        return self.asking(Administer(verb, arguments or {}), on_loss=on_loss, call=call)

    def asking_outcome(self, token: str) -> Steps[Outcome]:
        """What became of a send or commit in doubt, for good. TokenRefused; OutcomeElsewhere when
        the node writes another log."""
        check_text("token", token, TOKEN_CHARACTERS_MAX, least=1)
        said = yield from self.asking(AskOutcome(token), call="outcome()")
        return outcome_of(said)

    def renewing(self, token: str) -> Steps[None]:
        """Prove anew who this is; LoginRefused leaves the connection as it was."""
        check_text("token", token, SECRET_CHARACTERS_MAX)
        pending = Pending("renew()", OnLoss.FAIL)
        self.link.renew(token, pending)
        yield from self.answer_to(pending)
        self.link.renewed(token, pending.value())

    def watching(self, kind: str, name: str) -> Steps[None]:
        """Tell the event listener whether there is a consumer; the node's refusal is raised."""
        yield from self.answer_to(self._watching.add(kind, name))

    def answer_to(self, pending: Pending, timeout_s: float | None = None) -> Steps[Pending]:
        """Wait until it is done; RequestTimeout, ConnectionLost, or the node's error."""
        patience_s = self.request_timeout_s if timeout_s is None else timeout_s
        deadline = min(monotonic() + patience_s, self._begun_until)
        self._begun_until = FOREVER
        try:
            is_done = yield Wait(pending, lambda: pending.is_done, deadline)
        except BaseException:
            self.link.abandon(pending)
            raise
        if not is_done:
            late = self.too_late(pending.what, patience_s)
            self.link.abandon(pending)
            raise late
        return pending.checked()

    def too_late(self, what: str, timeout_s: float) -> HmsError:
        """The error for a wait that took too long."""
        if self.link.state is not State.UP:
            return own_copy(self.link.error)
        return RequestTimeout(what=_CALLS.get(what, what), timeout_s=timeout_s)


class AnyConnection(Protocol):
    """A connection, for threads or for asyncio."""

    requests: Requests


def new_link(options: Options) -> Link:
    """The link of a connection with these options."""
    link = Link(_hello(options), options.credentials)
    link.on_error, link.on_event = options.exception_listener, options.event_listener
    return link


def _hello(options: Options) -> Hello:
    """Who connects, by a secret of its own choice or drawn at random."""
    secret = options.client_secret or os.urandom(SECRET_BYTES)
    return Hello(
        uid_of(secret),
        options.client_id,
        options.user,
        client_name=options.client_name,
        library=LIBRARY,
        is_server=options.is_server,
        request_timeout_ms=min(round(options.request_timeout_s * 1000), _TIMEOUT_MS_MAX),
        secret=secret,
        mechanisms=options.credentials.mechanisms,
        protocol=PROTOCOL,
    )


def _said_by(replica: NotPrimary) -> str:
    """What a replica has said; one that is to lead names itself until it listens as the node."""
    told = replica.fields
    if told["primary"] != told["replica"]:
        return str(replica)
    who = f"replica {told['replica']} of node {told['node']}"
    return f"{who} is to lead in epoch {told['epoch']}, and does not yet"


def checked_addresses(given: str | Sequence[str]) -> list[str]:
    """Those that a connection was given, one or several; InvalidArgument."""
    if not isinstance(given, str | list | tuple):
        detail = f"{shown(given)} is neither an address nor a list of addresses"
        raise InvalidArgument(what="address", detail=detail)
    addresses = [given] if isinstance(given, str) else list(given)
    if not addresses:
        raise InvalidArgument(what="address", detail="there is none")
    for address in addresses:
        check_text("address", address, _ADDRESS_CHARACTERS_MAX)
        if not address.startswith(("tcp://", "ipc://")):
            detail = f"{shown(address)} is not of the form tcp://HOST:PORT or ipc://PATH"
            raise InvalidArgument(what="address", detail=detail)
    return addresses
