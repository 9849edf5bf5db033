"""Standby door: a replica that follows listens where the node would, and says who leads.

It takes no login and tells every HELLO the same, so a client that was given only this address finds
the primary. Encrypted listeners stay closed: whom they let in is known to the node alone.
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
from hms.wire.frames import Envelope, Kind, frame
from hms.wire.structures import encode_error

__all__ = ["StandbyDoor"]

log = logging.getLogger("hms.replicas")

CLOSE_S: Final = 10.0


class StandbyDoor:
    """See the module. open() and close() in one thread; answer makes what a client is told."""

    def __init__(
        self, addresses: Sequence[str], limits: GatewayLimits, answer: Callable[[], NotPrimary]
    ) -> None:
        self._addresses, self._limits, self._answer = addresses, limits, answer
        self._gateway: Gateway | None = None
        self._thread: threading.Thread | None = None
        self._is_shut = False

    def open(self) -> None:
        """Listen, once; a port that something else has is reported, and the replica follows on."""
        if self._thread is not None or self._is_shut or not self._addresses:
            return
        gateway = Gateway(
            self._addresses,
            on_frames=self._on_frames,
            on_lost=lambda _peer, _reason: None,
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

    def close(self) -> None:
        """Leave the addresses to the node."""
        if self._thread is not None and self._gateway is not None:
            self._gateway.stop()
            self._thread.join(CLOSE_S)

    def _on_frames(self, peer: PeerKey, frames: list[tuple[Envelope, Any]]) -> bool:
        told = encode_error(self._answer())
        gateway = self._gateway
        assert gateway is not None
        hellos = [envelope for envelope, _ in frames if envelope.kind is Kind.HELLO]
        gateway.put([(peer, frame(Kind.ERROR, told, one.correlation)) for one in hellos])
        gateway.forget(peer)
        return True
