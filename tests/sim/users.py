"""Users of a simulated node: all of a user's consumers together have so many bytes in flight."""

from collections.abc import Callable, Hashable, Iterator

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.session.session_objects import Consumer
from hms.engine.state import State
from hms.server.connection_registry import ConnectionRegistry
from hms.server.entrance import Change, Entrance, OpenEntrance
from hms.wire.structures import Hello

__all__ = ["over_limit", "users"]

USERS = 2


class _Users(OpenEntrance):
    """Every third client has no limit; the others are two users."""

    def __init__(self, engine: Engine, registry: ConnectionRegistry, bytes_max: int) -> None:
        super().__init__(registry)
        self._engine, self._registry = engine, registry
        self._of_user = [BytesInFlight() for _ in range(USERS)]
        for one in self._of_user:
            one.bytes_max = bytes_max

    def hello(
        self, peer: Hashable, correlation: int, hello: Hello, now_ms: int, fx: Effects
    ) -> None:
        super().hello(peer, correlation, hello, now_ms, fx)
        user = hello.uid % (USERS + 1)
        if user < USERS:
            self._engine.limit_in_flight(self._registry.numbers[peer], self._of_user[user])


def users(engine: Engine, bytes_max: int) -> Callable[[ConnectionRegistry, Change], Entrance]:
    """What the broker makes its entrance of."""
    return lambda registry, _change: _Users(engine, registry, bytes_max)


def over_limit(state: State) -> Iterator[str]:
    """What is kept of each user is what its consumers have, and only the last message that was
    delivered to one of them is beyond the limit."""
    held: dict[BytesInFlight, list[Consumer]] = {}
    for connection in state.connections.values():
        if connection.in_flight is not None:
            consumers = [c for s in connection.sessions.values() for c in s.consumers]
            held.setdefault(connection.in_flight, []).extend(consumers)
    for limit, consumers in held.items():
        size_bytes = sum(m.length for c in consumers for m in c.out.values())
        if limit.size_bytes != size_bytes:
            yield f"a user has {limit.size_bytes} bytes in flight, its consumers {size_bytes}"
        last_bytes = max(map(_largest, consumers), default=0)
        if 0 < limit.bytes_max <= size_bytes - last_bytes:
            yield f"a user has {size_bytes} bytes in flight, it may have {limit.bytes_max}"


def _largest(consumer: Consumer) -> int:
    """What was delivered at once: a message, or a list of them that belongs together."""
    groups = consumer.place.line.groups
    if groups is not None and groups.gathering is not None:
        return consumer.out_bytes
    return max((m.length for m in consumer.out.values()), default=0)
