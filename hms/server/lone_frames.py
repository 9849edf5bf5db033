"""Lone frames: a frame that comes alone is applied by the thread that read it.

A hand-over between threads takes 25 to 60 us, and a frame that goes to a worker needs two. Where
the gateway has read a single frame and no lane has anything to do, its own thread takes the lane's
turn instead of a worker. It may wait for nothing that takes long, since no other peer is heard
meanwhile:

    only short frames that ask for little: one message, one acknowledgement, a call, a result
    only while the engine's lock is free, nobody leads the log, the log has room and the node is not
    draining
    what may have to be synced only where a sync takes less than a hand-over is worth: not on a slow
    disk, in a database, or where copies have to confirm

What comes meanwhile is read together, and goes to the workers, who sync it together.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

from hms.server.broker import Broker
from hms.wire.frames import Action, Envelope, Kind
from hms.workers.lanes import LanePool

__all__ = ["LoneFrames"]

BYTES_MAX: Final = 16 << 10
SYNC_S_MAX: Final = 0.001
"""A sync that takes longer on average is a worker's."""
_OF_SERVICES: Final = frozenset((Kind.CALL, Kind.RESULT))
_ACKNOWLEDGE: Final = int(Action.ACKNOWLEDGE)


class LoneFrames:
    """See the module. turn: as of the lanes' workers; may_sync: whether the log is on a disk of
    this machine, and nowhere else."""

    def __init__(
        self,
        broker: Broker,
        lanes: LanePool,
        turn: Callable[[Hashable, list[Any]], None],
        *,
        may_sync: bool,
    ) -> None:
        self._broker, self._lanes, self._turn = broker, lanes, turn
        self._sync_s_max = SYNC_S_MAX if may_sync else 0.0

    def apply(self, peer: Hashable, frame: tuple[Envelope, bytes | memoryview]) -> bool:
        """Whether it was applied here; False: nothing was done, and it goes to its lane."""
        envelope, payload = frame
        broker, kind = self._broker, envelope.kind
        if self._lanes.busy or len(payload) > BYTES_MAX or peer in broker.slowed:
            return False  # slowed: it was refused too often, and waits on its lane
        if broker.is_held() or broker.around.storage.is_led:
            return False
        if broker.draining.is_on:  # what begins something has to wait on its lane
            return False
        if kind not in _OF_SERVICES:
            if envelope.item_count != 1 or broker.commit_s >= self._sync_s_max:
                return False
            is_acknowledge = kind is Kind.SETTLE and payload and payload[0] == _ACKNOWLEDGE
            if not is_acknowledge and (kind is not Kind.SEND or broker.must_wait(peer, [frame])):
                return False
        return self._lanes.run_here(peer, [frame], self._turn)
