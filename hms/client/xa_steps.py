"""What an XA session does, for threads and for asyncio alike: xa_start and xa_end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from hms.client.core.link import State
from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import Requests
from hms.client.session_state import SessionState
from hms.client.xa_state import XaSessionState
from hms.errors.catalogue import IllegalState
from hms.errors.tree import HmsError
from hms.wire.xa_constants import TMFAIL, XA_RBCOMMFAIL

__all__ = ["Code", "xa_ending", "xa_rolled_back", "xa_starting"]

Code = tuple[int, str]
"""A return code of X/Open XA, and in words why it is not XA_OK."""
_LOST: Code = (XA_RBCOMMFAIL, "the connection was lost, and the branch with it")


class _Session(Protocol):
    """The session that works in the branch."""

    requests: Requests
    state: SessionState

    def check_open(self) -> None:
        """ConnectionClosed when it is not."""

    def sends_settled(self, is_enough: Callable[[], bool] = ...) -> Steps[None]:
        """Wait for the outcome of its sends."""

    def recovering(self) -> Steps[None]:
        """Have what was not acknowledged delivered again."""


def xa_starting(session: _Session, xid: bytes, flags: int, timeout_ms: int) -> Steps[Code]:
    """Work in a branch from now on."""
    state = _state_of(session)
    session.check_open()
    yield from session.sends_settled()
    pending = state.ask_to_start(xid, flags, timeout_ms)
    try:
        code = yield from _coded(session, pending)
    except BaseException:
        if not pending.is_done:  # it may begin after all: what is said next must be outside of it
            state.ask_to_end(xid, TMFAIL, OnLoss.DONE)
        raise
    if not code[0]:
        state.enter(xid)
    return code


def xa_ending(session: _Session, xid: bytes, flags: int) -> Steps[Code]:
    """Work in it no longer; a branch in which a send failed can only be rolled back."""
    state = _state_of(session)
    session.check_open()
    if state.xid != xid:
        return (yield from _coded(session, state.ask_to_end(xid, flags)))
    link = session.requests.link
    yield from session.sends_settled(is_enough=lambda: not session.requests.is_connected)
    if state.is_doomed and link.state is not State.UP:
        state.exit_lost()
        return _LOST
    try:
        said = flags if state.failed_send is None else TMFAIL
        code = yield from _coded(session, state.ask_to_end(xid, said))
    except BaseException as fault:
        state.exit()  # the node has heard it, or has lost the branch
        if isinstance(fault, HmsError) and link.state is not State.UP:
            return _LOST
        raise
    if code[0] >= 0:
        state.exit()
    return code


def xa_rolled_back(session: _Session, xid: bytes) -> Steps[None]:
    """What was received in a branch comes again: before what the session has prefetched since."""
    state = _state_of(session)
    is_here = state.last_received == xid and not state.xid and not state.is_closed
    if is_here and session.requests.is_connected:
        with suppress(HmsError):  # a lost connection brings all of it again
            yield from session.recovering()


def _coded(session: _Session, pending: Pending) -> Steps[Code]:
    answered = yield from session.requests.answer_to(pending)
    reply = answered.value()
    return int(reply["code"]), str(reply["reason"])


def _state_of(session: _Session) -> XaSessionState:
    state = session.state
    if not isinstance(state, XaSessionState):
        raise IllegalState(
            what="xa_start()", detail="the session is no XA session: session(xa=True)"
        )
    return state
