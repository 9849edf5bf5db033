"""Service registry: which server offers which service, and how busy they are. Sans-IO; see
monitor.py."""

from collections.abc import Callable
from typing import Any

from hms.errors.catalogue import (
    InvalidArgument,
    ServiceMismatch,
    ServiceNotFound,
    TooManyRequests,
)
from hms.server.service_monitor import Load, Verdict
from hms.wire.structures import ResultHead
from tpmon.scheduling.call_scheduler import CallScheduler
from tpmon.scheduling.call_statistics import Tally
from tpmon.scheduling.monitor_state import Server, Service, check_service_name

__all__ = ["EXPECTED_MS", "ServiceRegistry"]

TPFAIL = 1
SERVICES_PER_SERVER_MAX = 1_000
PLACES_MAX = 256
EXPECTED_MS = 10_000
"""How long calls wait for a lost server, and as long as the node goes on starting it."""


class ServiceRegistry:
    """Servers and their services."""

    def __init__(self, calls: CallScheduler) -> None:
        self._calls = calls
        self.servers: dict[int, Server] = {}
        self._groups: dict[str, Tally] = {}
        """By [server.NAME]; there are as many as the configuration has."""

    def introduce(self, connection: int, name: str) -> None:
        """A server says hello; name: "NAME:pid" of a process that the node started, or nothing."""
        self.servers[connection] = Server(connection, name if ":" in name else "")

    def advertise(
        self, connection: int, service: str, signature: str = "", places: int = 1
    ) -> None:
        """A server offers a service; doing so twice is doing it once. places: how many calls it
        runs at once. ServiceMismatch, InvalidArgument."""
        check_service_name(service)
        if not 1 <= places <= PLACES_MAX:
            detail = f"{places} is not 1 to {PLACES_MAX}"
            raise InvalidArgument(what="places of a server", detail=detail)
        server = self.servers.setdefault(connection, Server(connection))
        if service in server.services:
            return
        if len(server.services) >= SERVICES_PER_SERVER_MAX:
            count = len(server.services)
            raise TooManyRequests(what="services of a server", count=count, limit=count)
        self._check_signature(server, service, signature)
        server.services[service] = signature
        server.places = places
        offered = self._calls.service(service)
        offered.servers[connection] = server
        offered.is_expected, offered.expected_until_ms = False, None
        if server.free > 0:
            self._calls.now_idle(server)

    def unadvertise(self, connection: int, service: str, *, is_expected: bool = False) -> None:
        """A server offers a service no more; a call that it runs goes on. is_expected: its process
        ends, and another follows, for which calls wait."""
        server = self.servers.get(connection)
        if server is None or service not in server.services:
            raise ServiceNotFound(service=service, at=self._calls.at)
        self.take_away(server, service, is_expected=is_expected)

    def group_of(self, connection: int) -> str:
        """The [server.NAME] that the process of a connection was started for, or nothing."""
        server = self.servers.get(connection)
        return server.group if server is not None else ""

    def services_of(self, connection: int) -> list[str]:
        """What a connection offers."""
        server = self.servers.get(connection)
        return list(server.services) if server is not None else []

    def connections_of(self, name: str) -> list[int]:
        """The connections of the process that was introduced by this name."""
        return [c for c, server in self.servers.items() if name and server.name == name]

    # looking

    def is_offered(self, service: str) -> bool:
        """Whether some server has it, or is expected back."""
        known = self._calls.services.get(service)
        return known is not None and known.is_offered

    def describe(self) -> list[dict[str, Any]]:
        """Services for operators."""
        known = sorted(self._calls.services.values(), key=lambda service: service.name)
        return [service.describe() for service in known]

    def durations(self) -> dict[str, dict[str, Any]]:
        """How long the calls of each service ran, as histograms."""
        return {name: one.tally.histogram() for name, one in sorted(self._calls.services.items())}

    def server_durations(self) -> dict[str, dict[str, Any]]:
        """The same of each [server.NAME]."""
        return {name: tally.histogram() for name, tally in sorted(self._groups.items())}

    def load(self) -> list[Load]:
        """How busy the servers are that the node started, by the name before the colon."""
        return [self._load(name, servers) for name, servers in self._by_group().items()]

    def describe_absent(self) -> dict[str, Any]:
        """The figures of a group that has no process."""
        return {"connected": 0, "busy": 0, "waiting": 0, **Tally().describe()}

    def describe_groups(self) -> dict[str, dict[str, Any]]:
        """The same for operators, with counts."""
        loads = {load.name: load for load in self.load()}
        return {
            name: {
                "connected": loads[name].servers if name in loads else 0,
                "busy": loads[name].busy if name in loads else 0,
                "waiting": loads[name].waiting if name in loads else 0,
                **(self._groups[name].describe() if name in self._groups else Tally().describe()),
            }
            for name in {*loads, *self._groups}
        }

    def tally_of(self, server: Server) -> Tally:
        """The counts of the group that a server was started for; of no group they are dropped."""
        found = self._groups.get(server.group)
        if found is None:
            found = Tally()
            if server.group:
                self._groups[server.group] = found
        return found

    def tick(self, now_ms: int, comes_back: Callable[[str], bool]) -> None:
        """Give up services whose server did not come back, and let counts age. comes_back: whether
        the node starts a process of that [server.NAME] again."""
        for service in [s for s in self._calls.services.values() if s.is_expected]:
            self._await_server(service, now_ms, comes_back)
        for tally in self._groups.values():
            tally.tick(now_ms)

    def expect(self, name: str) -> Service:
        """A server that is being started may offer it; for EXPECTED_MS at most."""
        service = self._calls.service(name)
        service.is_expected = True
        return service

    def expect_no_more(self) -> None:
        """No server is being started: what none has offered yet is given up."""
        for service in list(self._calls.services.values()):
            if service.is_expected and not service.servers and not service.last_group:
                service.is_expected, service.expected_until_ms = False, None
                self._give_up_unless_offered(service)

    # inside

    def _check_signature(self, server: Server, service: str, signature: str) -> None:
        """Two servers of one service agree in it; new code of the same server may change it."""
        known = self._calls.services.get(service)
        for other in known.servers.values() if known is not None else ():
            theirs = other.services[service]
            is_same = bool(server.group) and other.group == server.group
            if not is_same and signature and theirs and theirs != signature:
                raise ServiceMismatch(service=service, theirs=theirs, ours=signature)

    def _by_group(self) -> dict[str, list[Server]]:
        named: dict[str, list[Server]] = {}
        for server in self.servers.values():
            if server.group:
                named.setdefault(server.group, []).append(server)
        return named

    def _load(self, name: str, servers: list[Server]) -> Load:
        busy = sum(1 for server in servers if server.free <= 0)
        services = {service for server in servers for service in server.services}
        waiting = sum(len(self._calls.services[service].waiting) for service in services)
        return Load(name, len(servers), busy, waiting)

    def take_away(self, server: Server, name: str, *, is_expected: bool) -> None:
        """The server does not offer this service any longer."""
        del server.services[name]
        service = self._calls.services[name]
        service.servers.pop(server.connection, None)
        service.idle.pop(server.connection, None)
        self._calls.changed.add(name)
        if not service.servers:
            service.is_expected, service.last_group = is_expected, server.group
            self._give_up_unless_offered(service)

    def _await_server(
        self, service: Service, now_ms: int, comes_back: Callable[[str], bool]
    ) -> None:
        if service.expected_until_ms is None:
            service.expected_until_ms = now_ms + EXPECTED_MS
        elif now_ms >= service.expected_until_ms and not comes_back(service.last_group):
            service.is_expected, service.expected_until_ms = False, None
            self._give_up_unless_offered(service)

    def _give_up_unless_offered(self, service: Service) -> None:
        """Clients are told that nobody offers it; listeners' messages go back to where they were
        (release_orphans)."""
        if service.is_offered:
            return
        self._calls.changed.add(service.name)
        for call in self._calls.take_out(
            lambda call: not call.origin.session and call.head.service == service.name
        ):
            self._calls.fail(call, ServiceNotFound(service=service.name, at=self._calls.at))
        self._calls.forget_if_unused(service)

    def release_orphans(self) -> None:
        """Give back the messages that wait for services that nobody offers any more."""
        services = self._calls.services
        for name in sorted(self._calls.changed):
            if name in services and services[name].servers:
                continue
            while not self.is_offered(name):
                orphans = self._calls.take_out(lambda call, name=name: call.head.service == name)  # type: ignore[misc]
                if not orphans:
                    break
                released = ResultHead(0, TPFAIL, verdict=Verdict.RELEASED)
                for call in orphans:
                    self._calls.end(call, released, b"")
