"""The monitor: which server offers which service, and whose turn it is. Sans-IO.

Theory of operation. A server (a connection that advertised services) runs one call at a time. A call
goes to the idle server of its service that has been idle longest, or waits in the service's queue.
A call ends by its result, by its deadline, or by the loss of its server (TPESVCERR). Calls for listeners
wait as long as it takes; those of one session follow one another (F-E2).
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from field_buffer.catalogue import (
    ServerLost,
    ServiceLimit,
    ServiceNotFound,
    ServiceTaken,
    ServiceTimeout,
)
from field_buffer.errors import HmsError
from tpmon.protocol.structures import CallHead, InvokeHead, ResultHead, wire_fields

TPFAIL, TPSUCCESS = 1, 2
CALLS_WAITING_MAX = 10_000


class Origin(NamedTuple):
    """Who asked: a client's CALL, or a listener (then session is set, correlation unused)."""

    connection: int
    correlation: int = 0
    session: int = 0
    token: object = None


@dataclass(slots=True)
class Call:
    """One run of a service. deadline_ms 0: no end."""

    origin: Origin
    head: InvokeHead
    data: bytes
    deadline_ms: int
    number: int = 0
    server: "Server | None" = None


@dataclass(slots=True, eq=False)
class Server:
    """A connection that runs services."""

    connection: int
    services: set[str] = field(default_factory=set)
    current: Call | None = None


class Invoke(NamedTuple):
    """Effect: run this call on that server."""

    connection: int
    head: InvokeHead
    data: bytes


class Answer(NamedTuple):
    """Effect: the call of that origin ended."""

    origin: Origin
    head: ResultHead
    data: bytes


class Monitor:
    """Services, servers and calls of one node."""

    def __init__(self) -> None:
        self.effects: list[Invoke | Answer] = []
        self._servers: dict[int, Server] = {}
        self._idle: dict[str, OrderedDict[int, Server]] = {}
        self._waiting: dict[str, deque[Call]] = {}
        self._running: dict[int, Call] = {}
        self._sessions: dict[tuple[int, int], deque[Call]] = {}
        """Listener calls of a session: the first one is waiting or running, the others follow."""
        self._next = 1

    # servers

    def advertise(self, connection: int, service: str) -> None:
        """A server offers a service."""
        server = self._servers.setdefault(connection, Server(connection))
        if service in server.services:
            raise ServiceTaken(service=service)
        server.services.add(service)
        self._idle.setdefault(service, OrderedDict())
        if server.current is None:
            self._now_idle(server)

    def unadvertise(self, connection: int, service: str) -> None:
        """A server offers a service no more."""
        server = self._servers.get(connection)
        if server is None or service not in server.services:
            raise ServiceNotFound(service=service)
        server.services.discard(service)
        self._idle[service].pop(connection, None)

    def lost(self, connection: int) -> None:
        """A connection ended: its running call failed, its own calls are not wanted any more."""
        server = self._servers.pop(connection, None)
        if server is not None:
            for service in server.services:
                self._idle[service].pop(connection, None)
            if server.current is not None:
                self._end(server.current, ServerLost(service=server.current.head.service))
        for key in [k for k in self._sessions if k[0] == connection]:
            del self._sessions[key]
        for queue in self._waiting.values():
            for call in [c for c in queue if c.origin.connection == connection]:
                queue.remove(call)

    # calls

    def call(self, origin: Origin, head: CallHead, data: bytes, now_ms: int) -> None:
        """A client's CALL."""
        if not self.is_offered(head.service):
            raise ServiceNotFound(service=head.service)
        waiting = self._waiting.setdefault(head.service, deque())
        if len(waiting) >= CALLS_WAITING_MAX:
            raise ServiceLimit(service=head.service, count=len(waiting), limit=CALLS_WAITING_MAX)
        deadline = now_ms + head.timeout_ms if head.timeout_ms else 0
        self._start(Call(origin, InvokeHead(head.service, 0, deadline, head.kind), data, deadline))

    def listen(self, origin: Origin, head: InvokeHead, data: bytes) -> None:
        """A message arrived for a listener; it waits its turn in its session."""
        key = (origin.connection, origin.session)
        line = self._sessions.setdefault(key, deque())
        line.append(Call(origin, head, data, 0))
        if len(line) == 1:
            self._start(line[0])

    def result(self, connection: int, head: ResultHead, data: bytes) -> None:
        """A server ended a call; a result that nobody waits for any more is dropped."""
        server = self._servers.get(connection)
        if server is None or server.current is None or server.current.number != head.call:
            return
        call = server.current
        self._finish(call, head, data)
        self._now_idle(server)

    def tick(self, now_ms: int) -> None:
        """End calls whose time is over; a server that still runs one stays busy with it."""
        for call in [c for c in self._running.values() if 0 < c.deadline_ms <= now_ms]:
            self._time_out(call)
        for queue in self._waiting.values():
            for call in [c for c in queue if 0 < c.deadline_ms <= now_ms]:
                queue.remove(call)
                self._time_out(call)

    # looking

    def is_offered(self, service: str) -> bool:
        """Whether some server has it."""
        return any(service in server.services for server in self._servers.values())

    def describe(self) -> list[dict[str, object]]:
        """Services for operators."""
        names = {name for server in self._servers.values() for name in server.services}
        return [
            {
                "name": name,
                "servers": sum(1 for s in self._servers.values() if name in s.services),
                "idle": len(self._idle.get(name, ())),
                "waiting": len(self._waiting.get(name, ())),
            }
            for name in sorted(names)
        ]

    # inside

    def _start(self, call: Call) -> None:
        idle = self._idle.get(call.head.service)
        if idle:
            self._run(call, next(iter(idle.values())))
        else:
            self._waiting.setdefault(call.head.service, deque()).append(call)

    def _run(self, call: Call, server: Server) -> None:
        for service in server.services:
            self._idle[service].pop(server.connection, None)
        call.number, call.server, server.current = self._next, server, call
        self._next += 1
        self._running[call.number] = call
        head = msgspec.structs.replace(call.head, call=call.number)
        self.effects.append(Invoke(server.connection, head, call.data))

    def _now_idle(self, server: Server) -> None:
        """Give an idle server the call that waits longest, or note that it is idle."""
        server.current = None
        for service in server.services:
            waiting = self._waiting.get(service)
            if waiting:
                self._run(waiting.popleft(), server)
                return
        for service in server.services:
            self._idle.setdefault(service, OrderedDict())[server.connection] = server

    def _end(self, call: Call, error: HmsError) -> None:
        head = ResultHead(0, TPFAIL, 0, 0, error.number, wire_fields(error))
        self._finish(call, head, b"")

    def _time_out(self, call: Call) -> None:
        self._end(call, ServiceTimeout(service=call.head.service, timeout_s="the given"))

    def _finish(self, call: Call, head: ResultHead, data: bytes) -> None:
        if self._running.pop(call.number, None) is None and call.server is not None:
            return  # it ended before, by its deadline
        self.effects.append(Answer(call.origin, head, data))
        if call.origin.session:
            line = self._sessions.get((call.origin.connection, call.origin.session))
            if line and line[0] is call:
                line.popleft()
                if line:
                    self._start(line[0])

