"""Opening and closing at the node: sessions, producers, consumers. The connection's lock is held.

What is opened may be used before the node has answered; who does not want it any more before that,
because of a refusal, a timeout or a cancellation, withdraws it, so that nothing stays open.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic, time_ns

from hms.client.core.arguments import check_flag, shown
from hms.client.core.link import Link, State
from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import Requests
from hms.client.destinations import Destination
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.send_buffer import Sender
from hms.client.session_state import SessionState
from hms.client.xa_state import XaSessionState
from hms.constants import AckMode
from hms.errors.catalogue import IllegalState, InvalidArgument
from hms.wire.structures import (
    CloseConsumer,
    CloseProducer,
    CloseSession,
    OpenConsumer,
    OpenProducer,
    Request,
)


class Opening:
    """What waits for the node to grant it; withdraw forgets it, and closing closes it."""

    def __init__(self, pending: Pending, withdraw: Callable[[], object], closing: Request) -> None:
        self.pending = pending
        self._withdraw = withdraw
        self._closing = closing

    def granted(self, requests: Requests) -> Steps[None]:
        """Wait until it is open; else it is withdrawn."""
        try:
            yield from requests.answer_to(self.pending)
        except BaseException:
            self._withdraw()
            if self.pending.error is None and requests.link.state is State.UP:
                _ask_to_close(requests.link, self._closing)
            raise


def new_session(
    link: Link,
    ack: AckMode,
    *,
    is_transacted: bool,
    is_xa: bool = False,
    is_asynchronous: bool = False,
) -> tuple[SessionState, Opening]:
    """A session that was asked for; IllegalState, NotSupported."""
    mode = _checked_kind(
        ack, is_transacted=is_transacted, is_xa=is_xa, is_asynchronous=is_asynchronous
    )
    if is_xa:
        state: SessionState = XaSessionState(link)
    else:
        state = SessionState(
            link, mode, is_transacted=is_transacted, is_asynchronous=is_asynchronous
        )
    return state, Opening(state.open(), state.forget, CloseSession(state.number))


def _checked_kind(
    ack: AckMode, *, is_transacted: bool, is_xa: bool, is_asynchronous: bool
) -> AckMode:
    """The acknowledgement mode, if a session of that kind exists. A transacted one has AUTO only:
    DUPS_OK and NONE are ignored there (F-B4, F-B5)."""
    mode = _mode(ack)
    check_flag("transacted", is_transacted)
    check_flag("xa", is_xa)
    check_flag("asynchronous", is_asynchronous)
    given = {"a transacted": is_transacted, "an XA": is_xa, "an asynchronous": is_asynchronous}
    kinds = [kind for kind, is_it in given.items() if is_it]
    if mode is AckMode.CLIENT and kinds:
        raise IllegalState(what="session()", detail=f"{kinds[0]} session acknowledges by itself")
    if len(kinds) > 1:
        detail = f"it cannot be {kinds[0]} and {kinds[1]} session at once"
        raise IllegalState(what="session()", detail=detail)
    return AckMode.AUTO if is_transacted or is_xa else mode


def _mode(ack: AckMode) -> AckMode:
    if isinstance(ack, int) and not isinstance(ack, bool) and ack in set(AckMode):
        return AckMode(ack)
    detail = f"{shown(ack)} is none of {', '.join(f'AckMode.{mode.name}' for mode in AckMode)}"
    raise InvalidArgument(what="ack", detail=detail)


def open_sender(
    link: Link, state: SessionState, destination: Destination, name: str
) -> tuple[Sender, Opening]:
    """A producer that was asked for; what it sends before it is granted waits in its pack."""
    number = link.new_handle()
    opening = OpenProducer(
        number, state.number, destination.kind, destination.name, name, destination.string
    )
    sender = Sender(
        link,
        number,
        destination,
        monotonic,
        is_transacted=state.is_transacted,
        on_refused=state.send_failed,
        name=name,
        opening=(state.opening, opening),
    )
    sender.is_granted = False
    state.asked_senders[number] = sender
    register = partial(state.register, sender, opening)
    pending = link.request(opening, Pending("OpenProducer", OnLoss.REPEAT, then=register))
    withdraw = partial(_forget_sender, state, number)
    return sender, Opening(pending, withdraw, CloseProducer(number))


def _forget_sender(state: SessionState, number: int) -> None:
    state.senders.pop(number, None)
    state.asked_senders.pop(number, None)


def close_sender(requests: Requests, state: SessionState, sender: Sender) -> Steps[None]:
    """Close a producer whose sends are settled; else they are in doubt without a connection."""
    link = requests.link
    if sender.link is link and link.state is not State.UP:
        sender.leave(link.error)
    if state.senders.pop(sender.number, None) is not None:
        is_doubtful = sender.has_doubts or sender.unconfirmed > 0
        yield from _closed(requests, CloseProducer(sender.number, is_doubtful))
    elif state.asked_senders.pop(sender.number, None) is not None:
        _close_later(link, CloseProducer(sender.number))


def open_prefetch_buffer(
    link: Link,
    state: SessionState,
    opening: OpenConsumer,
    destination: Destination,
    notify: object,
    *,
    is_ordered: bool,
) -> tuple[PrefetchBuffer, Opening]:
    """A consumer that was asked for; it may be given messages before it is granted."""
    prefetched = PrefetchBuffer(
        link,
        opening,
        destination,
        partial(node_now_ms, link),
        notify,
        is_ordered=is_ordered,
        on_taken_back=state.taken_back,
    )
    link.receivers[prefetched.number] = prefetched
    state.prefetch_buffers[prefetched.number] = prefetched
    pending = link.request(opening, Pending("OpenConsumer", OnLoss.REPEAT, then=prefetched.opened))
    withdraw = partial(_forget_prefetch_buffer, link, state, prefetched)
    return prefetched, Opening(pending, withdraw, CloseConsumer(prefetched.number))


def close_prefetch_buffer(
    requests: Requests, state: SessionState, prefetched: PrefetchBuffer
) -> Steps[None]:
    """Settle and close a consumer; unknown to the node if that closed it."""
    is_granted = prefetched.is_open
    state.settle()
    state.give_back(prefetched, is_session_open=True)
    requests.link.receivers.pop(prefetched.number, None)
    if not prefetched.has_left:
        _forget_prefetch_buffer(requests.link, state, prefetched)
    if prefetched.error is None and is_granted:
        yield from _closed(requests, CloseConsumer(prefetched.number))
    elif prefetched.error is None:
        _close_later(requests.link, CloseConsumer(prefetched.number))


def _forget_prefetch_buffer(link: Link, state: SessionState, prefetched: PrefetchBuffer) -> None:
    link.receivers.pop(prefetched.number, None)
    state.prefetch_buffers.pop(prefetched.number, None)


def _closed(requests: Requests, request: Request) -> Steps[None]:
    if requests.link.state is State.UP:  # else the lost connection has closed it
        yield from requests.answer_to(_ask_to_close(requests.link, request))


def _close_later(link: Link, request: Request) -> None:
    """What the node has not granted yet, and may still refuse: said behind the asking, each time
    that this is said again."""
    link.request(request, Pending(type(request).__name__, OnLoss.REPEAT))


def _ask_to_close(link: Link, request: Request) -> Pending:
    return link.request(request, Pending(type(request).__name__, OnLoss.DONE))


def node_now_ms(link: Link) -> int:
    """The node's time in milliseconds since 1970 UTC. Clocks differ by hours: a client that judged
    by its own would always return live messages, or show expired ones."""
    told = link.node_ms(monotonic())
    return time_ns() // 1_000_000 if told is None else told
