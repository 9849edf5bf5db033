"""Standby door: a replica that follows listens where the node would, and says who leads.

It takes no login and tells every HELLO the same, so a client that was given only this address finds
the primary. While that is being decided a HELLO waits for the answer, and at the replica that is to
lead until it does: its clients come once, and not again and again. Encrypted listeners stay closed:
whom they let in is known to the node alone.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from hms.errors.catalogue import NotPrimary
from hms.errors.tree import HmsError
from hms.server.gateway import Gateway
from hms.server.listening_sockets import GatewayLimits
from hms.server.peers import PeerKey
from hms.server.replicas.link import now_s
from hms.wire.frames import Envelope, Kind, frame
from hms.wire.structures import encode_error

__all__ = ["StandbyDoor"]

log = logging.getLogger("hms.replicas")

CLOSE_S: Final = 10.0
WAIT_S: Final = 0.8
"""So long a HELLO waits for who leads; who inquires gives up after 1 s."""


def _never() -> bool:
    return False


class StandbyDoor:
    """See the module. open(), look() and close() in one thread; answer makes what a client is told,
    is_undecided: whether it may be another answer in a moment."""

    def __init__(
        self,
        addresses: Sequence[str],
        limits: GatewayLimits,
        answer: Callable[[], NotPrimary],
        is_undecided: Callable[[], bool] = _never,
    ) -> None:
        self._addresses, self._limits, self._answer = addresses, limits, answer
        self._is_undecided = is_undecided
        self._lock = threading.Lock()
        self._waiting: dict[PeerKey, tuple[list[int], float]] = {}
        """Their HELLOs, and until when they wait."""
        self._gateway: Gateway | None = None
        self._thread: threading.Thread | None = None
        self._is_shut = self._is_over = False

    def open(self) -> None:
        """Listen, once; a port that something else has is reported, and the replica follows on."""
        if self._thread is not None or self._is_shut or self._is_over or not self._addresses:
            return
        gateway = Gateway(
            self._addresses,
            on_frames=self._on_frames,
            on_lost=self._on_lost,
            limits=self._limits,
        )
        try:
            gateway.bind()
        except HmsError as fault:
            self._is_shut = True
            log.warning("clients are not told who leads: %s", fault)
            return
        self._gateway = gateway
        self._thread = threading.Thread(target=gateway.run, name="hms-standby", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Tell those who wait, when it is known who leads, or they have waited long enough."""
        with self._lock:
            until_s = now_s() if self._is_undecided() else float("inf")
            due = [peer for peer, (_, at_s) in self._waiting.items() if at_s <= until_s]
            told = [(peer, self._waiting.pop(peer)[0]) for peer in due]
        for peer, hellos in told:
            self._tell(peer, hellos)

    def close(self) -> None:
        """Leave the addresses to the node; those who still wait are told so."""
        if self._thread is None or self._gateway is None:
            return
        with self._lock:
            self._is_over = True
            told, self._waiting = self._waiting, {}
        for peer, (hellos, _) in told.items():
            self._tell(peer, hellos)
        self._gateway.stop()
        self._thread.join(CLOSE_S)
        self._thread = None

    def _on_frames(self, peer: PeerKey, frames: list[tuple[Envelope, Any]]) -> bool:
        hellos = [one.correlation for one, _ in frames if one.kind is Kind.HELLO]
        with self._lock:
            must_wait = self._is_undecided() and not self._is_over
            if must_wait:
                before, until_s = self._waiting.get(peer, ([], now_s() + WAIT_S))
                self._waiting[peer] = [*before, *hellos], until_s
        if not must_wait:
            self._tell(peer, hellos)
        return True

    def _on_lost(self, peer: PeerKey, _reason: str) -> None:
        with self._lock:
            self._waiting.pop(peer, None)

    def _tell(self, peer: PeerKey, hellos: list[int]) -> None:
        told = encode_error(self._answer())
        gateway = self._gateway
        assert gateway is not None
        gateway.put([(peer, frame(Kind.ERROR, told, one)) for one in hellos])
        gateway.forget(peer)
