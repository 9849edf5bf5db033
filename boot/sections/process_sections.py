"""The sections of hms.conf that describe server processes, their services and databases."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from hms.boot import database_kinds, kinds
from hms.boot.sections.node_sections import Name, Secret
from hms.boot.sections.section import ABSENT, Named, Section, reads, why

__all__ = ["RESOURCE", "SERVER", "SERVICE", "Home", "Resource", "Server", "Service"]

Home = Annotated[
    Name | None,
    why(
        "The server group, and so the node, where it lives.",
        otherwise="every node of this file",
        example="hms01",
    ),
]
Module = Annotated[str, reads(kinds.module)]
Variables = Annotated[tuple[str, ...], reads(kinds.variables)]
OpenString = Annotated[str, reads(database_kinds.open_string)]


class Server(Named, frozen=True, kw_only=True):
    """Server processes that run a module's services; booted and watched by the node."""

    module: Annotated[Module, why("The module with the services.", example="services.orders")]
    svgname: Home = field(name="SVGNAME", default=None)
    min: Annotated[int, Meta(ge=0, le=256), why("Processes started at boot and kept running.")] = (
        field(name="MIN", default=1)
    )
    max: Annotated[
        int,
        Meta(ge=1, le=256),
        why("The most processes of this server.", otherwise="MIN, at least 1", example=1),
    ] = field(name="MAX")
    python_path: Annotated[
        tuple[Path, ...],
        why("Folders where the module is looked for, first of all; relative to this file."),
    ] = (Path(),)
    restart_delay_s: Annotated[
        float,
        Meta(ge=0, le=3600),
        why("Pause before an ended process is started again, so that a fault does not spin."),
    ] = 1
    restart_delay_max_s: Annotated[
        float,
        Meta(ge=0, le=3600),
        why("The pause doubles with every restart within GPERIOD, up to this."),
    ] = 30
    maxrstart: Annotated[
        int,
        Meta(ge=-1, le=10_000),
        why("Restarts within GPERIOD before the node gives up; -1 never gives up."),
    ] = field(name="MAXRSTART", default=5)
    gperiod: Annotated[int, Meta(ge=1, le=86_400), why("Seconds over which MAXRSTART counts.")] = (
        field(name="GPERIOD", default=60)
    )
    idle_s: Annotated[
        float,
        Meta(ge=0.1, le=86_400),
        why("A process above MIN ends when for so long not all were busy."),
    ] = 60
    environment: Annotated[
        Variables, why("Variables of its processes beside the node's own, each written NAME=VALUE.")
    ] = ()


class Service(Named, frozen=True, kw_only=True):
    """What holds for one service by name."""

    timeout_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        why("The longest run; past it the caller gets TPESVCERR and the process ends. 0: none."),
    ] = 0
    blocktime_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        why("How long a call of it waits that does not say so itself; 0: BLOCKTIME of the node."),
    ] = 0
    prio: Annotated[
        int,
        Meta(ge=1, le=100),
        why("Of two calls that wait for one server the one of the higher PRIO goes first."),
    ] = field(name="PRIO", default=50)
    concurrency: Annotated[
        int,
        Meta(ge=0, le=10_000),
        why("So many calls of it run at once, whatever number of servers there is; 0: no limit."),
    ] = 0
    autotran: Annotated[
        bool, why("Whether a call without a transaction, or a listener's message, begins one.")
    ] = field(name="AUTOTRAN", default=False)


class Resource(Named, frozen=True, kw_only=True):
    """A resource manager: a database whose work can be part of a global transaction."""

    kind: Annotated[
        Literal["postgresql", "mariadb", "sqlite"],
        why("What it is; mariadb is MySQL too.", example="postgresql"),
    ]
    open: Annotated[
        OpenString,
        why(
            "Where it is: postgresql://USER@HOST/NAME, mariadb://USER@HOST/NAME, sqlite:PATH.",
            example="postgresql://hms@127.0.0.1/bank",
        ),
    ]
    password: Annotated[
        Secret | None,
        why(
            'Where its password is, never the password itself: "env:NAME" or "file:PATH".',
            otherwise="none",
            example="env:BANK_PASSWORD",
        ),
    ] = None
    last_resource: Annotated[
        bool,
        why("Accept one that cannot prepare (sqlite): a crash at its commit can leave it alone."),
    ] = False


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

RESOURCE = Section(("rm",), Resource, "# [rm.bank]")
