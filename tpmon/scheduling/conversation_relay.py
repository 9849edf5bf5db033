"""Conversation relay: conversations, passed on between a client and the server that runs its call.
Sans-IO.

A conversation is a call that both sides talk in while it runs. The node knows which two connections
belong together and passes their parts on unread; it ends as any call does, by the server's result.
A side that leaves before has the other one told: the client by TALK, the server by its lost call.
"""

import msgspec

from hms.errors.catalogue import InvalidArgument
from hms.server.service_monitor import Say
from hms.wire.structures import TalkHead
from tpmon.scheduling.call_scheduler import CallScheduler
from tpmon.scheduling.monitor_state import Call
from tpmon.scheduling.service_registry import ServiceRegistry

__all__ = ["DATA", "DISCONNECTED", "ROOM", "ConversationRelay"]

DATA, ROOM, DISCONNECTED = 0, 1, 2
MODES = (0, 1, 2)


class ConversationRelay:
    """Conversations among the calls."""

    def __init__(self, calls: CallScheduler, registry: ServiceRegistry) -> None:
        self._calls, self._registry = calls, registry

    def talk(self, connection: int, head: TalkHead, data: bytes) -> None:
        """A part of a conversation; one for nobody crossed its end and is dropped."""
        if head.what not in (DATA, ROOM, DISCONNECTED):
            raise InvalidArgument(what="TALK", detail=f"{head.what} is no part of a conversation")
        if head.is_from_server:
            self._from_server(connection, head, data)
        else:
            self._from_client(connection, head, data)

    def _from_server(self, connection: int, head: TalkHead, data: bytes) -> None:
        server = self._registry.servers.get(connection)
        call = server.running.get(head.call) if server is not None else None
        if call is not None and call.is_wanted and call.head.mode:
            origin = call.origin
            to = msgspec.structs.replace(head, call=origin.correlation)
            self._calls.effects.append(Say(origin.connection, to, data))

    def _from_client(self, connection: int, head: TalkHead, data: bytes) -> None:
        call = self._calls.conversations.get((connection, head.call))
        if call is None:
            return
        if head.what == DISCONNECTED:
            self._calls.conversations.pop((connection, head.call), None)
            call.is_wanted = False
        self._tell_server(call, head, data)
        if head.what == DISCONNECTED and not call.number:
            for waiting in self._calls.take_out(lambda waiting: waiting is call):
                self._calls.asked_before(waiting)

    def _tell_server(self, call: Call, head: TalkHead, data: bytes = b"") -> None:
        servers = self._registry.servers.values()
        server = next((s for s in servers if s.running.get(call.number) is call), None)
        if server is not None:
            to = msgspec.structs.replace(head, call=call.number)
            self._calls.effects.append(Say(server.connection, to, data))

    def begin(self, call: Call) -> None:
        """A call that both sides talk in begins."""
        self._calls.conversations[call.origin.connection, call.origin.correlation] = call

    def client_left(self, connection: int) -> None:
        """The servers that talk with it are told."""
        for key in [key for key in self._calls.conversations if key[0] == connection]:
            self._tell_server(self._calls.conversations.pop(key), TalkHead(0, DISCONNECTED))
