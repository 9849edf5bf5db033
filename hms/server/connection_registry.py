"""Connection registry: who is connected, from HELLO to the end. All under the engine's lock."""

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import structs

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.security import Rights
from hms.errors.catalogue import HandleUnknown, IdentityRefused, NodeStopping, ProtocolError
from hms.errors.tree import HmsError
from hms.server.bans import Ban, Banned, Bans
from hms.server.byte_ledger import window
from hms.server.doors.door import Words
from hms.server.effect_release import EffectRelease, ToConnection, ToPeer
from hms.server.listener_services import tell_running
from hms.server.service_monitor import ServiceMonitor
from hms.wire import outcome_tokens
from hms.wire import structures as wire
from hms.wire.client_identity import SECRET_BYTES, check_identity, uid_of
from hms.wire.commands import Action
from hms.wire.frames import Kind

ONE_CLIENT = 3
"""What of a notice for the client whose number it has."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the node is, as the WELCOME says. epoch, replicas: of a log with copies; idempotent:
    services that may run twice."""

    node: str
    node_uid: int
    limits: wire.Limits
    version: str
    epoch: int = 0
    replicas: Sequence[str] = ()
    idempotent: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What a client said of itself, and when it came."""

    client_name: str
    library: str
    is_server: bool
    since_ms: int


def _uid(hello: wire.Hello) -> int:
    """Who says HELLO: proved by its secret, or, without one, a number for this connection only."""
    if not hello.secret:
        return uid_of(os.urandom(SECRET_BYTES))
    check_identity(hello.uid, hello.secret)
    return hello.uid


class Login(Protocol):
    """Who a connection was proved to be, where that is asked."""

    @property
    def user(self) -> str:
        """Its name."""

    @property
    def roles(self) -> Sequence[str]:
        """Those that are active on this connection."""

    @property
    def rights(self) -> Rights:
        """What it may do."""


def _names_of(hello: wire.Hello, login: Login | None) -> tuple[str, str]:
    """User and client id. With logins the client id is the user's own: equal ones of two users
    never meet."""
    if login is None:
        return hello.user, hello.client_id
    return login.user, f"{login.user}/{hello.client_id}" if hello.client_id else ""


class ConnectionRegistry:
    """Peers of the gateway and connections of the engine. A routing id is never an identity: who
    somebody is follows from the login, and a login belongs to one peer."""

    def __init__(
        self,
        engine: Engine,
        monitor: ServiceMonitor,
        identity: Identity,
        releases: EffectRelease,
        is_own: Callable[[str, int], bool],
        on_closed: Callable[[int], None],
        on_closing: Callable[[int, int, Effects], None],
    ) -> None:
        """is_own: whether a server is the process of that name that the node has started;
        on_closed: told of each connection that is no more; on_closing: before, with the time."""
        self.identity = identity
        self.is_stopping = False
        self.members: Callable[[], Sequence[str]] = tuple
        """Addresses of other nodes that a client may use."""
        self.is_own = is_own
        self.bans = Bans()
        self.about_peer: Callable[[Any], dict[str, Any]] = lambda _peer: {}
        """What the gateway knows of a peer."""
        self.numbers: dict[Hashable, int] = {}
        self.peers = releases.peers
        self.releases = releases
        self._engine, self._on_closed = engine, on_closed
        self._on_closing = on_closing
        self._monitor = monitor
        self._next = 1
        self.logins: dict[int, Login] = {}
        """By connection, at a node that checks logins."""
        self._known: dict[int, Known] = {}
        self._names: dict[int, tuple[str, str]] = {}
        """User and client name of each client that is no server."""

    def user_of(self, peer: Hashable) -> str:
        """Who has logged in there; "" nobody. From any thread."""
        login = self.logins.get(self.numbers.get(peer, 0))
        return "" if login is None else login.user

    def hello_some(self, peer: Hashable, hello: wire.Hello, now_ms: int, fx: Effects) -> bool:
        """Before hello(): a slice of what closing the same client's older connection takes, and
        whether there is more of it."""
        if self.is_stopping or peer in self.numbers or not hello.secret:
            return False
        older = self._engine.number_of(_uid(hello))
        return older is not None and self.close_some(older, now_ms, fx)

    def hello(
        self,
        peer: Hashable,
        correlation: int,
        hello: wire.Hello,
        now_ms: int,
        fx: Effects,
        login: Login | None = None,
        resume: tuple[bytes, int] = (b"", 0),
    ) -> None:
        """Let a client in; the same client's older connection is closed first. login: of a node
        that checks it; resume: the proof of it for later, and until when."""
        if self.is_stopping:
            raise NodeStopping
        if peer in self.numbers:
            raise ProtocolError(detail="a second HELLO on one connection")
        number, engine = self._next, self._engine
        user, client_id = _names_of(hello, login)
        if self.bans:
            address = str(self.about_peer(peer).get("address", ""))
            self.bans.check(Banned(user, client_id, hello.client_name, address), now_ms)
        who = _uid(hello), client_id, user, hello.request_timeout_ms
        older = engine.open_connection(number, *who)
        if older is not None:
            if login is not None and self.logins[older].user != user:
                raise IdentityRefused(uid=f"{hello.uid:#x}")
            self._take_over(older, now_ms, fx)
            engine.open_connection(number, *who)
        self._next += 1
        self.numbers[peer], self.peers[number] = number, peer
        about = hello.client_name, hello.library, hello.is_server
        self._known[number] = Known(*about, since_ms=now_ms)
        self.releases.outlet.accept(peer)
        if hello.is_server:
            is_own = self.is_own(hello.client_name, who[0])
            self._monitor.introduce(number, hello.client_name if is_own else "")
        else:
            self._names[number] = user, hello.client_name
        if login is not None:
            self.logins[number] = login
        secret = engine.token_secret
        key = outcome_tokens.key_of(secret, who[0], user if login is not None else "")
        me, members = self.identity, self.members()
        window_bytes = window(len(self.peers), me.limits.frame_bytes_max)
        limits = structs.replace(me.limits, bytes_in_flight_max=window_bytes)
        welcome = wire.Welcome(
            *(number, me.node, me.node_uid, limits, me.version, now_ms, members, engine.log),
            epoch=me.epoch,
            replicas=me.replicas,
            idempotent=me.idempotent,
            restored_from=engine.state.identity.restored_from,
            restored_below=engine.state.identity.restored_below,
        )
        if hello.secret:
            welcome = structs.replace(welcome, outcome_key=key)
        if login is not None:
            welcome = structs.replace(
                welcome,
                is_secured=True,
                user=user,
                roles=login.roles,
                resume=resume[0],
                resume_ms=resume[1],
            )
        fx.out.append(ToPeer(peer, Words(Kind.WELCOME, welcome, correlation)))

    def close_some(self, number: int, now_ms: int, fx: Effects) -> bool:
        """Give back a slice of what an ending connection has; whether there is more."""
        tell_running(self._engine, self._monitor, number)
        return self._engine.close_some(number, now_ms, fx)

    def close(self, number: int, now_ms: int, fx: Effects, *, is_final: bool = False) -> None:
        """A connection ended; is_final: in order, its client does not come back."""
        self._on_closing(number, now_ms, fx)
        peer = self.peers.pop(number, None)
        self.numbers.pop(peer, None)
        self._names.pop(number, None)
        self._known.pop(number, None)
        tell_running(self._engine, self._monitor, number)
        self.logins.pop(number, None)
        self._monitor.lost(number)
        self._engine.close_connection(number, now_ms, fx, is_final=is_final)
        self._on_closed(number)

    def dismiss(self, number: int, now_ms: int, fx: Effects, *, is_final: bool = False) -> None:
        """Close a connection from this side."""
        peer = self.peers.get(number)
        self.close(number, now_ms, fx, is_final=is_final)
        if peer is not None:
            self.releases.outlet.forget(peer)

    def about(self, number: int) -> dict[str, Any]:
        """What is known of a client's connection."""
        return self.about_peer(self.peers[number]) if number in self.peers else {}

    def is_meant(self, number: int, ban: Ban) -> bool:
        """Whether a ban is of that client."""
        connection = self._engine.state.connections.get(number)
        if connection is None or number not in self.peers:
            return False
        address = str(self.about(number).get("address", ""))
        name = self.known(number).client_name
        return ban.meets(Banned(connection.user, connection.client_id, name, address))

    def uid_of(self, number: int) -> int:
        """The client's own number."""
        return self._engine.state.connection(number).uid

    def client_id_of(self, number: int) -> str:
        """With its user's name before it, at a node that checks logins; "" of one that is gone."""
        connection = self._engine.state.connections.get(number)
        return "" if connection is None else connection.client_id

    def known(self, number: int) -> Known:
        """What a client said of itself."""
        return self._known.get(number) or Known("", "", is_server=False, since_ms=0)

    def tell(self, number: int, reason: HmsError) -> None:
        """Say good-bye to a client, which is about to be dismissed."""
        self.releases.say([self.peers[number]], Words(Kind.GOODBYE, reason))

    def notices(self, sender: int, head: wire.NoticeHead, data: bytes) -> list[ToConnection]:
        """Unsolicited data for the clients that are meant; HandleUnknown for one that has gone."""
        if head.what == ONE_CLIENT:
            if head.client not in self._names:
                raise HandleUnknown(what="client", handle=head.client)
            meant = [head.client]
        else:
            meant = [number for number in self._names if self._is_meant(number, head)]
        told = wire.NoticeHead(head.what, head.kind, sender)
        words = Words(Kind.NOTICE, told, data=data)
        return [ToConnection(number, words) for number in meant]

    def _is_meant(self, number: int, head: wire.NoticeHead) -> bool:
        user, name = self._names[number]
        is_here = head.node in ("", self.identity.node)
        return is_here and head.user in ("", user) and head.client_name in ("", name)

    def may_ask_for(self, connection: int, user: str) -> bool:
        """Whether a connection may know what became of a user's sends and commits."""
        login = self.logins.get(connection)
        if login is None or login.user == user:
            return True
        return login.rights.allows(Action.OPERATE, "node", self.identity.node)

    def farewell(self, reason: HmsError) -> None:
        """Tell every peer why the node stops."""
        if self.numbers:  # else a node may not have begun yet, and nobody is there
            self.releases.say(list(self.numbers), Words(Kind.GOODBYE, reason))

    def _take_over(self, older: int, now_ms: int, fx: Effects) -> None:
        """The same client is here again before its old connection was missed."""
        self.dismiss(older, now_ms, fx)
