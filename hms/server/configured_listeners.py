"""Declared listeners: queues that the node itself has served, with no client around.

They are consumers of asynchronous sessions like any other, of a connection that nobody opened: its
number is 0, which no client has.
"""

from typing import NamedTuple

from hms.engine.effects import Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.server.service_monitor import Listener, ServiceMonitor

__all__ = ["Declared", "open_declared"]

CONNECTION = 0
NAME = "hms.conf"


class Declared(NamedTuple):
    """[hms.queue.NAME] listener; sessions: how many messages may be with servers at once."""

    queue: str
    service: str
    sessions: int = 1


def open_declared(
    engine: Engine, monitor: ServiceMonitor, wanted: list[Declared], now_ms: int, fx: Effects
) -> None:
    """Open them; to be called once, when the node has recovered."""
    if not wanted:
        return
    engine.open_connection(CONNECTION, 0, "", NAME)
    places = [one for one in wanted for _ in range(one.sessions)]
    for handle, one in enumerate(places, 1):
        engine.open_session(CONNECTION, handle, 0, "asynchronous")
        name = f"{NAME}-{handle}"
        request = ConsumerRequest(handle, handle, "queue", one.queue, 0, name, listener=one.service)
        engine.open_consumer(CONNECTION, request, 0, now_ms, fx)
        place = f"queue:{one.queue}"
        monitor.listen_at(Listener(CONNECTION, handle, handle, one.service, place))
