"""The broker: where frames, engine, log and services meet. Decides nothing itself.

A general worker brings a batch of one connection's frames. They are decoded outside the engine's
lock, applied under it, and the records that came of them are appended to the log in that order (P2,
P4). All other effects of the batch wait in `_releases` until the log is durable that far (P1); the
storage worker that leads releases them into the outbox. Nobody waits for anything while holding the
lock (P5).
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from field_buffer.catalogue import NodeStopping, ProtocolError, StoreFull
from field_buffer.errors import HmsError
from hms.engine.effects import Confirm, Deliver, Effects, Refusal, Reply
from hms.engine.engine import Engine, Return
from hms.store.interface import Store
from tpmon.monitor import Answer, Invoke, Monitor, Origin
from tpmon.protocol import structures as wire
from tpmon.protocol.frames import (
    SEND_HEAD,
    Action,
    Envelope,
    Kind,
    SendHead,
    Settlement,
    decode_send,
    decode_settle,
    frame,
)
from tpmon.requests import Requests
from tpmon.wire import Frame, delivered_rows, encode_effect

BACKLOG_BYTES_MAX = 64 << 20
SPACE_WAIT_S = 5.0
BACKLOG_WAIT_S = 30.0
TICK = object()
"""Put on the INTERNAL lane by the scheduler: expiry and deadlines."""
INTERNAL: Hashable = "internal"


class Outlet(Protocol):
    """What the broker needs of the gateway."""

    def put(self, items: Sequence[tuple[Any, Frame]]) -> None:
        """Frames for peers, in order."""

    def accept(self, peer: Any) -> None:
        """The peer said hello and was let in."""

    def forget(self, peer: Any) -> None:
        """The peer is not welcome any more."""


class StorageWorkers(Protocol):
    """What the broker needs of the storage workers."""

    def notify(self) -> None:
        """The log has work."""

    def submit(self, job: Callable[[], None]) -> Any:
        """Work beside the log's."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A lane's item: the gateway lost the peer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the node is, as the WELCOME says."""

    node: str
    node_uid: int
    limits: wire.Limits
    version: str


Command = tuple[Envelope, Any, bytes]
"""Envelope, decoded head, and the payload that it was read from."""


class Broker:
    """Applies frames to the engine and releases what comes of them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        identity: Identity,
        clock_ms: Callable[[], int],
    ) -> None:
        self.engine = engine
        self.monitor = Monitor()
        self.outlet: Outlet
        self.storage: StorageWorkers
        self.is_stopping = False
        self._store = store
        self._identity = identity
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._release_lock = threading.Lock()
        self._at_once: deque[list[Any]] = deque()
        self._releases: deque[tuple[int, list[Any]]] = deque()
        self._progress = threading.Condition()
        self._numbers: dict[Hashable, int] = {}
        self._peers: dict[int, Hashable] = {}
        self._next_connection = 1
        self.describe_servers: Callable[[], list[dict[str, Any]]] = list
        self._requests = Requests(
            engine, self.monitor, self._status, self._list_servers
        )

    # general workers

    def handle(self, peer: Hashable, items: list[Any]) -> None:
        """A lane's batch. An error nobody foresaw escapes and stops the node: its log is right, its
        memory may not be (P7)."""
        if peer == INTERNAL:
            self._tick()
            return
        commands = [self._decode(*item) for item in items if not isinstance(item, Lost)]
        if commands:
            self._await_room(commands)
            self._apply(peer, commands)
        if any(isinstance(item, Lost) for item in items):
            self._lose(peer)

    def _decode(self, envelope: Envelope, payload: bytes) -> Command:
        """Read a payload's head; what cannot be read is carried as its error."""
        try:
            return envelope, _DECODERS[envelope.kind](payload), payload
        except HmsError as error:
            return envelope, error, payload
        except KeyError:
            return (
                envelope,
                ProtocolError(detail=f"a client does not send {envelope.kind.name}"),
                b"",
            )

    def _await_room(self, commands: list[Command]) -> None:
        """Slow persistent senders down while the log is behind or its next segment not ready."""
        if not any(e.kind is Kind.SEND for e, _, _ in commands):
            return
        store = self._store
        with self._progress:
            if store.backlog_bytes > BACKLOG_BYTES_MAX:
                self._progress.wait_for(
                    lambda: store.backlog_bytes <= BACKLOG_BYTES_MAX, BACKLOG_WAIT_S
                )
            if store.is_waiting_for_space:
                self.storage.submit(self.maintain)
                self._progress.wait_for(lambda: not store.is_waiting_for_space, SPACE_WAIT_S)

    def _apply(self, peer: Hashable, commands: list[Command]) -> None:
        refused = self._store.sends_refused()
        with self._lock:
            fx = Effects()
            now_ms = self._clock_ms()
            for envelope, head, payload in commands:
                self._apply_one(peer, envelope, head, payload, now_ms, refused, fx)
            self._submit(fx)
        self._after(fx)

    def _apply_one(
        self,
        peer: Hashable,
        envelope: Envelope,
        head: Any,
        payload: bytes,
        now_ms: int,
        refused: str | None,
        fx: Effects,
    ) -> None:
        """One command; a refusal is an effect like any other."""
        number = self._numbers.get(peer)
        try:
            if isinstance(head, HmsError):
                raise head
            if envelope.kind is Kind.HELLO:
                self._hello(peer, envelope, head, now_ms, fx)
            elif number is None:
                return  # it was closed by a takeover or a fault before this frame came
            elif envelope.kind is Kind.SEND:
                if head.is_persistent and refused is not None:
                    raise StoreFull(path="the store", detail=refused)
                self._send(number, envelope, head, payload, now_ms, fx)
            elif envelope.kind is Kind.SETTLE:
                self._settle(number, envelope, head, now_ms, fx)
            elif envelope.kind is Kind.REQUEST:
                self._requests.apply(number, envelope.correlation, head, now_ms, fx)
            elif envelope.kind is Kind.GOODBYE:
                self._close(number, now_ms, fx)
                self.outlet.forget(peer)
            else:
                self._serve(number, envelope, head, now_ms)
            self._drain_monitor(now_ms, fx)
        except HmsError as error:
            fx.out.append(_Direct(peer, encode_effect(Refusal(0, envelope.correlation, error))))

    def _serve(self, number: int, envelope: Envelope, head: Any, now_ms: int) -> None:
        """A CALL from a client or a RESULT from a server."""
        if envelope.kind is Kind.CALL:
            self.monitor.call(Origin(number, envelope.correlation), head[0], head[1], now_ms)
        else:
            self.monitor.result(number, *head)

    def _send(
        self,
        number: int,
        envelope: Envelope,
        head: SendHead,
        payload: bytes,
        now_ms: int,
        fx: Effects,
    ) -> None:
        self.engine.send(
            number,
            envelope.correlation,
            head.producer,
            head.first_sequence,
            head.message_count,
            head.is_persistent,
            memoryview(payload)[SEND_HEAD.size :],
            now_ms,
            fx,
        )

    def _settle(
        self, number: int, envelope: Envelope, items: list[Settlement], now_ms: int, fx: Effects
    ) -> None:
        engine, settled = self.engine, 0
        for action, consumer, epoch, credit, spans in items:
            if action is Action.CREDIT:
                engine.credit(number, consumer, epoch, credit, now_ms, fx)
                continue
            ranges = list(spans)
            if action is Action.ACKNOWLEDGE:
                settled += engine.acknowledge(number, consumer, epoch, ranges, now_ms, fx)
            else:
                how = Return.FAILED if action is Action.FAIL else Return.RELEASED
                settled += engine.give_back(number, consumer, epoch, ranges, how, now_ms, fx)
        if envelope.correlation:
            fx.out.append(Reply(number, envelope.correlation, settled))

    # connections

    def _hello(
        self, peer: Hashable, envelope: Envelope, hello: wire.Hello, now_ms: int, fx: Effects
    ) -> None:
        if self.is_stopping:
            raise NodeStopping
        if peer in self._numbers:
            raise ProtocolError(detail="a second HELLO on one connection")
        number = self._next_connection
        older = self.engine.open_connection(number, hello.uid, hello.client_id, hello.user)
        if older is not None:
            self._take_over(older, now_ms, fx)
            self.engine.open_connection(number, hello.uid, hello.client_id, hello.user)
        self._next_connection += 1
        self._numbers[peer], self._peers[number] = number, peer
        self.outlet.accept(peer)
        me = self._identity
        welcome = wire.Welcome(number, me.node, me.node_uid, me.limits, me.version)
        payload = wire.encode(welcome)
        fx.out.append(_Direct(peer, frame(Kind.WELCOME, payload, envelope.correlation)))

    def _take_over(self, older: int, now_ms: int, fx: Effects) -> None:
        """The same client is here again before its old connection was missed."""
        peer = self._peers.get(older)
        self._close(older, now_ms, fx)
        if peer is not None:
            self.outlet.forget(peer)

    def _lose(self, peer: Hashable) -> None:
        number = self._numbers.get(peer)
        if number is None:
            return
        with self._lock:
            fx = Effects()
            now_ms = self._clock_ms()
            self._close(number, now_ms, fx)
            self._drain_monitor(now_ms, fx)
            self._submit(fx)
        self._after(fx)

    def _close(self, number: int, now_ms: int, fx: Effects) -> None:
        peer = self._peers.pop(number, None)
        self._numbers.pop(peer, None)
        self.monitor.lost(number)
        self.engine.close_connection(number, now_ms, fx)

    def _tick(self) -> None:
        with self._lock:
            fx = Effects()
            now_ms = self._clock_ms()
            self.engine.tick(now_ms, fx)
            self.monitor.tick(now_ms)
            self._drain_monitor(now_ms, fx)
            self._submit(fx)
        self._after(fx)

    # effects; the first two under the engine's lock

    def _submit(self, fx: Effects) -> None:
        """Hand the records to the log; what else is to be done waits for them."""
        for record in fx.records:
            self._store.append(record.type, record.events, record.parts)
        if fx.out and (fx.records or fx.must_wait):
            self._releases.append((self._store.last_lsn, fx.out))
        elif fx.out:
            self._at_once.append(fx.out)

    def _drain_monitor(self, now_ms: int, fx: Effects) -> None:
        """What the monitor wants done; a listener's result is settled at once."""
        monitor = self.monitor
        while monitor.effects:
            effects, monitor.effects = monitor.effects, []
            for effect in effects:
                if isinstance(effect, Invoke):
                    payload = wire.encode_with_body(effect.head, effect.data)
                    fx.out.append(_ToConnection(effect.connection, frame(Kind.INVOKE, payload)))
                elif effect.origin.session:
                    self._listener_done(effect, now_ms, fx)
                else:
                    payload = wire.encode_with_body(effect.head, effect.data)
                    answer = frame(Kind.ANSWER, payload, effect.origin.correlation)
                    fx.out.append(_ToConnection(effect.origin.connection, answer))

    def _listener_done(self, answer: Answer, now_ms: int, fx: Effects) -> None:
        deliver = answer.origin.token
        assert isinstance(deliver, Deliver)
        is_done = answer.head.rval == 2 and not answer.head.error_number  # noqa: PLR2004 - TPSUCCESS
        self.engine.listener_done(
            deliver.connection, deliver.consumer, deliver.messages, is_done, now_ms, fx
        )

    def _after(self, fx: Effects) -> None:
        """Outside the lock: wake the storage workers, or release what need not wait."""
        if fx.records:
            self.storage.notify()
        elif fx.out:
            self.release(self._store.durable_lsn)

    # storage workers

    def lead(self) -> bool:
        """Write and sync what waits, then release what depended on it."""
        if not self._store.backlog_bytes:
            return False
        durable = self._store.commit()
        with self._progress:
            self._progress.notify_all()
        self.release(durable)
        if self._store.needs_maintenance:
            self.storage.submit(self.maintain)
        return True

    def maintain(self) -> None:
        """Prepare the log's next segment; senders that wait for it go on."""
        self._store.maintain()
        with self._progress:
            self._progress.notify_all()

    def release(self, durable_lsn: int) -> None:
        """Send everything that waited for no more than durable_lsn, in order."""
        listeners: list[Deliver] = []
        with self._release_lock:
            frames: list[tuple[Hashable, Frame]] = []
            while self._at_once:
                for effect in self._at_once.popleft():
                    self._encode(effect, frames, listeners)
            while self._releases and self._releases[0][0] <= durable_lsn:
                for effect in self._releases.popleft()[1]:
                    self._encode(effect, frames, listeners)
            if frames:
                self.outlet.put(frames)
        if listeners:
            self._invoke(listeners)

    def _encode(
        self, effect: Any, frames: list[tuple[Hashable, Frame]], listeners: list[Deliver]
    ) -> None:
        if isinstance(effect, _Direct):
            frames.append((effect.peer, effect.frame))
            return
        if isinstance(effect, Deliver) and effect.listener:
            listeners.append(effect)
            return
        peer = self._peers.get(effect.connection)
        if peer is None:
            return  # it is gone; what it had out was given back
        if isinstance(effect, _ToConnection):
            frames.append((peer, effect.frame))
        elif not isinstance(effect, Reply | Confirm) or effect.correlation:
            frames.append((peer, encode_effect(effect)))

    def _invoke(self, delivers: list[Deliver]) -> None:
        """Messages for listeners, durable now, go to the monitor."""
        with self._lock:
            fx = Effects()
            for deliver in delivers:
                origin = Origin(deliver.connection, 0, deliver.session, deliver)
                (message,) = deliver.messages
                (row,) = delivered_rows(deliver.messages, deliver.counts)
                head = wire.InvokeHead(
                    deliver.listener,
                    0,
                    0,
                    message.kind,
                    is_message=True,
                    destination_kind=deliver.kind,
                    destination=deliver.destination,
                    delivered=row,
                    head=message.payload[: message.head_bytes],
                )
                if deliver.connection in self.engine.state.connections:
                    self.monitor.listen(origin, head, message.payload[message.head_bytes :])
            self._drain_monitor(self._clock_ms(), fx)
            self._submit(fx)
        self._after(fx)

    # boot and stop

    def submit_alone(self, change: Callable[[Effects], None]) -> None:
        """Apply a change of the node's own, such as its boot or its end."""
        with self._lock:
            fx = Effects()
            change(fx)
            self._submit(fx)
        self._after(fx)

    def farewell(self, reason: HmsError) -> None:
        """Tell every peer why the node stops."""
        goodbye = frame(Kind.GOODBYE, wire.encode_error(reason))
        self.outlet.put([(peer, goodbye) for peer in list(self._numbers)])

    def _list_servers(self) -> list[dict[str, Any]]:
        return self.describe_servers()

    def _status(self) -> dict[str, Any]:
        return {
            "node": self._identity.node,
            "version": self._identity.version,
            "last_lsn": self._store.last_lsn,
            "durable_lsn": self._store.durable_lsn,
            "sends_refused": self._store.sends_refused(),
            "services": len(self.monitor.describe()),
        }


@dataclass(frozen=True, slots=True)
class _Direct:
    """A frame for a peer that may have no connection (yet)."""

    peer: Hashable
    frame: Frame


@dataclass(frozen=True, slots=True)
class _ToConnection:
    """A frame for a connection, if it is still there when the frame may go."""

    connection: int
    frame: Frame


_DECODERS: dict[Kind, Callable[[bytes], Any]] = {
    Kind.HELLO: lambda payload: wire.decode(payload, wire.Hello),
    Kind.REQUEST: wire.decode_request,
    Kind.SEND: decode_send,
    Kind.SETTLE: decode_settle,
    Kind.GOODBYE: lambda _: None,
    Kind.CALL: lambda payload: wire.decode_with_body(payload, wire.CallHead),
    Kind.RESULT: lambda payload: wire.decode_with_body(payload, wire.ResultHead),
}
