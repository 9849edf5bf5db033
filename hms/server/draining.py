"""Draining: before a planned move to another machine nothing new begins, and what has begun ends.

    is_on     no message is delivered; clients give back what their applications have not seen;
              a transaction or a call of a client that has nothing else under way waits
    is_over   nothing is under way: what is read from here on is not applied. Clients are told, and
              ask the next primary instead. A server that leaves is answered.

Plain sends go on all the time, as nothing is held for them. All but holds() is done under the
engine's lock.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.session.session_objects import Connection
from hms.engine.xa.branch import BranchState
from hms.engine.xa.decisions import IDENTITY
from hms.server.batch_portions import Command
from hms.server.connection_registry import ConnectionRegistry
from hms.server.doors.door import Words
from hms.server.doors.native_door import decode_frame
from hms.server.effect_release import ToConnection
from hms.server.service_monitor import ServiceMonitor
from hms.wire import structures as wire
from hms.wire.branch_requests import BeginGlobal, XaStart
from hms.wire.frames import Kind, SendHead

__all__ = ["DRAINED", "DRAINING", "Draining", "Left"]

DRAINING, DRAINED = wire.Event("draining"), wire.Event("drained")
SHOWN_MAX = 5
_RAW = 2
"""An item that was not decoded yet: envelope and payload."""
_UNVOTED = (BranchState.ACTIVE, BranchState.IDLE)


class Left(NamedTuple):
    """What is still under way, and whose it is."""

    transactions: int = 0
    messages: int = 0
    calls: int = 0
    clients: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether a move would take something from a client."""
        return bool(self.transactions or self.messages or self.calls)

    def __str__(self) -> str:
        counts = (
            (self.transactions, "transactions with work", "transaction with work"),
            (self.messages, "messages that consumers have", "message that a consumer has"),
            (self.calls, "calls", "call"),
        )
        told = [f"{n:,} {one if n == 1 else many}" for n, many, one in counts if n]
        names = ", ".join(self.clients[:SHOWN_MAX])
        more = len(self.clients) - SHOWN_MAX
        return f"{', '.join(told)} ({names}{f' and {more} more' if more > 0 else ''})"


class Draining:
    """See the module."""

    def __init__(
        self, engine: Engine, monitor: ServiceMonitor, registry: ConnectionRegistry
    ) -> None:
        self._engine, self._monitor, self._registry = engine, monitor, registry
        self.is_on = self.is_over = False

    def begin(self, fx: Effects) -> None:
        """From here on nothing new begins."""
        self.is_on = True
        self._engine.hold_deliveries()
        fx.out += [ToConnection(one, Words(Kind.EVENT, DRAINING)) for one in self._registry.peers]

    def end(self, fx: Effects) -> None:
        """All goes on as before."""
        self.is_on = False
        self._engine.resume_deliveries(fx)

    def left(self) -> Left:
        """What is still under way."""
        transactions = messages = calls = 0
        clients: dict[str, None] = {}
        of_globals = Counter(self._globals())
        for one in self._engine.state.connections.values():
            work = sum(_has_work(session) for session in one.sessions.values())
            work = max(work, of_globals[one.number])  # a session works in a branch of it, mostly
            out = sum(len(consumer.out) for consumer in one.consumers.values())
            asked = self._monitor.calls_of(one.number)
            transactions, messages, calls = transactions + work, messages + out, calls + asked
            if work or out or asked:
                clients[_named(one)] = None
        known = [b for b in self._engine.state.branches.by_xid.values() if not b.is_attached]
        for branch in known:
            if branch.state in _UNVOTED:
                transactions += 1
                clients[f"branch {branch.xid.hex()[:16]}"] = None
        return Left(transactions, messages, calls, tuple(clients))

    def _globals(self) -> list[int]:
        """Connections with a global transaction that is not decided, or not carried out. What
        stands among the decisions and is none is held for ever."""
        decisions = self._engine.state.decisions
        carried_out = [n for gtrid, n in list(decisions.held.items()) if gtrid != IDENTITY]
        return [*(one.connection for one in list(decisions.active.values())), *carried_out]

    def finish(self) -> None:
        """Nothing is under way: apply nothing more of clients."""
        self.is_over = True
        self._registry.is_stopping = True

    def drops(self, peer: Any) -> bool:
        """Whether what such a peer says is not applied any more."""
        return self.is_over and peer in self._registry.numbers

    def taken(self, peer: Any, commands: list[Command]) -> list[Command]:
        """Those that are applied. That a service is offered no more always is: it changes nothing
        that outlives the process, and its server waits for the answer."""
        if not self.drops(peer):
            return commands
        return [one for one in commands if isinstance(one[1], wire.Unadvertise)]

    def holds(self, peer: Any, items: Iterable[Sequence[Any]]) -> bool:
        """Whether a client's batch has to wait: it would begin something. One that has something
        under way goes on, as what it says may be what ends that. Asked by its own lane, without
        the lock."""
        number = self._registry.numbers.get(peer)
        owner = None if number is None else self._engine.state.connections.get(number)
        if self.is_over or number is None or owner is None:
            return False
        if self._registry.known(number).is_server or _is_busy(owner):
            return False
        if number in self._globals():
            return False
        return any(isinstance(item, tuple) and _begins(owner, item) for item in items)


def _has_work(session: Any) -> bool:
    return bool(session.xid) or (session.is_transacted and session.work.is_any)


def _is_busy(owner: Connection) -> bool:
    return any(consumer.out for consumer in list(owner.consumers.values())) or any(
        _has_work(session) for session in list(owner.sessions.values())
    )


def _begins(owner: Connection, item: Sequence[Any]) -> bool:
    envelope, payload = item[0], item[1]
    if envelope.kind is Kind.CALL:
        return True
    if envelope.kind not in (Kind.SEND, Kind.REQUEST):
        return False
    head = item[2] if len(item) > _RAW else decode_frame(envelope, payload)[1]
    if isinstance(head, SendHead):
        producer = owner.producers.get(head.producer)
        return producer is not None and producer.session.is_transacted
    return isinstance(
        head, XaStart | BeginGlobal
    )  # what cannot be read is refused when it is applied


def _named(one: Connection) -> str:
    return f"client {one.number} ({one.user})" if one.user else f"client {one.number}"
