"""What the monitor keeps track of: calls, servers, services."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from hms.errors.catalogue import InvalidArgument
from hms.server.service_monitor import Origin
from hms.wire.structures import InvokeHead
from tpmon.scheduling.call_statistics import Tally

__all__ = [
    "NO_RULES",
    "Call",
    "Rules",
    "Server",
    "Service",
    "check_service_name",
]

SERVICE_NAME_CHARACTERS_MAX = 127


@dataclass(frozen=True, slots=True)
class Rules:
    """What [service.NAME] says. priority: of two calls that wait for one server, the higher goes
    first; limit_ms: the longest run, 0 for any; block_ms: how long a call waits that does not say
    so itself, 0 as the node has it; concurrency: how many run at once, 0 for any number; autotran:
    what is called outside a transaction runs in one of its own."""

    priority: int = 50
    limit_ms: int = 0
    block_ms: int = 0
    concurrency: int = 0
    autotran: bool = False


NO_RULES = Rules()


class Call(msgspec.Struct, eq=False):
    """One run of a service; number 0 until it runs. deadline_ms 0: no end.

    is_wanted: somebody waits for its answer. arrival says which of two calls came first, began_ms
    when it began to run. forwards: how often one service handed it on to another; branches: what
    those left in the caller's transaction; is_hung: it ran past its service's limit.
    """

    origin: Origin
    head: InvokeHead
    data: bytes
    deadline_ms: int = 0
    timeout_ms: int = 0
    is_wanted: bool = True
    arrival: int = 0
    number: int = 0
    began_ms: int = 0
    forwards: int = 0
    is_ended: bool = False
    is_hung: bool = False
    branches: tuple[bytes, ...] = ()
    expires_at_ms: int = 0


@dataclass(slots=True, eq=False)
class Server:
    """A connection that runs services, as many calls at a time as it has places; running has them
    by number, also those whose deadline has passed. name: "NAME:pid" of a process that the node
    started, or nothing; services: their signatures; is_hung: a call of it ran past the limit, and
    it gets no others meanwhile."""

    connection: int
    name: str = ""
    services: dict[str, str] = field(default_factory=dict)
    places: int = 1
    running: dict[int, Call] = field(default_factory=dict)
    is_hung: bool = False
    group: str = ""
    """The [server.NAME] that it was started for."""

    def __post_init__(self) -> None:
        self.group = self.name.partition(":")[0]

    @property
    def free(self) -> int:
        """How many calls more it could take."""
        return 0 if self.is_hung else self.places - len(self.running)


@dataclass(slots=True, eq=False)
class Service:
    """A service: who offers it, who of them has a free place (whose turn it is first), which calls
    wait.

    is_expected: its last server was lost and the node starts it again; until the time when it is
    given up, None until a tick has set it. last_group: the [server.NAME] of that one. running:
    places that are busy with it.
    """

    name: str
    rules: Rules = NO_RULES
    tally: Tally = field(default_factory=Tally)
    servers: dict[int, Server] = field(default_factory=dict)
    idle: OrderedDict[int, Server] = field(default_factory=OrderedDict)
    waiting: deque[Call] = field(default_factory=deque)
    running: int = 0
    is_expected: bool = False
    expected_until_ms: int | None = None
    last_group: str = ""
    running_max: float = field(init=False)
    """How many may run at once."""

    def __post_init__(self) -> None:
        self.running_max = self.rules.concurrency or inf

    @property
    def is_offered(self) -> bool:
        """Whether a call of it makes sense."""
        return bool(self.servers) or self.is_expected

    @property
    def slots(self) -> int:
        """How many calls could begin now."""
        free = sum([server.free for server in self.idle.values()])
        return min(free, self.rules.concurrency - self.running) if self.rules.concurrency else free

    def describe(self) -> dict[str, Any]:
        """For operators."""
        return {
            "name": self.name,
            "servers": len(self.servers),
            "idle": len(self.idle),
            "waiting": len(self.waiting),
            **self.tally.describe(),
        }


def check_service_name(service: str) -> None:
    """InvalidArgument for a name that no service may have."""
    if not 0 < len(service) <= SERVICE_NAME_CHARACTERS_MAX or not service.isprintable():
        shown = repr(service[:SERVICE_NAME_CHARACTERS_MAX])
        detail = f"{shown} does not have 1 to {SERVICE_NAME_CHARACTERS_MAX} printable characters"
        raise InvalidArgument(what="service", detail=detail)
