"""What the users of a node have open, held against their limits; under the engine's lock."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hms.engine.engine import Engine
from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.flow.limits import held_bytes
from hms.engine.flow.user_rate import UserRate
from hms.engine.session.session_objects import Connection
from hms.errors.catalogue import UserLimit
from hms.server.logins.identities import NODE_USER, Identities, Login
from hms.wire.commands import Command

__all__ = ["OPENS", "UserCounts"]

OPENS = {
    "OpenSession": "sessions",
    "OpenProducer": "producers",
    "OpenConsumer": "consumers",
    "CreateTemporary": "temporary_destinations",
    "XaStart": "transactions",
    "CALL": "calls",
}
"""Commands that open something, and what it counts as. A transacted session always has a
transaction; a branch is one until it is prepared, and to work on in one opens none."""


class UserCounts:
    """logins: of connections, by their number; calls_of: how many calls of a connection have not
    ended."""

    def __init__(
        self, engine: Engine, logins: Mapping[int, Login], calls_of: Callable[[int], int]
    ) -> None:
        self._engine, self._logins, self._calls_of = engine, logins, calls_of
        self.limits: dict[str, dict[str, int]] = {}
        """Of users that are connected; without any for most."""
        self._rates: dict[str, UserRate] = {}
        self._in_flight: dict[str, BytesInFlight] = {}

    def renew(self, identities: Identities) -> None:
        """Other limits hold; what is open beyond one stays open."""
        self.limits = {}
        for login in self._logins.values():
            self._learn(identities, login.user)
        for user, rate in self._rates.items():
            self._set(rate, self.limits.get(user, {}))
        for user, in_flight in self._in_flight.items():
            in_flight.bytes_max = self.limits.get(user, {}).get("bytes_in_flight", 0)
        for number, login in self._logins.items():
            self._slow_down(number, login.user)
            self._limit_in_flight(number, login.user)

    def check_connection(self, identities: Identities, user: str, uid: int) -> None:
        """UserLimit when one more is one too many; one that is taken over is not one more."""
        if user == NODE_USER:
            return
        self._learn(identities, user)
        limit = self.limits[user].get("connections")
        if limit is None:
            return
        known = self._engine.state.connections
        numbers = [n for n, one in self._logins.items() if one.user == user]
        others = sum(known[number].uid != uid for number in numbers)
        if others >= limit:
            raise UserLimit(user=user, what="connections", limit=limit)

    def came(self, number: int, user: str) -> None:
        """A connection has logged in."""
        if user != NODE_USER:
            self._slow_down(number, user)
            self._limit_in_flight(number, user)

    def check(self, command: Command, head: Any, login: Login) -> None:
        """UserLimit when a command would open more than the user may have."""
        limits = self.limits.get(login.user)
        if not limits:
            return
        what = OPENS[command.name]
        if what == "consumers" and head.durable:
            self._check_subscriptions(login.user, head.durable, limits)
        if what == "sessions" and head.is_transacted:
            self._check_count(login.user, "transactions", limits)
        if what != "transactions" or not head.flags:
            self._check_count(login.user, what, limits)

    def _check_count(self, user: str, what: str, limits: Mapping[str, int]) -> None:
        limit = limits.get(what)
        if limit is not None and self._count(user, what) >= limit:
            raise UserLimit(user=user, what=what, limit=limit)

    def _check_subscriptions(self, user: str, name: str, limits: Mapping[str, int]) -> None:
        """One that is there is always resumed: only so it is emptied. What comes for it is never
        cut (decision 0012), so bytes are held against their limit when there is to be one more."""
        if not {"subscriptions", "subscription_bytes"}.intersection(limits):
            return
        own = [
            place
            for place in self._engine.state.space.subscriptions.values()
            if place.is_durable and place.definition.owner == user
        ]
        if any(place.name == name for place in own):
            return
        held = {
            "subscriptions": len(own),
            "subscription_bytes": sum(held_bytes(place.line) for place in own),
        }
        for what, count in held.items():
            if what in limits and count >= limits[what]:
                raise UserLimit(user=user, what=what, limit=limits[what])

    def _count(self, user: str, what: str) -> int:
        state = self._engine.state
        connections = [
            state.connections[number]
            for number, login in self._logins.items()
            if login.user == user
        ]
        if what == "temporary_destinations":
            uids = {one.uid for one in connections}
            return sum(one.control.owner in uids for one in state.destinations())
        if what == "calls":
            return sum(self._calls_of(one.number) for one in connections)
        if what == "transactions":
            return self._transactions(connections)
        return sum(len(getattr(one, what)) for one in connections)

    def _transactions(self, connections: Sequence[Connection]) -> int:
        """Local ones, and branches that are not prepared."""
        sessions = (s for one in connections for s in one.sessions.values() if not s.is_xa)
        numbers = {one.number for one in connections}
        branches = self._engine.state.branches.live.values()
        local = sum(session.is_transacted for session in sessions)
        return local + sum(branch.owner in numbers for branch in branches)

    def _learn(self, identities: Identities, user: str) -> None:
        if user not in self.limits:
            self.limits[user] = identities.limits(user)

    def _slow_down(self, number: int, user: str) -> None:
        limits = self.limits.get(user, {})
        if user not in self._rates:
            if not {"messages_per_s", "bytes_per_s"}.intersection(limits):
                return
            self._rates[user] = UserRate(user)
            self._set(self._rates[user], limits)
        self._engine.slow_down(number, self._rates[user])

    def _limit_in_flight(self, number: int, user: str) -> None:
        bytes_max = self.limits.get(user, {}).get("bytes_in_flight", 0)
        if user not in self._in_flight:
            if not bytes_max:
                return
            self._in_flight[user] = BytesInFlight()
            self._in_flight[user].bytes_max = bytes_max
        self._engine.limit_in_flight(number, self._in_flight[user])

    @staticmethod
    def _set(rate: UserRate, limits: Mapping[str, int]) -> None:
        rate.limit(limits.get("messages_per_s", 0), limits.get("bytes_per_s", 0))
