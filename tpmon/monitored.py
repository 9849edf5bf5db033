"""What the monitor keeps track of: calls, servers, services; and what it wants done."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from field_buffer.catalogue import InvalidArgument
from tpmon.protocol.structures import InvokeHead, ResultHead

__all__ = ["Answer", "Call", "Invoke", "Load", "Origin", "Server", "Service", "check_service_name"]

SERVICE_NAME_CHARACTERS_MAX = 127


class Origin(NamedTuple):
    """Who asked: a client's CALL, or a listener (then session is set, correlation unused)."""

    connection: int
    correlation: int = 0
    session: int = 0
    token: object = None
    consumer: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One run of a service; number 0 until it runs. deadline_ms 0: no end.

    is_wanted: somebody waits for its answer. arrival says which of two calls came first.
    """

    origin: Origin
    head: InvokeHead
    data: bytes
    deadline_ms: int = 0
    timeout_ms: int = 0
    is_wanted: bool = True
    arrival: int = 0
    number: int = 0
    is_ended: bool = False


@dataclass(slots=True, eq=False)
class Server:
    """A connection that runs services, one call at a time; current is the one it runs, also when
    its deadline has passed. name: the [server.NAME] it was started for, or nothing."""

    connection: int
    name: str = ""
    services: set[str] = field(default_factory=set)
    current: Call | None = None


@dataclass(slots=True, eq=False)
class Service:
    """A service: who offers it, who of them is idle (the longest first), which calls wait.

    is_expected: its last server was lost and the node starts it again; until the time when it is
    given up, None until a tick has set it.
    """

    name: str
    servers: dict[int, Server] = field(default_factory=dict)
    idle: OrderedDict[int, Server] = field(default_factory=OrderedDict)
    waiting: deque[Call] = field(default_factory=deque)
    is_expected: bool = False
    expected_until_ms: int | None = None

    @property
    def is_offered(self) -> bool:
        """Whether a call of it makes sense."""
        return bool(self.servers) or self.is_expected


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


class Load(NamedTuple):
    """How busy the connected processes of one [server.NAME] are; waiting counts calls."""

    name: str
    servers: int
    busy: int
    waiting: int


def check_service_name(service: str) -> None:
    """InvalidArgument for a name that no service may have."""
    if not 0 < len(service) <= SERVICE_NAME_CHARACTERS_MAX or not service.isprintable():
        shown = repr(service[:SERVICE_NAME_CHARACTERS_MAX])
        detail = f"{shown} does not have 1 to {SERVICE_NAME_CHARACTERS_MAX} printable characters"
        raise InvalidArgument(what="service", detail=detail)
