"""The load: what is sent, and what is kept of what came.

Every body begins with a stamp: the run it belongs to, its sender and number, and, where latency is
measured, when it was due by this machine's monotonic clock, which all processes share.
"""

import os
import struct
import time
from collections.abc import Iterator

import msgspec

__all__ = ["STAMP", "WARM_UP", "Load", "Sink", "bodies", "timed_bodies"]

STAMP = struct.Struct("<4s8sIIQ")
"""magic, run, sender, number, monotonic nanoseconds or 0."""
MAGIC = b"HMSB"
WARM_UP = 0xFFFFFFFF
"""The sender of messages that nobody counts."""
_unpack = STAMP.unpack_from


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one client does. window: unconfirmed sends; rate: messages a second, 0 as fast as it
    goes; fan: receivers in the process; expected: what they all get, if not all of it each;
    selector: of each receiver, with {} for its number; keys: a property Key runs through so many
    numbers; ack_every: acknowledge by hand, so many at once, 0 leaves it to the session."""

    destination: str
    count: int
    size: int = 1024
    is_durable: bool = True
    window: int = 1000
    rate: float = 0
    prefetch: int = 1000
    fan: int = 1
    expected: int = 0
    sender: int = 0
    selector: str = ""
    keys: int = 0
    ack_every: int = 0
    is_stamped: bool = True
    timeout_s: float = 60
    run: bytes = msgspec.field(default_factory=lambda: os.urandom(8))

    @property
    def filler(self) -> bytes:
        """What follows the stamp."""
        return bytes(self.size - STAMP.size)


def bodies(load: Load) -> list[bytes]:
    """All bodies of a sender, made before the clock runs."""
    pack, filler = STAMP.pack, load.filler
    return [pack(MAGIC, load.run, load.sender, i, 0) + filler for i in range(load.count)]


def timed_bodies(load: Load) -> Iterator[bytes]:
    """Bodies on the load's schedule. One that missed its time bears the time it was due, so that a
    sender that falls behind shows as latency."""
    filler, begin = load.filler, time.monotonic_ns()
    step_ns = 1e9 / load.rate if load.rate else 0.0
    for i in range(load.count):
        due_ns = begin + int(i * step_ns)
        now_ns = time.monotonic_ns()
        if step_ns and now_ns < due_ns:
            time.sleep((due_ns - now_ns) / 1e9)
            now_ns = time.monotonic_ns()
        stamped_ns = due_ns if step_ns and now_ns - due_ns > step_ns else now_ns
        yield STAMP.pack(MAGIC, load.run, load.sender, i, stamped_ns) + filler


class Sink:
    """Counts what one receiver gets, looks at its order, and keeps how long it took."""

    __slots__ = (
        "_copies",
        "_next",
        "_run",
        "count",
        "expected",
        "last_ns",
        "misordered",
        "others",
        "times",
    )

    def __init__(self, load: Load, expected: int, *, is_any_run: bool = False) -> None:
        self.expected = expected
        self.count = self.others = self.misordered = self.last_ns = 0
        self.times: list[int] = []
        self._run = b"" if is_any_run else load.run
        self._next: dict[int, int] = {}
        self._copies = load.fan - 1  # of each message, one after the other

    @property
    def is_full(self) -> bool:
        """Whether all has come."""
        return self.count >= self.expected

    def take(self, body: object, receiver: int = 0) -> None:
        """One message has come: 0.5 us of every receiver that is measured. receiver: which of the
        fan, where each one's messages come in their own order."""
        now_ns = time.monotonic_ns()
        if body.__class__ is not bytes or len(body) < STAMP.size:
            self.others += 1
            return
        magic, run, sender, number, sent_ns = _unpack(body)
        if magic != MAGIC or (self._run and run != self._run):
            self.others += 1
            return
        if sender == WARM_UP:
            return
        self.last_ns = now_ns
        self.count += 1
        if sent_ns:
            self.times.append(now_ns - sent_ns)
        follows, stream = self._next, sender + (receiver << 32)
        if number + (self._copies > 0) < follows.get(stream, 0):
            self.misordered += 1
        follows[stream] = number + 1

    def take_many(self, count: int) -> None:
        """A block of unstamped messages has come."""
        self.last_ns = time.monotonic_ns()
        self.count += count
