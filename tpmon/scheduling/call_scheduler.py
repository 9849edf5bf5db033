"""Call scheduler: which call runs on which server, and which one waits. Sans-IO; see monitor.py.

A call is waiting (in its service), behind another (in its session's line), running, or ended. Of
the calls that wait for one server the one of the highest priority goes first, then the oldest.
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice

import msgspec

from hms.errors.catalogue import ServiceBusy, ServiceLimit, TooManyRequests
from hms.errors.tree import HmsError
from hms.server.service_monitor import Answer, Invoke, Kill, Say, Times, Verdict
from hms.wire.structures import ResultHead, wire_fields
from tpmon.constants import TPFAIL
from tpmon.scheduling.call_statistics import Tally
from tpmon.scheduling.monitor_state import NO_RULES, Call, Rules, Server, Service

__all__ = ["CallScheduler"]

CALLS_WAITING_MAX = 10_000
CALL_BYTES_WAITING_MAX = 256 << 20
TALLIES_MAX = 2_000
DUE_STEP_MS = 20
"""Deadlines that are so near to each other share a tick."""

_UNSEEN = ResultHead(0, TPFAIL, verdict=Verdict.RELEASED)

Effect = Invoke | Answer | Say | Kill


class CallScheduler:
    """Calls, and the servers that take them, each as many at a time as it has places."""

    def __init__(
        self,
        first_call: int,
        rules: Mapping[str, Rules],
        bytes_waiting_max: int = CALL_BYTES_WAITING_MAX,
        node: str = "",
    ) -> None:
        self.at = f"node {node}" if node else "this node"
        """Where a service is not offered, for errors."""
        self._bytes_waiting_max = bytes_waiting_max
        self.effects: list[Effect] = []
        self.times = Times()
        self.changed: set[str] = set()
        """Services for whose listeners there may be a free server now, or none any more."""
        self._rules = rules
        self._tallies: dict[str, Tally] = {}
        self.services: dict[str, Service] = {}
        self.running: dict[int, Call] = {}
        self.lines: dict[tuple[int, int], deque[Call]] = {}
        """Listener calls of a session: the first one is waiting or running, the others follow."""
        self.conversations: dict[tuple[int, int], Call] = {}
        """By the client's connection and correlation."""
        self.asked: dict[int, int] = {}
        """How many calls of each connection that called have not ended."""
        self._next = first_call
        self._arrivals = 0
        self.bytes_waiting = 0
        """Data of calls that wait for a server."""

    def await_until(self, at_ms: int) -> None:
        """Something is over at that time."""
        at_ms += -at_ms % DUE_STEP_MS
        if self.times.due_ms is None or at_ms < self.times.due_ms:
            self.times.due_ms = at_ms

    def number_from(self, first_call: int) -> None:
        """At boot: the number of the first call."""
        assert not self.running, "calls have their numbers"
        self._next = first_call

    def service(self, name: str) -> Service:
        """A service by its name, also one that nobody offers."""
        service = self.services.get(name)
        if service is None:
            rules, tally = self._rules.get(name, NO_RULES), self.tally(name)
            service = self.services[name] = Service(name, rules, tally)
        return service

    def tally(self, name: str) -> Tally:
        """The counts of a service, also of one that was gone meanwhile."""
        if name not in self._tallies:
            spare = len(self._tallies) + 1 - TALLIES_MAX
            gone = (known for known in self._tallies if known not in self.services)
            for known in list(islice(gone, max(0, spare))):
                del self._tallies[known]
            self._tallies[name] = Tally()
        return self._tallies[name]

    def tick_tallies(self, now_ms: int) -> None:
        """Let the counts of services age."""
        for tally in self._tallies.values():
            tally.tick(now_ms)

    def forget_if_unused(self, service: Service) -> None:
        """Nobody offers it, and nothing of it waits or runs."""
        if not service.is_offered and not service.waiting and not service.running:
            self.services.pop(service.name, None)

    def free(self, server: Server, call: Call) -> None:
        """Its call is over, also for the service's concurrency."""
        del server.running[call.number]
        if call.is_hung:
            server.is_hung = any(other.is_hung for other in server.running.values())
        service = self.services[call.head.service]
        service.running -= 1
        self.changed.add(service.name)
        if not service.servers:
            self.forget_if_unused(service)

    def now_idle(self, server: Server) -> None:
        """Give a server with a free place the call whose turn it is, or note that it is idle."""
        services = self.services
        while server.free > 0:
            waiting = []
            for name in server.services:
                service = services[name]
                if service.waiting and service.running < service.running_max:
                    waiting.append(service)
            if not waiting:
                for name in server.services:
                    services[name].idle[server.connection] = server
                self.changed.update(server.services)
                return
            first = min(waiting, key=lambda one: (-one.rules.priority, one.waiting[0].arrival))
            self._run(self._take_first(first), server)

    def not_idle(self, server: Server) -> None:
        """It gets no calls."""
        for name in server.services:
            if self.services[name].idle.pop(server.connection, None) is not None:
                self.changed.add(name)

    def fill(self, service: Service) -> None:
        """Run what waits for a place in the service's concurrency."""
        while service.waiting and service.idle and service.running < service.running_max:
            self._run(self._take_first(service), next(iter(service.idle.values())))

    def _take_first(self, service: Service) -> Call:
        call = service.waiting.popleft()
        self.bytes_waiting -= len(call.data)
        return call

    def check_room(self, service: Service, data_bytes: int, *, may_wait: bool) -> None:
        """Refuse a call that has to wait and may not, or for which there is no room."""
        if not may_wait:
            raise ServiceBusy(service=service.name)
        count = len(service.waiting)
        if count >= CALLS_WAITING_MAX:
            raise ServiceLimit(service=service.name, count=count, limit=CALLS_WAITING_MAX)
        if self.bytes_waiting + data_bytes > self._bytes_waiting_max:
            count, limit = self.bytes_waiting, self._bytes_waiting_max
            raise TooManyRequests(what="bytes of calls", count=count, limit=limit)

    def asked_before(self, call: Call) -> None:
        """A call has ended; of one whose connection is gone nothing is counted."""
        connection = call.origin.connection
        left = 0 if call.origin.session else self.asked.get(connection, 0)
        if left > 1:
            self.asked[connection] = left - 1
        elif left:
            del self.asked[connection]

    def start(self, call: Call) -> None:
        """Run a call, or have it wait for its turn."""
        service = self.services.get(call.head.service) or self.service(call.head.service)
        self._arrivals += 1
        call.arrival = self._arrivals
        if call.deadline_ms:
            self.await_until(call.deadline_ms)
        if service.idle and service.running < service.running_max:
            self._run(call, next(iter(service.idle.values())))
        else:
            service.waiting.append(call)
            self.bytes_waiting += len(call.data)

    def _run(self, call: Call, server: Server) -> None:
        call.number, call.began_ms = self._next, self.times.now_ms
        server.running[call.number] = call
        is_free = server.free > 0
        for name in server.services:
            idle = self.services[name].idle
            if idle.pop(server.connection, None) is not None and is_free:
                idle[server.connection] = server
        service = self.services[call.head.service]
        service.running += 1
        self._next += 1
        self.running[call.number] = call
        if limit_ms := service.rules.limit_ms:
            self.await_until(call.began_ms + limit_ms)
        is_autotran = service.rules.autotran
        head = msgspec.structs.replace(call.head, call=call.number, is_autotran=is_autotran)
        self.effects.append(Invoke(server.connection, head, call.data))
        call.data = b""

    def take_out(self, is_meant: Callable[[Call], bool]) -> list[Call]:
        """Remove waiting calls, in the order in which they came."""
        taken: list[Call] = []
        for service in list(self.services.values()):
            here = [call for call in service.waiting if is_meant(call)]
            if here:
                service.waiting = deque(call for call in service.waiting if not is_meant(call))
                self.bytes_waiting -= sum(len(call.data) for call in here)
                self.forget_if_unused(service)
                taken += here
        return taken

    def end(self, call: Call, head: ResultHead, data: bytes) -> None:
        """A call is over: its caller is told. A second end is none."""
        if call.head.mode:
            self.conversations.pop((call.origin.connection, call.origin.correlation), None)
        if call.is_ended:
            return  # by its deadline; the server only now came back
        call.is_ended = True
        self.asked_before(call)
        self.running.pop(call.number, None)
        if call.is_wanted:
            self.effects.append(Answer(call.origin, head, data))
        if call.origin.session:
            self.leave_line(call)

    def fail(self, call: Call, error: HmsError) -> None:
        """End a call for its server, and count it."""
        if not call.is_ended:
            tally = self.tally(call.head.service)
            tally.broke_off()
            tally.failed_with(str(error))
        self.end(call, ResultHead(0, TPFAIL, 0, 0, error.number, wire_fields(error)), b"")

    def leave_line(self, call: Call) -> None:
        """A listener's call is over: the next one of its session may begin."""
        key = (call.origin.connection, call.origin.session)
        line = self.lines.get(key)
        if line is None or call not in line:
            return
        was_first = line[0] is call
        line.remove(call)
        if was_first:
            self.start_first(key)

    def start_first(self, key: tuple[int, int]) -> None:
        """The next one of a listener's session that has not expired while it waited (F-D2)."""
        line = self.lines[key]
        while line and 0 < line[0].expires_at_ms <= self.times.now_ms:
            late = line.popleft()
            late.is_ended = True
            self.effects.append(Answer(late.origin, _UNSEEN, b""))
        if line:
            self.start(line[0])
        else:
            del self.lines[key]
