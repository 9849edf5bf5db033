"""Conversation relay: conversations, passed on between a client and the server that runs its call.
Sans-IO.

A conversation is a call that both sides talk in while it runs. The node knows which two connections
belong together and passes their parts on unread; it ends as any call does, by the server's result.
Whoever leaves before has the other side told: the client by TALK, the server by its lost call.
"""

from typing import Any

import msgspec

from hms.errors.catalogue import InvalidArgument
from hms.server.service_monitor import Say
from hms.wire.structures import ResultHead, TalkHead
from tpmon.scheduling.monitor_state import Call
from tpmon.scheduling.service_registry import ServiceRegistry

__all__ = ["DATA", "DISCONNECTED", "ROOM", "ConversationRelay"]

DATA, ROOM, DISCONNECTED = 0, 1, 2
MODES = (0, 1, 2)


class ConversationRelay(ServiceRegistry):
    """Conversations among the calls."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._talks: dict[tuple[int, int], Call] = {}
        """By the client's connection and correlation."""

    def talk(self, connection: int, head: TalkHead, data: bytes) -> None:
        """A part of a conversation; one for nobody crossed its end and is dropped."""
        if head.what not in (DATA, ROOM, DISCONNECTED):
            raise InvalidArgument(what="TALK", detail=f"{head.what} is no part of a conversation")
        if head.is_from_server:
            self._from_server(connection, head, data)
        else:
            self._from_client(connection, head, data)

    def _from_server(self, connection: int, head: TalkHead, data: bytes) -> None:
        server = self._servers.get(connection)
        call = server.current if server is not None else None
        if call is not None and call.number == head.call and call.is_wanted and call.head.mode:
            origin = call.origin
            to = msgspec.structs.replace(head, call=origin.correlation)
            self.effects.append(Say(origin.connection, to, data))

    def _from_client(self, connection: int, head: TalkHead, data: bytes) -> None:
        call = self._talks.get((connection, head.call))
        if call is None:
            return
        if head.what == DISCONNECTED:
            self._talks.pop((connection, head.call), None)
            call.is_wanted = False
        self._tell_server(call, head, data)
        if head.what == DISCONNECTED and not call.number:
            self._take_out(lambda waiting: waiting is call)

    def _tell_server(self, call: Call, head: TalkHead, data: bytes = b"") -> None:
        server = next((s for s in self._servers.values() if s.current is call), None)
        if server is not None:
            to = msgspec.structs.replace(head, call=call.number)
            self.effects.append(Say(server.connection, to, data))

    def _begin_talk(self, call: Call) -> None:
        self._talks[call.origin.connection, call.origin.correlation] = call

    def _client_left(self, connection: int) -> None:
        """The servers that talk with it are told."""
        for key in [key for key in self._talks if key[0] == connection]:
            self._tell_server(self._talks.pop(key), TalkHead(0, DISCONNECTED))

    def _end(self, call: Call, head: ResultHead, data: bytes) -> None:
        if call.head.mode:
            self._talks.pop((call.origin.connection, call.origin.correlation), None)
        super()._end(call, head, data)
