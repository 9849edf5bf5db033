"""A new version of the policy, at a running node: what is open and not allowed any more ends.

Connections whose user is gone, disabled or logged out are closed; consumers and services that are
not granted any more are closed by themselves, what was out to them returns without a counted
attempt; producers stay, and each of their sends is refused until it is granted again. Their sends
that had no effect yet never have one (hms.engine.session.revoked_sends). Commands that
come behind the change are judged by it: the order of both is the order of the lock.
"""

from collections.abc import Mapping, Sequence

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.queue.destinations import Subscription
from hms.engine.session.session_objects import Connection, Consumer, Producer
from hms.errors.catalogue import LoginExpired, NotAuthorized
from hms.errors.tree import HmsError
from hms.server.connection_registry import ConnectionRegistry
from hms.server.doors.door import Words
from hms.server.effect_release import ToConnection
from hms.server.logins.authorization import (
    TEMPORARY,
    Authorization,
    Need,
    consumer_needs,
    needs_of,
)
from hms.server.logins.identities import NODE_USER, Identities, Login
from hms.server.service_monitor import ServiceMonitor
from hms.wire import structures as wire
from hms.wire.commands import Action
from hms.wire.frames import Kind

__all__ = ["LiveChanges"]


class LiveChanges:
    """Applied under the engine's lock."""

    def __init__(
        self,
        engine: Engine,
        registry: ConnectionRegistry,
        authorization: Authorization,
        monitor: ServiceMonitor,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._authorization = authorization
        self._monitor = monitor
        self._at_work: Mapping[int, Mapping[Producer, None]] = {}
        self._revoked: dict[Producer, HmsError] = {}

    def apply(self, identities: Identities, now_ms: int, fx: Effects) -> int:
        """Judge all that is open anew; how much of it was closed."""
        closed, self._at_work = 0, self._engine.producers_at_work()
        self._authorization.forget_gone()
        self._engine.state.space.changed()
        for number, login in list(self._authorization.logins.items()):
            if login.user == NODE_USER:
                continue
            renewed = _renewed(identities, login, now_ms)
            if renewed is None:
                self._close_connection(number, now_ms, fx)
                closed += 1
                continue
            self._authorization.logins[number] = renewed
            closed += self._look_at(number, renewed, now_ms, fx)
        self._end_sends(now_ms, fx)
        self._authorization.counts.renew(identities)
        return closed

    def renew(self, number: int, login: Login | None, now_ms: int, fx: Effects) -> None:
        """A connection has proved anew who it is, or cannot any more: None closes it."""
        if login is None:
            self._close_connection(number, now_ms, fx)
            return
        self._authorization.logins[number] = login
        self._engine.state.space.changed()
        self._at_work = self._engine.producers_at_work()
        self._look_at(number, login, now_ms, fx)
        self._end_sends(now_ms, fx)

    def is_any_over(self, now_ms: int) -> bool:
        """Whether the time of some login is over; from any thread."""
        return any(now_ms >= login.expires_ms for _, login in self._authorization.ending())

    def expire(self, now_ms: int, fx: Effects) -> None:
        """Close the connections whose user's, or token's, time is over."""
        for number, login in list(self._authorization.logins.items()):
            if login.expires_ms and now_ms >= login.expires_ms:
                self._close_connection(number, now_ms, fx)

    def _close_connection(self, number: int, now_ms: int, fx: Effects) -> None:
        error = LoginExpired(user=self._authorization.logins[number].user)
        peer = self._registry.peers.get(number)
        if peer is not None:
            self._registry.releases.say([peer], Words(Kind.GOODBYE, error))
        self._registry.dismiss(number, now_ms, fx)

    def _look_at(self, number: int, login: Login, now_ms: int, fx: Effects) -> int:
        connection, closed = self._engine.state.connection(number), 0
        self._look_at_sends(connection, login)
        for consumer in list(connection.consumers.values()):
            fault = self._fault_of(login, consumer)
            if fault is not None and not consumer.has_left:
                self._close_consumer(connection, consumer, fault, now_ms, fx)
                closed += 1
        for service in self._monitor.services_of(number):
            if not login.rights.allows(Action.ADVERTISE, "service", service):
                self._monitor.unadvertise(number, service)
                closed += 1
        return closed

    def _look_at_sends(self, connection: Connection, login: Login) -> None:
        """Its producers, open or with sends under way, and the destinations that it watches."""
        number = connection.number
        denied = self._authorization.denied
        for producer in connection.producers.values():
            fault = self._fault(login, needs_of(producer))
            if fault is None:
                denied.pop((number, producer.handle), None)
            else:
                denied[number, producer.handle] = producer, fault
        for producer in self._at_work.get(number, ()):
            fault = self._fault(login, needs_of(producer))
            if fault is not None:
                self._revoked[producer] = fault
        for kind, name in list(connection.watched):
            if not login.rights.allows(Action.VIEW, kind, name):
                self._engine.watch_no_more(number, kind, name)

    def _end_sends(self, now_ms: int, fx: Effects) -> None:
        revoked, self._revoked, self._at_work = self._revoked, {}, {}
        if revoked:
            self._engine.revoke_sends(revoked, now_ms, fx)

    def _fault_of(self, login: Login, consumer: Consumer) -> HmsError | None:
        """Why a consumer may not go on."""
        place = consumer.place
        if isinstance(place, Subscription) and not _is_granted(login, place):
            resource = f"topic:{place.pattern.text}"
            return NotAuthorized(user=login.user, action=str(Action.SUBSCRIBE), resource=resource)
        return self._fault(login, list(consumer_needs(consumer)))

    def _close_consumer(
        self,
        connection: Connection,
        consumer: Consumer,
        fault: HmsError,
        now_ms: int,
        fx: Effects,
    ) -> None:
        number, handle = connection.number, consumer.handle
        self._engine.revoke_consumer(number, handle, now_ms, fx)
        fields = wire.wire_fields(fault)
        event = wire.Event("consumer_closed", handle, fault.number or 0, fields)
        fx.out.append(ToConnection(number, Words(Kind.EVENT, event)))

    def _fault(self, login: Login, needs: Sequence[Need]) -> HmsError | None:
        try:
            self._authorization.require(login, needs)
        except NotAuthorized as fault:
            return fault.with_traceback(None)
        return None


def _is_granted(login: Login, place: Subscription) -> bool:
    is_temporary = place.topic.name.startswith(TEMPORARY)
    return is_temporary or login.reaches(Action.SUBSCRIBE, place.pattern)


def _renewed(identities: Identities, login: Login, now_ms: int) -> Login | None:
    """The same login under what holds now; None when it has ended."""
    if login.identity is not None:
        found = login.authenticator, login.mechanism, login.caller, now_ms
        return identities.outside_login(login.identity, *found)[0]
    user = identities.user(login.user)
    if user is None or user.generation != login.generation:
        return None
    return identities.login(
        login.user, login.mechanism, login.caller, now_ms, login.narrowed, login.expires_ms
    )[0]
