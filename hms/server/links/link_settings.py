"""What a node knows of its links, and what it counts of each."""

from collections import deque
from dataclasses import dataclass, field

from hms.engine.cluster.members import Incarnation
from hms.server.links.keys import KeyPair

FRAMES_PER_S_MAX = 20_000
"""A node that sends more in a second is cut off for a while."""
CLOCKS_KEPT = 8
CLOCKS_MIN = 3


@dataclass(frozen=True, slots=True)
class LinkPeer:
    """Another node as hms.conf tells of it; key: its public one, "" without keys; next_key: a
    second one that it may show, "" for none."""

    index: int
    name: str
    address: str
    key: str = ""
    next_key: str = ""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What a node knows of its links. keys None: they are not encrypted."""

    cluster: str
    name: str
    index: int
    address: str
    peers: tuple[LinkPeer, ...]
    heartbeat_s: float
    frame_bytes_max: int
    keys: KeyPair | None = None
    clients: tuple[str, ...] = ()
    """The addresses that clients of this node use."""


@dataclass(slots=True)
class Heard:
    """What came from one node. budget: frames that it may still send in this second."""

    frames: int = 0
    size_bytes: int = 0
    refused: int = 0
    budget: int = FRAMES_PER_S_MAX
    shunned_until: float = 0.0
    addresses: tuple[str, ...] = ()
    clocks_ms: deque[int] = field(default_factory=lambda: deque(maxlen=CLOCKS_KEPT))
    """What its last hellos said less this node's clock when they were read."""
    received: list[tuple[Incarnation, bytes]] = field(default_factory=list)

    @property
    def ahead_s(self) -> float | None:
        """By how much its clock is ahead of this node's: at least so much, as a hello takes its
        time; so the one that took the least counts. None until some were heard."""
        if len(self.clocks_ms) < CLOCKS_MIN:
            return None
        return max(self.clocks_ms) / 1000
