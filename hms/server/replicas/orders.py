"""Orders: what an operator says at a machine that follows, sent on to the one that leads.

It comes over the link of the copies, so it needs no address for clients, and who says it there may
use the machine's own key. Only a switchover is sent on: it takes as long as the node drains, so
its answer comes from another thread.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hms.errors.catalogue import SwitchoverRefused
from hms.errors.tree import HmsError
from hms.server.replicas.frames import Order, OrderDone
from hms.wire.operations import SwitchOver
from hms.wire.structures import encode_error

__all__ = ["Answer", "Ordered", "Orders", "refused"]

log = logging.getLogger("hms.replicas")

ORDERS_MAX: Final = 4
"""Of which all but one are refused by the node; further ones here."""

Answer = Callable[[str, HmsError | None], None]
"""Told the end: who is to lead, or why it is not done."""
Ordered = Callable[[SwitchOver, tuple[str, str], Answer], None]
"""What does it, and for whom: the operator, and the machine where that was said; may wait."""


def refused(node: str, to: str, why: str, epoch: int) -> tuple[OrderDone, bytes]:
    """The answer of a copy that cannot do it yet, and its error."""
    detail = f"{why}: say it again in a moment"
    fault = SwitchoverRefused(node=node, to=to or "another replica", detail=detail)
    return OrderDone("", epoch), encode_error(fault)


class Orders:
    """Of one primary. take() and answers() are the link's; wake: ends its wait."""

    def __init__(self, node: str, me: str, epoch: int, wake: Callable[[], None]) -> None:
        self._node, self._me, self._epoch, self._wake = node, me, epoch, wake
        self._ordered: Ordered | None = None
        self._count = 0
        self._lock = threading.Lock()
        self._answers: deque[tuple[bytes, OrderDone, bytes]] = deque()

    def obey(self, ordered: Ordered) -> None:
        """The node serves: what is said from now on is done by that."""
        self._ordered = ordered

    def take(self, route: bytes, by: str, said: Order) -> None:
        """Begin it, and keep the answer for that route."""
        asked = SwitchOver(said.to, said.is_forced, said.drain_s, said.apply_s)

        def answer(to: str, fault: HmsError | None) -> None:
            error = b"" if fault is None else encode_error(fault)
            with self._lock:
                self._count -= 1
            self._answers.append((route, OrderDone(to, self._epoch), error))
            self._wake()

        with self._lock:
            self._count += 1
            is_full = self._count > ORDERS_MAX
        ordered = self._ordered
        if ordered is None or is_full:
            why = "others have said it already" if is_full else f"{self._me} opens its log"
            with self._lock:
                self._count -= 1
            self._answers.append((route, *refused(self._node, said.to, why, self._epoch)))
            self._wake()
            return
        log.warning("%s sends on what %s says there: %s", by, said.by, asked)
        given = asked, (said.by, by), answer
        threading.Thread(target=ordered, args=given, daemon=True).start()

    def answers(self) -> Iterator[tuple[bytes, OrderDone, bytes]]:
        """Those that are ready."""
        while self._answers:
            yield self._answers.popleft()
