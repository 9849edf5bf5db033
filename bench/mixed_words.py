"""The mixed load: its kinds, who takes part in each, and what its processes say to each other."""

import msgspec

__all__ = ["KINDS", "KIND_NUMBERS", "SLOW_MS", "Kind", "Leg", "Part", "Said", "parts"]

SLOW_MS = 100
"""A latency above it is a pause."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of work. share: of all messages that are due; copies: how often each arrives."""

    name: str
    share: float
    size: int
    copies: int = 1
    is_durable: bool = True


KINDS = {
    kind.name: kind
    for kind in (
        Kind("queue", 0.52, 1024),
        Kind("topic", 0.40, 1024, copies=4, is_durable=False),
        Kind("move", 0.058, 1024),
        Kind("call", 0.02, 256),
        Kind("large", 0.002, 64 << 10),
    )
}
KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process does: its role in a kind; fraction: of the kind's messages; number:
    its own, in every message that it sends."""

    role: str
    kind: Kind
    address: str
    run: bytes
    fraction: float = 1.0
    number: int = 0


class Leg(msgspec.Struct, frozen=True):
    """A time of one rate, of all kinds together, by the clock that all processes share."""

    begin_ns: int
    seconds: float
    rate: float


class Said(msgspec.Struct, kw_only=True):
    """What a client reports, twice a second: totals so far; what is new of the rest.

    slow: from when the oldest was due until the last arrived, and the worst one, in nanoseconds.
    """

    sent: int = 0
    received: int = 0
    lost: int = 0
    doubled: int = 0
    last_ns: int = 0
    legs_done: int = 0
    counts: dict[int, int] = {}
    most_us: int = 0
    slow: list[tuple[int, int, int, int]] = []
    error: str = ""


def parts(address: str, run: bytes) -> list[Part]:
    """All client processes: their roles, kind by kind."""
    made = []
    for name, kind in KINDS.items():
        roles = {"call": ["call", "call"], "topic": ["send", "subscribe"]}
        roles["move"] = ["send", "move", "receive"]
        for number, role in enumerate(roles.get(name, ["send", "receive"])):
            part = Part(role=role, kind=kind, address=address, run=run)
            if role == "call":  # each a sender of its own
                part = msgspec.structs.replace(part, fraction=1 / 2, number=number)
            made.append(part)
    return made
