"""A conversation from the side of the service that was called."""

import contextlib
from collections.abc import Iterator

from hms.client.core.conversation import BLOCK_TIME_S, Conversation
from hms.wire.structures import InvokeHead
from tpmon.context import Context


@contextlib.contextmanager
def speaking(context: Context, head: InvokeHead) -> Iterator[Conversation | None]:
    """The server's side of the conversation that a call is, if it is one."""
    connection, key = context.connection, (False, head.call)
    talk = connection.link.talks.get(key) if head.mode else None
    if talk is None:
        yield None
        return
    cd = context.new_descriptor()
    context.talks[cd] = talk
    with connection.lock:
        talk.begin()
        connection.flush()
    try:
        yield Conversation(
            connection.driver, connection.calls, talk, head.service, BLOCK_TIME_S, cd
        )
    finally:
        context.talks.pop(cd, None)
        connection.link.talks.pop(key, None)
