"""In the name of the sender: what is moved is put as if its sender had put it (PUTAUT(CTX))."""

from hms.engine.messages import StoredMessage
from hms.engine.state import State
from hms.wire.packed_messages import NODE_USER

__all__ = ["check_sender"]


def check_sender(state: State, message: StoredMessage, kind: str, name: str) -> None:
    """NotAuthorized unless its mover may act for the user that it says, and that user may send
    there. kind: queue or topic. A node without logins asks nobody; on one without
    sender_identity a client could say there what it likes, so nobody is known."""
    authority = state.space.authority
    if authority is not None:
        user = message.head().node.get(NODE_USER) if state.settings.is_sender_told else None
        authority.check_put(state.operator, user if isinstance(user, str) else "", kind, name)
