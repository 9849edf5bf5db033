"""The sections of hms.conf that describe server processes, their services and databases."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from hms.boot import database_kinds, kinds
from hms.boot.sections.node_sections import Name, QueueName, Secret
from hms.boot.sections.section import ABSENT, Named, Section, key, reads

__all__ = [
    "LETTER_HANDLER",
    "RESOURCE",
    "SERVER",
    "SERVICE",
    "Home",
    "LetterHandler",
    "Resource",
    "Server",
    "Service",
]

Home = Annotated[
    Name | None,
    Meta(description="The server group, and so the node, where it lives."),
    key(otherwise="every node of this file", example="hms01"),
]
Module = Annotated[str, reads(kinds.module)]
Variables = Annotated[tuple[str, ...], reads(kinds.variables)]
VariableNames = Annotated[tuple[str, ...], reads(kinds.variable_names)]
OpenString = Annotated[str, reads(database_kinds.open_string)]


class Server(Named, frozen=True, kw_only=True):
    """Server processes that run a module's services; booted and watched by the node."""

    module: Annotated[Module, key(example="services.orders")]
    """The module with the services."""
    svgname: Home = field(name="SVGNAME", default=None)
    min: Annotated[int, Meta(ge=0, le=256)] = field(name="MIN", default=1)
    """Processes started at boot and kept running."""
    max: Annotated[int, Meta(ge=1, le=256), key(otherwise="MIN, at least 1", example=1)] = field(
        name="MAX"
    )
    """The most processes of this server."""
    threads: Annotated[int, Meta(ge=1, le=256)] = field(name="THREADS", default=1)
    """So many calls one process runs at once, each in a thread of its own."""
    python_path: tuple[Path, ...] = (Path(),)
    """Folders where the module is looked for, first of all; relative to this file."""
    restart_delay_s: Annotated[float, Meta(ge=0, le=3600)] = 1
    """Pause before an ended process is started again, so that a fault does not spin."""
    restart_delay_max_s: Annotated[float, Meta(ge=0, le=3600)] = 30
    """The pause doubles with every restart within GPERIOD, up to this."""
    maxrstart: Annotated[int, Meta(ge=-1, le=10_000)] = field(name="MAXRSTART", default=5)
    """Restarts within GPERIOD before the node gives up; -1 never gives up."""
    gperiod: Annotated[int, Meta(ge=1, le=86_400)] = field(name="GPERIOD", default=60)
    """Seconds over which MAXRSTART counts."""
    idle_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60
    """A process above MIN ends when for so long not all were busy."""
    environment: Variables = ()
    """Variables of its processes beside the node's own, each written NAME=VALUE."""
    secrets: VariableNames = ()
    """Variables that hold secrets of the node and that its processes get too."""


class Service(Named, frozen=True, kw_only=True):
    """What holds for one service by name."""

    timeout_s: Annotated[float, Meta(ge=0, le=86_400)] = 0
    """The longest run; past it the caller gets TPESVCERR and the process ends. 0: none."""
    blocktime_s: Annotated[float, Meta(ge=0, le=86_400)] = 0
    """How long a call of it waits that does not say so itself; 0: BLOCKTIME of the node."""
    prio: Annotated[int, Meta(ge=1, le=100)] = field(name="PRIO", default=50)
    """Of two calls that wait for one server the one of the higher PRIO goes first."""
    concurrency: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """So many calls of it run at once, whatever number of servers there is; 0: no limit."""
    autotran: bool = field(name="AUTOTRAN", default=False)
    """Whether a call without a transaction, or a listener's message, begins one."""
    idempotent: bool = False
    """Whether it may run twice: a call without a transaction is made again when the node or the
    connection is lost while it runs."""


class Resource(Named, frozen=True, kw_only=True):
    """A resource manager: a database whose work can be part of a global transaction."""

    kind: Annotated[Literal["postgresql", "mariadb", "sqlite"], key(example="postgresql")]
    """What it is; mariadb is MySQL too."""
    open: Annotated[OpenString, key(example="postgresql://hms@127.0.0.1/bank")]
    """Where it is: postgresql://USER@HOST/NAME, mariadb://USER@HOST/NAME, sqlite:PATH."""
    password: Annotated[Secret | None, key(otherwise="none", example="env:BANK_PASSWORD")] = None
    """Where its password is, never the password itself: "env:NAME" or "file:PATH"."""
    last_resource: bool = False
    """Accept one that cannot prepare (sqlite): a crash at its commit can leave it alone."""


class LetterHandler(Named, frozen=True, kw_only=True):
    """A rules table for dead letters, carried out by a process that the node keeps running."""

    rules: Annotated[Path, key(example="dlq.rules")]
    """The table; hms dlq check tells its faults, hms dlq reload has another one read."""
    queue: QueueName = ""
    """The queue whose letters they are; "": INPUTQ of the table, or else HMS.DLQ."""
    svgname: Home = field(name="SVGNAME", default=None)
    user: Annotated[Name | None, key(otherwise="who runs the node", example="letters")] = None
    """As whom it logs in to a secured node; its rights are those of this user."""
    password: Annotated[Secret | None, key(otherwise="none", example="file:night.password")] = None
    """Where that user's password is: "env:NAME" or "file:PATH"."""


SERVER = Section(
    ("server",),
    Server,
    "# [server.orders]",
    later={
        "CLOPT": f"{ABSENT}; a module reads its own settings",
        "RESTART": f"{ABSENT}; MAXRSTART = 0 never restarts",
        "CONV": ABSENT,
    },
)

SERVICE = Section(
    ("service",),
    Service,
    "# [service.ORDER_SVC]",
    later={
        "SVCTIME": "is written timeout_s",
        "SVRNAME": f"is not needed: a server offers the services of its module; {ABSENT}",
    },
)

LETTER_HANDLER = Section(("dlq",), LetterHandler, "# [dlq.night]")

RESOURCE = Section(("rm",), Resource, "# [rm.bank]")
