"""What the engine knows of its cluster; times in milliseconds."""

import enum
from dataclasses import dataclass, field


class Scope(enum.StrEnum):
    """Which nodes' consumers a global queue's messages are for."""

    EVERYWHERE = "everywhere"
    LOCAL_PREFERRED = "local_preferred"
    """Those of other nodes only while there is none here."""
    LOCAL_ONLY = "local_only"


@dataclass(frozen=True, slots=True)
class GlobalQueue:
    """A queue with GLOBAL = "Y" (F-J4 … F-J7).

    threshold: GQTHR, messages to have ready for each consumer; request_max: GQMAXREQ, the most
    that one request brings; full: GQFULL, from so many on messages are pushed to shorter queues,
    0 never.
    """

    name: str
    threshold: int = 100
    request_max: int = 1000
    full: int = 10_000
    scope: Scope = Scope.EVERYWHERE


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One node's view of its cluster. peers: index and name of each other node."""

    peers: tuple[tuple[int, str], ...] = ()
    interval_ms: int = 5000
    """GQINT: how often nodes tell one another of their queues."""
    queues: tuple[GlobalQueue, ...] = field(default=())
    topics: tuple[str, ...] = field(default=())
    """Topic objects whose publications go to subscribers at all nodes."""
    config_master: str = ""
    """The only node where destinations are created, altered and deleted; "" for any node."""
    is_config_master: bool = True
    """Whether they may be here."""
