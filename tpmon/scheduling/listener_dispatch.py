"""Listener dispatch: when listeners' messages are asked for, and their turns. Sans-IO; see
monitor.py."""

from collections import deque

from hms.server.service_monitor import Grant, Listener, Origin
from hms.wire.structures import InvokeHead
from tpmon.scheduling.call_scheduler import CallScheduler
from tpmon.scheduling.listener_demand import ListenerDemand
from tpmon.scheduling.monitor_state import Call
from tpmon.scheduling.service_registry import ServiceRegistry

__all__ = ["ListenerDispatch"]


class ListenerDispatch:
    """Listeners among the callers."""

    def __init__(self, calls: CallScheduler, registry: ServiceRegistry) -> None:
        self._calls, self._registry = calls, registry
        self._demand = ListenerDemand()

    def listen(self, origin: Origin, head: InvokeHead, data: bytes, expires_at_ms: int = 0) -> None:
        """A message arrived for a listener; it waits its turn in its session, until it expires."""
        self._demand.arrived(origin.connection, origin.consumer)
        self._calls.changed.add(head.service)
        key = origin.connection, origin.session
        line = self._calls.lines.setdefault(key, deque())
        line.append(Call(origin, head, data, expires_at_ms=expires_at_ms))
        if len(line) == 1:
            self._calls.start_first(key)

    def withdraw(self, connection: int, session: int = 0, consumer: int = 0) -> None:
        """A session, or a consumer of any session, wants its listener's calls no more.

        What waits is taken out; what runs goes on, unanswered, and the session's next call follows.
        """
        lines = [
            li for (c, s), li in self._calls.lines.items() if c == connection and session in (0, s)
        ]
        calls = [c for line in lines for c in line if consumer in (0, c.origin.consumer)]
        for call in reversed(calls):
            call.is_wanted = False
            if not call.number:
                self._calls.take_out(lambda waiting, call=call: waiting is call)  # type: ignore[misc]
                self._calls.leave_line(call)

    def listen_at(self, listener: Listener) -> None:
        """A consumer was opened whose messages are for a service."""
        self._demand.add(listener)
        self._calls.changed.add(listener.service)

    def settled(self, connection: int, consumer: int) -> None:
        """A listener's message is settled: it may have the next one."""
        self._calls.changed.update(filter(None, [self._demand.wants(connection, consumer)]))

    def running_of(self, connection: int, session: int = 0, consumer: int = 0) -> list[object]:
        """What services are run for now, of a session's listeners or of a consumer's."""
        lines = [
            li for (c, s), li in self._calls.lines.items() if c == connection and session in (0, s)
        ]
        return [
            call.origin.token
            for line in lines
            for call in line
            if call.number and call.is_wanted and consumer in (0, call.origin.consumer)
        ]

    def recovered(self, connection: int, session: int) -> None:
        """A session begins again: its messages are back where they waited."""
        self.withdraw(connection, session)
        for consumer in self._demand.consumers_of(connection, session):
            self.settled(connection, consumer)

    def closed(self, connection: int, session: int = 0, consumer: int = 0) -> None:
        """A session, or a consumer, is closed."""
        self.withdraw(connection, session, consumer)
        self._demand.drop(connection, consumer, session)

    def feed(self, grant: Grant) -> None:
        """Have messages delivered for which there is a free server."""
        if not self._demand.listeners:
            self._calls.changed.clear()
            return
        changed = sorted(self._calls.changed)
        self._calls.changed.clear()
        for name in changed:
            service = self._calls.services.get(name)
            if service is None or not service.is_offered:
                self._demand.starve(name, grant)
            else:
                self._demand.feed(name, service.slots - len(service.waiting), grant)

    def connection_lost(self, connection: int) -> None:
        """A connection is gone, with its listeners and what waits for them."""
        self._demand.drop(connection)
        for key in [key for key in self._calls.lines if key[0] == connection]:
            del self._calls.lines[key]

    def listeners_missing(self) -> list[dict[str, str]]:
        """The listeners whose service nobody offers."""
        all_of_them = {(one.service, one.place) for one in self._demand.listeners.values()}
        return [
            {"service": service, "destination": place}
            for service, place in sorted(all_of_them)
            if not self._registry.is_offered(service)
        ]
