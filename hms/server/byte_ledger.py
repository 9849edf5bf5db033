"""The ledger: how many bytes are held for each peer between its socket and the engine.

What came from a peer is counted as its frames enter the lane, before they are decoded, and until
they are applied; what goes to it from when a worker has put it into the outbox until the main
thread has taken it out. Messages that the engine keeps are counted by the engine. Both together
stay within max_memory_bytes and OWN_BYTES: the less the engine holds, the more there is for peers.

Clients are told how many bytes they may have on their way (`window`), which slows them down. A peer
that has more than its share on its lane, or that asks for more than it reads, is closed; and when
all of them have too much together, the one for which most is held.
"""

import threading
from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any

__all__ = ["FRAME_BYTES", "Ledger", "take_part", "window"]

OWN_BYTES = 96 << 20
"""What peers have together beside max_memory_bytes, whatever the engine holds."""
FRAME_BYTES = 400
"""What a frame costs besides its payload."""
SHARES = 8
SHARE_BYTES_MIN = 48 << 20
"""A peer may have an eighth of all there is on its lane, and so much in any case. While a batch is
applied, its frames are here beside the messages that were copied out of them."""
WINDOW_BYTES_MAX = 32 << 20
WINDOW_BYTES_MIN = 1 << 20


def window(peers: int, frame_bytes_max: int) -> int:
    """How many bytes a client may have on their way, when there are so many."""
    room = max(OWN_BYTES, 2 * frame_bytes_max)
    return min(WINDOW_BYTES_MAX, max(WINDOW_BYTES_MIN, room // max(1, peers)))


class Ledger:
    """From any thread. engine_bytes: what the engine holds of its memory_bytes_max."""

    def __init__(
        self,
        frame_bytes_max: int = 1 << 20,
        memory_bytes_max: int = 1 << 30,
        unread_bytes_max: int = 1 << 62,
        engine_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self.own_bytes = max(OWN_BYTES, 2 * frame_bytes_max)
        """What all peers may have together in any case; see bytes_max."""
        self._share_min = max(SHARE_BYTES_MIN, 2 * frame_bytes_max)
        self._memory_bytes_max = memory_bytes_max
        self._unread_bytes_max = unread_bytes_max
        self._engine_bytes = engine_bytes
        self._lock = threading.Lock()
        self._came: dict[Hashable, int] = {}
        self._put: dict[Hashable, int] = {}
        self.greedy: set[Hashable] = set()
        """Peers that are about to be closed: nothing more is made for them."""
        self.total = 0

    @property
    def bytes_max(self) -> int:
        """What all peers may have together now."""
        return self.own_bytes + max(0, self._memory_bytes_max - self._engine_bytes())

    @property
    def process_bytes(self) -> int:
        """How large the process may be before the connections are looked at all the time."""
        return self._memory_bytes_max + self.own_bytes

    @property
    def share(self) -> int:
        """What one peer may have on its lane."""
        return max(self._share_min, self.bytes_max // SHARES)

    def held_for(self, peer: Hashable) -> int:
        """Bytes on a peer's lane and in the outbox."""
        return self._came.get(peer, 0) + self._put.get(peer, 0)

    def without(self, known: Container[Hashable]) -> list[Any]:
        """Whose lanes hold something though they are not known any more."""
        with self._lock:
            return [peer for peer in self._came if peer not in known]

    def came(self, peer: Hashable, size: int) -> bool:
        """So many bytes go to a peer's lane; False when it has more than its share then."""
        with self._lock:
            held = self._came[peer] = self._came.get(peer, 0) + size
            self.total += size
        return held <= self._share_min or held <= self.share

    def handled(self, peer: Hashable, size: int) -> None:
        """So many of them are applied."""
        with self._lock:
            held = self._came
            had = held.pop(peer, 0)  # nothing, when it was dropped meanwhile
            left = max(0, had - size)
            self.total -= had - left
            if left:
                held[peer] = left

    def put(self, items: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Frames were made for peers; those that have too many unread by now, each once."""
        sizes: dict[Hashable, int] = {}
        for peer, parts in items:
            sizes[peer] = sizes.get(peer, 0) + len(parts[1]) + FRAME_BYTES
        new: list[Any] = []
        with self._lock:
            for peer, size in sizes.items():
                held = self._put[peer] = self._put.get(peer, 0) + size
                self.total += size
                if held > self._unread_bytes_max and peer not in self.greedy:
                    self.greedy.add(peer)
                    new.append(peer)
        return new

    def taken(self, sizes: dict[Any, int]) -> None:
        """The main thread has taken so many bytes for each peer out of the outbox."""
        with self._lock:
            held = self._put
            for peer, size in sizes.items():
                had = held.pop(peer, 0)
                left = max(0, had - size)
                self.total -= had - left
                if left:
                    held[peer] = left

    def gone(self, peer: Hashable) -> None:
        """A peer is known no more; what is on its lane is still applied."""
        with self._lock:
            self.greedy.discard(peer)
            self.total -= self._put.pop(peer, 0)

    def dropped(self, peer: Hashable) -> None:
        """Its lane was emptied."""
        with self._lock:
            self.total -= self._came.pop(peer, 0)


def take_part(items: list[Any], bytes_max: int) -> tuple[list[Any], int]:
    """Take the first of a lane's items out, up to so many bytes or one frame, and their size."""
    size = 0
    for count, item in enumerate(items):
        if type(item) is not tuple:
            continue
        more = len(item[1]) + FRAME_BYTES
        if size and size + more > bytes_max:
            part = items[:count]
            del items[:count]
            return part, size
        size += more
    part = items.copy()
    items.clear()
    return part, size


def size_of(items: list[Any]) -> int:
    """What take_part() counts for items of a lane."""
    return sum([len(item[1]) + FRAME_BYTES for item in items if type(item) is tuple])
