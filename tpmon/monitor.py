"""The monitor: which server offers which service, and whose turn it is. Sans-IO.

Theory of operation. A server (a connection that advertised services) runs one call at a time. A
call goes to the server of its service that has been idle longest, or waits; a server that becomes
idle takes the call that has waited longest for any of its services. A call ends once: by its
result, by its deadline, by the loss of its server (TPESVCERR), or because nobody offers its service
any more (TPENOENT). A server whose call ended by its deadline stays busy until it returns.

Calls for listeners wait as long as it takes; those of one session run one after the other (F-E2),
also when the one before them is not wanted any more.

A lost server that the node had started comes back: its services are expected for a while, and
calls of them wait. Time is known by tick() alone, so what needs it may come a tick late.
"""

from collections import deque

import msgspec

from field_buffer.catalogue import (
    InvalidArgument,
    ServerLost,
    ServiceNotFound,
    ServiceTimeout,
    TooManyRequests,
)
from field_buffer.errors import HmsError
from tpmon.monitored import (
    Answer,
    Call,
    Invoke,
    Load,
    Origin,
    Server,
    Service,
    check_service_name,
)
from tpmon.protocol.structures import CallHead, InvokeHead, ResultHead, wire_fields
from tpmon.turns import Turns

__all__ = ["Answer", "Invoke", "Load", "Monitor", "Origin"]

TPFAIL, TPSUCCESS = 1, 2
SERVICES_PER_SERVER_MAX = 1_000
TIMEOUT_MS_MAX = 1 << 40
EXPECTED_MS = 10_000
"""How long calls wait for a lost server that is started again."""


class Monitor(Turns):
    """Services, servers and calls of one node.

    first_call: the number of the first call; a node that boots again must not repeat numbers that
    a server may still be answering. timeouts_ms: the longest a call may take, by service.
    """

    def __init__(self, first_call: int = 1, timeouts_ms: dict[str, int] | None = None) -> None:
        super().__init__(first_call)
        self._timeouts_ms = timeouts_ms or {}
        self._servers: dict[int, Server] = {}

    # servers

    def introduce(self, connection: int, name: str) -> None:
        """A server says hello; name: "NAME:pid" of a process that the node started, or nothing."""
        self._servers[connection] = Server(connection, name if ":" in name else "")

    def advertise(self, connection: int, service: str) -> None:
        """A server offers a service; doing so twice is doing it once."""
        check_service_name(service)
        server = self._servers.setdefault(connection, Server(connection))
        if service in server.services:
            return
        if len(server.services) >= SERVICES_PER_SERVER_MAX:
            count = len(server.services)
            raise TooManyRequests(what="services of a server", count=count, limit=count)
        server.services.add(service)
        offered = self._service(service)
        offered.servers[connection] = server
        offered.is_expected, offered.expected_until_ms = False, None
        if server.current is None:
            self._now_idle(server)

    def unadvertise(self, connection: int, service: str) -> None:
        """A server offers a service no more; a call that it runs goes on."""
        server = self._servers.get(connection)
        if server is None or service not in server.services:
            raise ServiceNotFound(service=service)
        self._take_away(server, service, is_expected=False)

    def lost(self, connection: int) -> None:
        """A connection ended: its running call failed, its own calls are not wanted any more."""
        for call in self._running.values():
            if call.origin.connection == connection:
                call.is_wanted = False
        for key in [key for key in self._lines if key[0] == connection]:
            del self._lines[key]
        self._take_out(lambda call: call.origin.connection == connection)
        server = self._servers.pop(connection, None)
        if server is None:
            return
        if server.current is not None:
            self._fail(server.current, ServerLost(service=server.current.head.service))
        for service in sorted(server.services):
            self._take_away(server, service, is_expected=bool(server.name))

    def connections_of(self, name: str) -> list[int]:
        """The connections of the process that was introduced by this name."""
        return [c for c, server in self._servers.items() if name and server.name == name]

    # calls

    def call(self, origin: Origin, head: CallHead, data: bytes, now_ms: int) -> None:
        """A client's CALL."""
        service = self._services.get(head.service)
        if service is None or not service.is_offered:
            raise ServiceNotFound(service=head.service)
        self._check_room(service, len(data))
        timeout_ms = self._timeout_ms(head)
        deadline_ms = now_ms + timeout_ms if timeout_ms else 0
        invoke = InvokeHead(head.service, 0, deadline_ms, head.kind)
        self._start(Call(origin, invoke, data, deadline_ms, timeout_ms, head.is_reply_wanted))

    def listen(self, origin: Origin, head: InvokeHead, data: bytes) -> None:
        """A message arrived for a listener; it waits its turn in its session."""
        line = self._lines.setdefault((origin.connection, origin.session), deque())
        line.append(Call(origin, head, data))
        if len(line) == 1:
            self._start(line[0])

    def withdraw(self, connection: int, session: int = 0, consumer: int = 0) -> None:
        """A session, or a consumer of any session, wants its listener's calls no more.

        What waits is taken out; what runs goes on, unanswered, and the session's next call follows.
        """
        lines = [li for (c, s), li in self._lines.items() if c == connection and session in (0, s)]
        calls = [c for line in lines for c in line if consumer in (0, c.origin.consumer)]
        for call in reversed(calls):
            call.is_wanted = False
            if not call.number:
                self._take_out(lambda waiting, call=call: waiting is call)  # type: ignore[misc]
                self._leave_line(call)

    def result(self, connection: int, head: ResultHead, data: bytes) -> None:
        """A server ended a call; a result that nobody waits for any more is dropped."""
        server = self._servers.get(connection)
        if server is None or server.current is None or server.current.number != head.call:
            return
        rval = TPSUCCESS if head.rval == TPSUCCESS and not head.error_number else TPFAIL
        self._end(server.current, msgspec.structs.replace(head, call=0, rval=rval), data)
        self._now_idle(server)

    def tick(self, now_ms: int) -> None:
        """End calls whose time is over, and give up services whose server did not come back."""
        for call in list(self._running.values()):
            if call.origin.session and not call.deadline_ms:
                self._limit_listener(call, now_ms)
            if 0 < call.deadline_ms <= now_ms:
                self._time_out(call)
        for call in self._take_out(lambda call: 0 < call.deadline_ms <= now_ms):
            self._time_out(call)
        for service in [s for s in self._services.values() if s.is_expected]:
            self._await_server(service, now_ms)

    # looking

    def is_offered(self, service: str) -> bool:
        """Whether some server has it, or is expected back."""
        known = self._services.get(service)
        return known is not None and known.is_offered

    def describe(self) -> list[dict[str, object]]:
        """Services for operators."""
        return [
            {
                "name": service.name,
                "servers": len(service.servers),
                "idle": len(service.idle),
                "waiting": len(service.waiting),
            }
            for service in sorted(self._services.values(), key=lambda service: service.name)
        ]

    def load(self) -> list[Load]:
        """How busy the servers are that the node started, by the name before the colon."""
        named: dict[str, list[Server]] = {}
        for server in self._servers.values():
            if server.name:
                named.setdefault(server.name.partition(":")[0], []).append(server)
        return [self._load(name, servers) for name, servers in named.items()]

    # servers, inside

    def _load(self, name: str, servers: list[Server]) -> Load:
        busy = sum(1 for server in servers if server.current is not None)
        services = {service for server in servers for service in server.services}
        waiting = sum(len(self._services[service].waiting) for service in services)
        return Load(name, len(servers), busy, waiting)

    def _take_away(self, server: Server, name: str, *, is_expected: bool) -> None:
        """The server does not offer this service any longer."""
        server.services.discard(name)
        service = self._services[name]
        service.servers.pop(server.connection, None)
        service.idle.pop(server.connection, None)
        if not service.servers:
            service.is_expected = is_expected
            self._give_up_unless_offered(service)

    def _await_server(self, service: Service, now_ms: int) -> None:
        if service.expected_until_ms is None:
            service.expected_until_ms = now_ms + EXPECTED_MS
        elif now_ms >= service.expected_until_ms:
            service.is_expected, service.expected_until_ms = False, None
            self._give_up_unless_offered(service)

    def _give_up_unless_offered(self, service: Service) -> None:
        """Clients are told that nobody offers it; listeners wait for whoever offers it next."""
        if service.is_offered:
            return
        for call in self._take_out(
            lambda call: not call.origin.session and call.head.service == service.name
        ):
            self._fail(call, ServiceNotFound(service=service.name))
        self._forget_if_unused(service)

    # calls, inside

    def _timeout_ms(self, head: CallHead) -> int:
        """The caller's timeout or the service's own, whichever is shorter; 0 for none."""
        if not 0 <= head.timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidArgument(what="timeout_ms", detail=f"{head.timeout_ms} is out of range")
        given = [ms for ms in (head.timeout_ms, self._timeouts_ms.get(head.service, 0)) if ms]
        return min(given, default=0)

    def _limit_listener(self, call: Call, now_ms: int) -> None:
        call.timeout_ms = self._timeouts_ms.get(call.head.service, 0)
        call.deadline_ms = now_ms + call.timeout_ms if call.timeout_ms else 0

    def _time_out(self, call: Call) -> None:
        self._fail(call, ServiceTimeout(service=call.head.service, timeout_s=_seconds(call)))

    def _fail(self, call: Call, error: HmsError) -> None:
        self._end(call, ResultHead(0, TPFAIL, 0, 0, error.number, wire_fields(error)), b"")


def _seconds(call: Call) -> int | float:
    whole, rest = divmod(call.timeout_ms, 1000)
    return call.timeout_ms / 1000 if rest else whole
