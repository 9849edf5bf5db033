"""The entrance: what becomes of a HELLO, and of those who have not been let in. All under the
engine's lock."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from hms.engine.effects import Effects
from hms.errors.catalogue import AddressNotLocked, NotSupported, ProtocolError
from hms.errors.tree import HmsError
from hms.records import Record
from hms.records.audit import NO_DETAILS, AuditDetails
from hms.server.connection_registry import ConnectionRegistry
from hms.server.node_operations import Ended, Later
from hms.server.permissions import Permit
from hms.wire import structures as wire
from hms.wire.commands import Order
from hms.wire.operations import Operation

__all__ = ["Change", "Entrance", "NoNews", "OpenEntrance"]

Change = Callable[[Callable[[Effects, int], None]], None]
"""Applies a change under the engine's lock; from any thread."""
NoNews = Callable[[Sequence[Record]], None]
"""Of all records of a change, before they are in the log."""


class Entrance(Protocol):
    """What the broker asks of it."""

    @property
    def permit(self) -> Permit | None:
        """Refuses commands; None: all are permitted."""

    def hello_some(self, peer: Hashable, hello: wire.Hello, now_ms: int, fx: Effects) -> bool:
        """Before hello(): a slice of what it takes, and whether there is more of it."""

    def hello(
        self, peer: Hashable, correlation: int, hello: wire.Hello, now_ms: int, fx: Effects
    ) -> None:
        """A peer's first frame: WELCOME, or what is wanted before."""

    def auth(
        self, peer: Hashable, correlation: int, auth: wire.Auth, now_ms: int, fx: Effects
    ) -> None:
        """The answer to a CHALLENGE."""

    def renew(self, number: int, correlation: int, auth: wire.Auth, now_ms: int) -> None:
        """An AUTH of a connection that is let in already."""

    def stranger(self, peer: Hashable, now_ms: int, fx: Effects) -> None:
        """A frame of a peer that has no connection."""

    def lost(self, peer: Hashable) -> None:
        """A peer is gone."""

    def ordered(
        self,
        number: int,
        order: Order,
        error: int,
        now_ms: int,
        fx: Effects,
        what: AuditDetails = NO_DETAILS,
    ) -> None:
        """A command of an operator was applied; error: the number of the fault, or 0; what: it has
        changed."""

    def ended(self, number: int, order: Order, audit_number: int) -> Ended:
        """What audits the end of a command whose own record could not tell it."""

    def ordered_elsewhere(
        self, who: tuple[str, str], order: Order, error: int, now_ms: int, fx: Effects
    ) -> None:
        """The same, of somebody without a connection here: the user, and where that one is."""

    def audit_number(self, order: Order) -> int:
        """The number that the record of a command will have in the audit; 0: it leaves none."""

    def denied(self, number: int | None, error: HmsError, now_ms: int, fx: Effects) -> int:
        """A command was not permitted; how many milliseconds its connection waits for it."""

    def shown(self, connection: int, asked: Order, value: Any) -> Any:
        """Of an operator's answer, what that connection may see."""

    def locks(self, now_ms: int) -> list[dict[str, Any]]:
        """Addresses that nobody connects from now."""

    def unlock(self, address: str, now_ms: int) -> None:
        """One of them less; AddressNotLocked."""

    def show_policy(self) -> Later:
        """The policy that holds, without what is secret; NotSupported."""

    def reload(self) -> Later:
        """Have the security file read now; NotSupported."""

    def policy(self, number: int, verb: str, asked: Operation) -> Any:
        """What a connection asks and orders of users, roles and the audit; NotSupported,
        InvalidArgument."""

    def verify_audits(self, wait_s: int) -> Later:
        """Have each node of the cluster verify its audit; NotSupported, NotInCluster."""

    def heed(self, no_news: NoNews) -> None:
        """no_news: to be told of records that are no reason for a backup."""

    def describe(self) -> dict[str, Any]:
        """For `hms status`."""

    def figures(self) -> dict[str, Any]:
        """For metrics: logins that were refused, commands that were not permitted."""


class OpenEntrance:
    """A node without logins: every client that reaches it is let in, and may do everything."""

    permit: Permit | None = None

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry

    def hello_some(self, peer: Hashable, hello: wire.Hello, now_ms: int, fx: Effects) -> bool:
        """What the same client's older connection has is given back."""
        return self._registry.hello_some(peer, hello, now_ms, fx)

    def hello(
        self, peer: Hashable, correlation: int, hello: wire.Hello, now_ms: int, fx: Effects
    ) -> None:
        """Let it in."""
        self._registry.hello(peer, correlation, hello, now_ms, fx)

    def auth(
        self, _peer: Hashable, _correlation: int, _auth: wire.Auth, _now_ms: int, _fx: Effects
    ) -> None:
        """Nobody has asked for it."""
        raise ProtocolError(detail="an AUTH that no CHALLENGE has asked for")

    def renew(self, _number: int, _correlation: int, _auth: wire.Auth, _now_ms: int) -> None:
        """There is nothing to renew."""
        raise NotSupported(feature="a login at an open node", instead="Secure the node first.")

    def stranger(self, _peer: Hashable, _now_ms: int, _fx: Effects) -> None:
        """It was closed by a takeover or a fault before this frame came."""

    def lost(self, peer: Hashable) -> None:
        """Nothing is kept of it here."""

    def ordered(
        self,
        _number: int,
        _order: Order,
        _error: int,
        _now: int,
        _fx: Effects,
        _what: AuditDetails = NO_DETAILS,
    ) -> None:
        """Nobody keeps it."""

    def ended(self, _number: int, _order: Order, _audit_number: int) -> Ended:
        """As above."""
        return lambda _error, _now_ms, _fx, _affected=None: None

    def ordered_elsewhere(
        self, _who: tuple[str, str], _order: Order, _error: int, _now: int, _fx: Effects
    ) -> None:
        """As above."""

    def audit_number(self, _order: Order) -> int:
        """As above."""
        return 0

    def denied(self, _number: int | None, _error: HmsError, _now: int, _fx: Effects) -> int:
        """It does not happen."""
        return 0

    def shown(self, _connection: int, _asked: Order, value: Any) -> Any:
        """All of it."""
        return value

    def heed(self, no_news: NoNews) -> None:
        """Nobody keeps it."""

    def locks(self, _now_ms: int) -> list[dict[str, Any]]:
        """Nobody can fail here."""
        return []

    def unlock(self, address: str, _now_ms: int) -> None:
        """As before."""
        raise AddressNotLocked(address=address)

    def show_policy(self) -> Later:
        """There is none."""
        raise _no_policy()

    def reload(self) -> Later:
        """As before."""
        raise _no_policy()

    def policy(self, _number: int, _verb: str, _asked: Operation) -> Any:
        """As before."""
        raise _no_policy()

    def verify_audits(self, _wait_s: int) -> Later:
        """Nothing is audited here."""
        raise _no_policy()

    def describe(self) -> dict[str, Any]:
        """What such a node trusts."""
        return {"security": "open: trusts every process that reaches its addresses"}

    def figures(self) -> dict[str, Any]:
        """Nobody is refused."""
        return {}


def _no_policy() -> NotSupported:
    instead = "Secure it first: hms config secure."
    return NotSupported(feature="the policy, or the audit, of an open node", instead=instead)
