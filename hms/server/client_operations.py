"""Clients: who is connected and what each has open; closing one from this side.

A client that is closed is told why and may come back. What it had goes back without counting as an
attempt, as when its connection is lost.
"""

from collections.abc import Callable
from typing import Any

from hms.engine.admin.opened_views import describe_consumer, describe_producer
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.session.session_objects import Connection
from hms.errors.catalogue import ClientNotFound, ClosedByOperator, InvalidArgument
from hms.server.bans import Ban
from hms.server.connection_registry import ConnectionRegistry
from hms.server.entrance import Entrance
from hms.wire import operations as ops

__all__ = ["CLIENT_OPERATIONS", "CLOSING", "ClientOperations"]

POLICY_OPERATIONS = (
    *("user.list", "user.show", "user.enable", "user.disable", "user.logout"),
    *("role.list", "role.show", "permission.grant", "permission.revoke", "permission.matrix"),
    *("security.diff", "audit.head", "login.show"),
)
CLIENT_OPERATIONS = (
    *("client.list", "client.show", "client.close", "client.ban", "client.unban", "client.bans"),
    *("security.locked", "security.unlock"),
    *("security.show", "security.reload", "audit.verify"),
    *POLICY_OPERATIONS,
)
CLOSING = ("client.close", "client.ban")
LISTED_AT_ONCE = 1000
SHOWN_MAX = 1000
"""So many consumers and producers of a client are shown."""


class ClientOperations:
    """Answers what operators ask of clients; under the engine's lock."""

    def __init__(self, engine: Engine, registry: ConnectionRegistry, entrance: Entrance) -> None:
        self._engine = engine
        self._registry = registry
        self._entrance = entrance
        self._closed_for: dict[int, int] = {}
        """How many clients a ban has closed so far, by the connection that orders it."""

    def operate(
        self, connection: int, verb: str, asked: ops.Operation, now_ms: int, fx: Effects
    ) -> Any:
        """Plain data."""
        if verb in POLICY_OPERATIONS:
            return self._entrance.policy(connection, verb, asked)
        if isinstance(asked, ops.ListClients):
            return self._list(asked)
        if not isinstance(asked, ops.NameClient | ops.CloseClient):
            return self._kept_out(connection, verb, asked, now_ms)
        assert isinstance(asked, ops.NameClient | ops.CloseClient)
        found = self._found(asked.number)
        if verb == "client.show":
            return self._row(found) | _opened(found)
        self._check(connection, asked.number)
        assert isinstance(asked, ops.CloseClient)
        self._registry.tell(
            asked.number, ClosedByOperator(reason=asked.reason or "no reason given")
        )
        self._registry.dismiss(asked.number, now_ms, fx)
        return None

    def close_some(self, connection: int, asked: ops.Operation, now_ms: int, fx: Effects) -> bool:
        """Before a client.close: a slice of what the client has goes back; whether there
        is more."""
        if isinstance(asked, ops.BanClient):
            return self._ban_some(connection, asked, now_ms, fx)
        assert isinstance(asked, ops.CloseClient)
        self._found(asked.number)
        self._check(connection, asked.number)
        return self._registry.close_some(asked.number, now_ms, fx)

    def closed_for(self, connection: int) -> int:
        """How many clients its ban has closed so far; asked once, when it does not go on."""
        return self._closed_for.pop(connection, 0)

    def _kept_out(self, connection: int, verb: str, asked: ops.Operation, now_ms: int) -> Any:
        entrance = self._entrance
        asks: dict[str, Callable[[], Any]] = {
            "security.locked": lambda: entrance.locks(now_ms),
            "security.show": entrance.show_policy,
            "security.reload": entrance.reload,
        }
        if isinstance(asked, ops.VerifyAudits):
            return entrance.verify_audits(asked.wait_s)
        if verb in asks:
            return asks[verb]()
        if isinstance(asked, ops.UnlockAddress):
            self._entrance.unlock(asked.address, now_ms)
            return None
        bans = self._registry.bans
        if isinstance(asked, ops.BanClient):
            self._ban(connection, asked, now_ms)
            return {"closed": self._closed_for.pop(connection, 0)}
        if isinstance(asked, ops.UnbanClient):
            bans.end(asked.by, asked.value)
            return None
        return bans.describe(now_ms)

    def _ban(self, connection: int, asked: ops.BanClient, now_ms: int) -> Ban:
        """The ban holds; InvalidArgument when its author could not end it."""
        ban = self._registry.bans.made(asked, now_ms)
        if self._registry.is_meant(connection, ban):
            raise InvalidArgument(what="value", detail="it is the connection that asks, too")
        self._registry.bans.add(ban)
        return ban

    def _ban_some(self, connection: int, asked: ops.BanClient, now_ms: int, fx: Effects) -> bool:
        """The ban holds from the first slice on: who is closed cannot come back meanwhile."""
        registry = self._registry
        ban = self._ban(connection, asked, now_ms)
        number = next((n for n in registry.peers if registry.is_meant(n, ban)), None)
        if number is None:
            return False
        if not registry.close_some(number, now_ms, fx):
            registry.tell(number, ban.error())
            registry.dismiss(number, now_ms, fx)
            self._closed_for[connection] = self._closed_for.get(connection, 0) + 1
        return True

    @staticmethod
    def _check(connection: int, number: int) -> None:
        if number == connection:
            raise InvalidArgument(what="number", detail="it is the connection that asks")

    def _list(self, asked: ops.ListClients) -> list[dict[str, Any]]:
        known = self._engine.state.connections
        numbers = sorted(n for n in known if n > asked.after)[:LISTED_AT_ONCE]
        return [self._row(known[number]) for number in numbers]

    def _found(self, number: int) -> Connection:
        found = self._engine.state.connections.get(number)
        if found is None or number not in self._registry.peers:
            raise ClientNotFound(client=number)
        return found

    def _row(self, connection: Connection) -> dict[str, Any]:
        known = self._registry.known(connection.number)
        consumers = list(connection.consumers.values())
        works = [session.work for session in connection.sessions.values()]
        return {
            "id": connection.number,
            "user": connection.user,
            "client_id": connection.client_id,
            "client_name": known.client_name,
            "library": known.library,
            "is_server": known.is_server,
            **self._registry.about(connection.number),
            "since_ms": known.since_ms,
            "sessions": len(connection.sessions),
            "producers": len(connection.producers),
            "consumers": sum(not one.has_left for one in consumers),
            "in_flight": sum(len(one.out) for one in consumers)
            + sum(len(work.acknowledged) for work in works),
            "open_transactions": sum(bool(work.sends or work.acknowledged) for work in works),
        }


def _opened(connection: Connection) -> dict[str, Any]:
    consumers = list(connection.consumers.values())[:SHOWN_MAX]
    producers = list(connection.producers.values())[:SHOWN_MAX]
    return {
        "consumers_open": [describe_consumer(one) for one in consumers],
        "producers_open": [describe_producer(one) for one in producers],
    }
