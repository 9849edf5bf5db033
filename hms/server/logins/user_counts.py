"""What the users of a node have open, held against their limits; under the engine's lock."""

from collections.abc import Mapping
from typing import Any

from hms.engine.engine import Engine
from hms.engine.flow.user_rate import UserRate
from hms.errors.catalogue import UserLimit
from hms.server.logins.identities import NODE_USER, Identities, Login
from hms.wire.commands import Command

__all__ = ["OPENS", "UserCounts"]

OPENS = {
    "OpenSession": "sessions",
    "OpenProducer": "producers",
    "OpenConsumer": "consumers",
    "CreateTemporary": "temporary_destinations",
}
"""Commands that open something, and what it counts as."""


class UserCounts:
    """logins: of connections, by their number."""

    def __init__(self, engine: Engine, logins: Mapping[int, Login]) -> None:
        self._engine, self._logins = engine, logins
        self._limits: dict[str, dict[str, int]] = {}
        self._rates: dict[str, UserRate] = {}

    def renew(self, identities: Identities) -> None:
        """Other limits hold; what is open beyond one stays open."""
        self._limits = {}
        for login in self._logins.values():
            self._learn(identities, login.user)
        for user, rate in self._rates.items():
            self._set(rate, self._limits.get(user, {}))
        for number, login in self._logins.items():
            self._slow_down(number, login.user)

    def check_connection(self, identities: Identities, user: str, uid: int) -> None:
        """UserLimit when one more is one too many; one that is taken over is not one more."""
        if user == NODE_USER:
            return
        self._learn(identities, user)
        limit = self._limits[user].get("connections")
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

    def check(self, command: Command, head: Any, login: Login) -> None:
        """UserLimit when a command would open more than the user may have."""
        limits = self._limits.get(login.user)
        if not limits:
            return
        what = OPENS[command.name]
        if what == "consumers" and head.durable and "subscriptions" in limits:
            self._check_subscriptions(login.user, head.durable, limits["subscriptions"])
        limit = limits.get(what)
        if limit is not None and self._count(login.user, what) >= limit:
            raise UserLimit(user=login.user, what=what, limit=limit)

    def _check_subscriptions(self, user: str, name: str, limit: int) -> None:
        own = [
            place.name
            for place in self._engine.state.space.subscriptions.values()
            if place.is_durable and place.definition.owner == user
        ]
        if name not in own and len(own) >= limit:
            raise UserLimit(user=user, what="subscriptions", limit=limit)

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
        return sum(len(getattr(one, what)) for one in connections)

    def _learn(self, identities: Identities, user: str) -> None:
        if user not in self._limits:
            self._limits[user] = identities.limits(user)

    def _slow_down(self, number: int, user: str) -> None:
        limits = self._limits.get(user, {})
        if user not in self._rates:
            if not {"messages_per_s", "bytes_per_s"}.intersection(limits):
                return
            self._rates[user] = UserRate(user)
            self._set(self._rates[user], limits)
        self._engine.slow_down(number, self._rates[user])

    @staticmethod
    def _set(rate: UserRate, limits: Mapping[str, int]) -> None:
        rate.limit(limits.get("messages_per_s", 0), limits.get("bytes_per_s", 0))
