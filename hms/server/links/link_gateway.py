"""The gateway of a node that has links: the same main thread moves their frames too."""

from typing import Any

import zmq

from hms.server.gateway import Gateway
from hms.server.links.links import Links

__all__ = ["LinkedGateway"]


class LinkedGateway(Gateway):
    """A gateway whose turn ends with that of the links."""

    def __init__(self, *arguments: Any, links: Links, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._links = links
        self._own: zmq.Context[zmq.Socket[bytes]] | None = None

    def bind(self) -> list[str]:
        """Listen for clients, then for nodes."""
        endpoints = super().bind()
        assert self._context is not None
        try:
            if self._guard is not None:  # a context asks one guard only
                self._own = zmq.Context()
            self._links.open(self._own or self._context)
        except BaseException:
            super()._close()
            raise
        for socket in self._links.sockets():
            self._poller.register(socket, zmq.POLLIN)
        return endpoints

    def _take_turn(self) -> None:
        super()._take_turn()
        self._links.outbox.rouse()
        if self._is_reading:
            self._links.take_turn()

    def _sleep_ms(self) -> int:
        left_ms = super()._sleep_ms()
        if not self._links.outbox.rest():
            return 0
        due_ms = int((self._links.due_at() - self._clock()) * 1000) + 1
        return min(left_ms, max(0, due_ms))

    def _close(self) -> None:
        self._links.close()
        if self._own is not None:
            self._own.term()
        super()._close()
