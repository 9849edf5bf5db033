"""Turns: which call runs on which server, and which one waits. Sans-IO; see monitor.py.

A call is waiting (in its service), behind another (in its session's line), running, or ended.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from field_buffer.catalogue import ServiceLimit, TooManyRequests
from tpmon.monitored import Answer, Call, Invoke, Server, Service
from tpmon.protocol.structures import ResultHead

__all__ = ["Turns"]

CALLS_WAITING_MAX = 10_000
CALL_BYTES_WAITING_MAX = 256 << 20


class Turns:
    """Calls, and the servers that take them one at a time."""

    def __init__(self, first_call: int) -> None:
        self.effects: list[Invoke | Answer] = []
        self._services: dict[str, Service] = {}
        self._running: dict[int, Call] = {}
        self._lines: dict[tuple[int, int], deque[Call]] = {}
        """Listener calls of a session: the first one is waiting or running, the others follow."""
        self._next = first_call
        self._arrivals = 0
        self._bytes_waiting = 0

    def _service(self, name: str) -> Service:
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = Service(name)
        return service

    def _forget_if_unused(self, service: Service) -> None:
        if not service.is_offered and not service.waiting:
            self._services.pop(service.name, None)

    def _now_idle(self, server: Server) -> None:
        """Give an idle server the call that waits longest, or note that it is idle."""
        server.current = None
        offered = [self._services[name] for name in server.services]
        waiting = [service for service in offered if service.waiting]
        if waiting:
            longest = min(waiting, key=lambda service: service.waiting[0].arrival)
            call = longest.waiting.popleft()
            self._bytes_waiting -= len(call.data)
            self._run(call, server)
            return
        for service in offered:
            service.idle[server.connection] = server

    def _check_room(self, service: Service, data_bytes: int) -> None:
        """Refuse a call that would have to wait and for which there is no room."""
        count = len(service.waiting)
        if service.idle:
            return
        if count >= CALLS_WAITING_MAX:
            raise ServiceLimit(service=service.name, count=count, limit=CALLS_WAITING_MAX)
        if self._bytes_waiting + data_bytes > CALL_BYTES_WAITING_MAX:
            count, limit = self._bytes_waiting, CALL_BYTES_WAITING_MAX
            raise TooManyRequests(what="bytes of calls", count=count, limit=limit)

    def _start(self, call: Call) -> None:
        service = self._service(call.head.service)
        self._arrivals += 1
        call.arrival = self._arrivals
        if service.idle:
            self._run(call, next(iter(service.idle.values())))
        else:
            service.waiting.append(call)
            self._bytes_waiting += len(call.data)

    def _run(self, call: Call, server: Server) -> None:
        for name in server.services:
            self._services[name].idle.pop(server.connection, None)
        call.number, server.current = self._next, call
        self._next += 1
        self._running[call.number] = call
        head = msgspec.structs.replace(call.head, call=call.number)
        self.effects.append(Invoke(server.connection, head, call.data))
        call.data = b""

    def _take_out(self, is_meant: Callable[[Call], bool]) -> list[Call]:
        """Remove waiting calls, in the order in which they came."""
        taken: list[Call] = []
        for service in list(self._services.values()):
            here = [call for call in service.waiting if is_meant(call)]
            if here:
                service.waiting = deque(call for call in service.waiting if not is_meant(call))
                self._bytes_waiting -= sum(len(call.data) for call in here)
                self._forget_if_unused(service)
                taken += here
        return taken

    def _end(self, call: Call, head: ResultHead, data: bytes) -> None:
        if call.is_ended:
            return  # by its deadline; the server only now came back
        call.is_ended = True
        self._running.pop(call.number, None)
        if call.is_wanted:
            self.effects.append(Answer(call.origin, head, data))
        if call.origin.session:
            self._leave_line(call)

    def _leave_line(self, call: Call) -> None:
        """A listener's call is over: the next one of its session may begin."""
        key = (call.origin.connection, call.origin.session)
        line = self._lines.get(key)
        if line is None or call not in line:
            return
        was_first = line[0] is call
        line.remove(call)
        if not line:
            del self._lines[key]
        elif was_first:
            self._start(line[0])
