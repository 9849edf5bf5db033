"""Listener demand: which listeners may have a message now. Sans-IO.

A listener's consumer has no credit of its own. It is given one message when a server of its service
is free, and the next one when that one is settled; so no message is taken out of its queue to wait
elsewhere. Listeners take turns. One whose queue was empty keeps its credit: what arrives next goes
to it at once.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from hms.server.service_monitor import Grant, Listener

__all__ = ["ListenerDemand"]

Key = tuple[int, int]
"""Connection and consumer."""


@dataclass(slots=True)
class _Table:
    """The listeners of one service. hungry: without a message and without credit; armed: with
    credit; promised: given a message that is still on its way (P1)."""

    hungry: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    armed: set[Key] = field(default_factory=set)
    promised: set[Key] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return not (self.hungry or self.armed or self.promised)


class ListenerDemand:
    """The listeners of a node."""

    def __init__(self) -> None:
        self.listeners: dict[Key, Listener] = {}
        self._tables: dict[str, _Table] = {}

    def add(self, listener: Listener) -> None:
        """A listener's consumer was opened."""
        key = listener.connection, listener.consumer
        self.listeners[key] = listener
        self._table(listener.service).hungry[key] = None

    def wants(self, connection: int, consumer: int) -> str:
        """Its message is settled; the service that it waits for, "" when it is gone."""
        key = connection, consumer
        listener = self.listeners.get(key)
        if listener is None:
            return ""
        table = self._forget(key, listener.service)
        table.hungry[key] = None
        return listener.service

    def arrived(self, connection: int, consumer: int) -> None:
        """A message for it is here and has become a call."""
        key = connection, consumer
        listener = self.listeners.get(key)
        if listener is not None:
            self._forget(key, listener.service)

    def consumers_of(self, connection: int, session: int) -> list[int]:
        """The listeners of a session."""
        every = self.listeners.values()
        mine = (one for one in every if (one.connection, one.session) == (connection, session))
        return [one.consumer for one in mine]

    def drop(self, connection: int, consumer: int = 0, session: int = 0) -> None:
        """Consumers are gone: one, those of a session, or all of a connection."""
        for key, listener in list(self.listeners.items()):
            if (
                key[0] == connection
                and consumer in (0, key[1])
                and session in (0, listener.session)
            ):
                del self.listeners[key]
                if self._forget(key, listener.service).is_empty:
                    self._tables.pop(listener.service, None)

    def feed(self, service: str, slots: int, grant: Grant) -> None:
        """Give messages to so many listeners of a service as it has free servers."""
        table = self._tables.get(service)
        if table is None:
            return
        left = slots - len(table.promised)
        for key in list(table.hungry):
            if left <= 0:
                return
            del table.hungry[key]
            table.armed.add(key)
            given = grant(*key, 1)
            if given is None:
                self.drop(*key)
            elif given:
                table.armed.discard(key)
                table.promised.add(key)
                left -= 1

    def starve(self, service: str, grant: Grant) -> None:
        """Nobody offers the service: messages stay where they wait."""
        table = self._tables.get(service)
        for key in list(table.armed) if table is not None else ():
            assert table is not None
            table.armed.discard(key)
            table.hungry[key] = None
            if grant(*key, 0) is None:
                self.drop(*key)

    def _table(self, service: str) -> _Table:
        return self._tables.setdefault(service, _Table())

    def _forget(self, key: Key, service: str) -> _Table:
        table = self._table(service)
        table.hungry.pop(key, None)
        table.armed.discard(key)
        table.promised.discard(key)
        return table
