"""Local transactions that the node rolls back: those in which nothing happens for
transaction_idle_ms, and those that have received what their user may not receive any more.

A client that hangs, or waits for a user, keeps messages from all others as long as its connection
lives. It did not fail at them: they come again, flagged, and no attempt is counted. Its session
goes on; what it sends until its next commit() or rollback() is refused, and commit() raises.
"""

from hms.engine.effects import Effects
from hms.engine.queue.settlement import Return
from hms.engine.session.session_objects import Consumer, Session
from hms.engine.session.transactions import end_without_effect
from hms.engine.state import State

__all__ = ["end_deprived", "end_idle"]


def end_idle(state: State, fx: Effects) -> None:
    """Roll back what has been idle for too long."""
    idle_ms = state.settings.transaction_idle_ms
    if not idle_ms:
        return
    latest_ms = state.now_ms - idle_ms
    overdue = [
        session
        for connection in state.connections.values()
        for session in connection.sessions.values()
        if _is_open(session) and session.work.worked_at_ms <= latest_ms
    ]
    for session in overdue:
        session.work.rolled_back = (
            f"nothing was sent or received in it for {idle_ms / 1000:g} s (transaction_idle_s)"
        )
        end_without_effect(state, session.work, Return.LOST, fx)


def end_deprived(state: State, consumer: Consumer, fx: Effects) -> None:
    """A consumer is about to be closed by the node, and gives back what it has. What of it was
    received in the open transaction is not known before the commit."""
    session = consumer.session
    is_local = session.is_transacted and not session.is_xa
    if is_local and (consumer.out or session.work.is_any):
        session.work.rolled_back = f"its consumer of {consumer.place.name} was closed by the node"
        end_without_effect(state, session.work, Return.LOST, fx)


def _is_open(session: Session) -> bool:
    """Whether it has a local transaction with work in it; a branch has a timeout of its own."""
    return session.is_transacted and not session.is_xa and session.work.is_any
