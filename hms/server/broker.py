"""The broker: where frames, engine, log and services meet. Decides nothing itself.

A general worker brings a batch of one connection's frames. They are decoded outside the engine's
lock, applied under it, and the records that came of them are appended to the log in that order (P2,
P4). All other effects of the batch wait (effect_release.py) until the log is durable that far (P1);
the storage worker that leads lets them go. Nobody waits for anything while holding the lock (P5).
"""

import gc
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any, Protocol

from msgspec import structs

from hms.engine.cluster.cluster_operations import move_figures
from hms.engine.effects import Deliver, Effects, Refusal, Reply
from hms.engine.engine import Engine, Return, Said
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.settlement import NOTHING
from hms.engine.state import AwaitingPageIn
from hms.engine.xa.branch_operations import transactions
from hms.errors.catalogue import NotAuthorized, StoreFull
from hms.errors.tree import HmsError
from hms.server.batch_portions import Command, portion_length
from hms.server.cleaning_pace import CleaningPace
from hms.server.client_operations import ClientOperations
from hms.server.configured_listeners import Declared, open_declared
from hms.server.connection_registry import ConnectionRegistry, Identity
from hms.server.doors.door import Words
from hms.server.draining import DRAINED, Draining
from hms.server.effect_release import EffectRelease, Outlet, ToPeer, append_records
from hms.server.entrance import Change, Entrance, OpenEntrance
from hms.server.file_transfer import FileTransfer
from hms.server.histograms import BATCH_RECORDS, SECONDS, Histogram
from hms.server.listener_services import call_listeners, drain_monitor
from hms.server.lock_statistics import Holder, LockStatistics
from hms.server.log_cleaning import LogCleaning
from hms.server.node_operations import NodeOperations
from hms.server.outcome_requests import OutcomeRequests
from hms.server.payloads import IN_MEMORY, Payloads
from hms.server.rare_lines import RareLines
from hms.server.request_handlers import RequestHandlers
from hms.server.resource_managers import ResourceManagers
from hms.server.segment_roll import SegmentOperations
from hms.server.service_monitor import Load, Origin, ServiceMonitor
from hms.server.supervision import NoServers, Supervisor
from hms.store.files import FileStore
from hms.store.interface import Store
from hms.wire import structures as wire
from hms.wire.commands import OF_KIND, Order, command_of
from hms.wire.frames import (
    Action,
    Envelope,
    Kind,
    SendHead,
    Settlement,
)

__all__ = ["INTERNAL", "TICK", "Broker", "Identity", "Lost", "Surroundings"]

refusals = logging.getLogger("hms.refusals")

_RETURNS = {
    Action.FAIL: Return.FAILED,
    Action.RELEASE: Return.RELEASED,
    Action.REJECT: Return.REJECTED,
    Action.RETRY: Return.FAILED,
}
BACKLOG_BYTES_MAX = 32 << 20
"""What is not synced yet is in memory twice, as its record and as messages that cannot leave it."""
LEAD_BYTES_MAX = 64 << 10
"""A general worker that put no more into an idle log writes and syncs it itself."""
COMMITS_OF_AVERAGE = 8
SPACE_WAIT_S = 5.0
BACKLOG_WAIT_S = 30.0
EFFORT_MAX = 2048
"""So many messages are touched, or consumers asked, and the rest of a batch, or of a SETTLE, is
left for its lane's next turn."""
_NEW = 2
"""An item that was not decoded yet: envelope and payload."""
TICK = object()
"""Put on the INTERNAL lane by the scheduler: expiry and deadlines."""
INTERNAL: Hashable = "internal"


def _unsaid(_fx: Effects, _now_ms: int) -> None:
    """An open node has no audit."""


class StorageWorkers(Protocol):
    """What the broker needs of the storage workers."""

    def notify(self) -> None:
        """The log has work."""

    @property
    def is_led(self) -> bool:
        """Whether somebody writes and syncs the log, or releases what waited for that."""

    def lead_here(self) -> None:
        """The same, but the caller does it when nobody else is at it."""

    def notify_later(self) -> None:
        """The log has work that nobody waits for."""

    def submit(self, job: Callable[[], None]) -> Any:
        """Work beside the log's."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a broker needs of the process around it, parts of which are made of the broker."""

    storage: StorageWorkers
    outlet: Outlet
    greedy: Container[Any] = ()
    """Peers that are about to be closed, because they read less than they ask for."""
    about_peer: Callable[[Any], dict[str, Any]] = lambda _peer: {}
    """What the gateway knows of a peer."""
    servers: Supervisor = field(default_factory=NoServers)
    resources: ResourceManagers = field(default_factory=ResourceManagers)
    arm: Callable[[int], None] = lambda _due_ms: None
    """Told the time, in milliseconds since 1970, when a TICK is wanted."""
    may_lead: Callable[[], bool] = lambda: False
    """Whether a general worker may sync the log itself: nothing else waits for one."""
    go_on: Callable[[], None] | None = None
    """Has a TICK handled behind what waits now; None: arm() is told. A scheduler may take 100 ms
    for a timer that is due, in which 20 slices could have been looked at."""
    on_progress: Callable[[], None] = lambda: None
    """Called when the log has come on: lanes that wait for it may go on."""
    check_format: Callable[[int], None] = lambda _format: None
    """Raises while a copy of the log could not read a format."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A lane's item: the gateway lost the peer."""

    reason: str


class Broker:
    """Applies frames to the engine and releases what comes of them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        monitor: ServiceMonitor,
        identity: Identity,
        clock_ms: Callable[[], int],
        files: FileStore | None = None,
        entrance: Callable[[ConnectionRegistry, Change], Entrance] | None = None,
        facts: Callable[[], dict[str, Any]] = dict,
        own: NodeOperations | None = None,
    ) -> None:
        """facts: what the process around it adds to the status; own: what operators ask of it."""
        self.engine = engine
        self.monitor = monitor
        self._bodies = Payloads(store, self._positions)
        self._transfers = FileTransfer(
            files, engine, self._change, self._submit, store.sends_refused
        )
        self.releases = EffectRelease(self._bodies.of_all, self._transfers.drop)
        self.registry = ConnectionRegistry(
            engine, monitor, identity, self.releases, self._is_own, self._closed, self._cut_off
        )
        self.draining = Draining(engine, monitor, self.registry)
        self.around: Surroundings
        self._armed_ms: int | None = None
        self._goes_on = False
        self._entrance = (
            entrance(self.registry, self.command) if entrance else OpenEntrance(self.registry)
        )
        self._permit = self._entrance.permit
        self._facts, self._own, self._told = facts, own, RareLines(refusals.debug)
        self._store = store
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self.is_held = self._lock.locked
        """Whether somebody holds the engine's lock."""
        self._holds = LockStatistics()
        self._commit_seconds, self._batch_records = Histogram(), Histogram(BATCH_RECORDS)
        self._sync_seconds = Histogram()
        self.commits = self._unlooked_bytes = 0
        """How often a commit of the log was begun or ended; odd while one is under way; what was
        committed since maintenance and cleaning were looked at last."""
        self.commit_s = 0.0
        """How long a commit of the log takes, on average of the last ones."""
        self._progress = threading.Condition()
        self._awaiting_count = 0
        self._settling: dict[int, tuple[int, dict[int, Queue | Subscription]]] = {}
        """Of a connection whose SETTLE takes more than one turn: how many messages are settled, and
        where messages go out at its end."""
        self._effort = 0
        """What the commands under this hold of the lock have touched so far."""
        self._waits: dict[Hashable, float] = {}
        """Since when lanes have been waiting, in seconds of the monotonic clock."""
        self.slowed: dict[Hashable, float] = {}
        """Until when peers wait that were refused too often, as above."""
        self._verdicts: dict[Hashable, str | None] = {}
        """Why the sends of the batch that comes next on a lane are refused. Asked once: what became
        short since must_wait() said that it may go is a reason to wait, not to refuse it."""
        pace = CleaningPace(store, lambda: self._holds.count, time.sleep)
        self._housekeeping = LogCleaning(
            engine, store, self._change, self._bodies, pace, self._await_log
        )
        self._requests = RequestHandlers(
            engine,
            monitor,
            self._status,
            lambda: self.around.servers,
            lambda: self.around.resources,
            self._entrance.shown,
            self._entrance.ordered,
            own,
            self._entrance.audit_number,
            self._metrics,
            SegmentOperations(engine, store, self._check_format),
            ClientOperations(engine, self.registry, self._entrance),
            self._entrance.ended,
        )
        self._entrance.heed(self._requests.segments.passed)
        self._requests.add(
            {**self._transfers.handlers, **OutcomeRequests(engine, self.registry).handlers}
        )

    def _check_format(self, wanted: int) -> None:
        """The process around it is there by then."""
        self.around.check_format(wanted)

    def begin(self, around: Surroundings) -> None:
        """The process around it is there: before anything is applied."""
        self.around = around
        self.releases.outlet = around.outlet
        self.releases.greedy = around.greedy
        self.registry.about_peer = around.about_peer

    def _is_own(self, name: str, uid: int) -> bool:
        """Whether a server is a process that the node has started."""
        return self.around.servers.is_own(name, uid)

    def _cut_off(self, number: int, now_ms: int, fx: Effects) -> None:
        self._requests.cut_off(number, now_ms, fx)

    def _closed(self, number: int) -> None:
        self._settling.pop(number, None)

    def _submit(self, job: Callable[[], None]) -> bool:
        """A job for the storage workers, which are there only when the node begins to work."""
        return bool(self.around.storage.submit(job))

    # general workers

    def handle(self, peer: Hashable, items: Sequence[Any]) -> None:
        """A lane's batch, turn after turn."""
        rest = list(items)
        while rest:
            self.turn(peer, rest)

    def turn(self, peer: Hashable, items: list[Any]) -> None:
        """Apply as much of a lane's batch as one hold of the lock may; the rest stays in the list,
        for the lane's next turn: no batch keeps a worker from the other lanes. An error nobody
        foresaw escapes and stops the node: its log is right, its memory may not be (P7)."""
        if peer == INTERNAL:
            items.clear()
            self._tick()
            return
        decode = self.releases.doors.get(peer, self.releases.native).decode
        commands: list[Command] = []
        lost: list[Any] = []
        for item in items:
            if isinstance(item, Lost):
                lost.append(item)
            else:
                commands.append(decode(*item) if len(item) == _NEW else (item[0], *item[:0:-1]))
        done = 0
        if commands:
            count = 1 if len(commands) == 1 else portion_length(commands)
            done = self._apply(peer, commands[:count], is_last=count == len(commands))
        if done < len(commands):
            items[:] = [(envelope, payload, head) for envelope, head, payload in commands[done:]]
            items += lost
            return
        if lost:
            self._waits.pop(peer, None)
            self._verdicts.pop(peer, None)
            self.slowed.pop(peer, None)
            if not self._lose(peer):
                items[:] = lost
                return
        items.clear()

    def must_wait(self, peer: Hashable, items: Sequence[Any]) -> bool:
        """Whether a lane's batch has to wait, because the log is behind or its next segment not
        ready. That slows its sender down. No worker waits here: two senders would occupy both, and
        the acknowledgements of all others would be stuck behind them (P10)."""
        if len(items) == 1 and type(items[0]) is tuple and items[0][0].kind is Kind.SETTLE:
            return False  # as below, without a question to the store
        if (self.slowed and self._is_slowed(peer, items)) or (
            self.draining.is_on and self.draining.holds(peer, items)
        ):
            return True
        store = self._store
        is_behind = store.appended_bytes - store.safe_bytes > BACKLOG_BYTES_MAX
        refused = store.sends_refused()
        if not (is_behind or store.is_waiting_for_space):
            if self._waits:
                self._waits.pop(peer, None)
            self._verdicts[peer] = refused and store.sends_refused()
            return False
        if self.registry.is_stopping or not any(_is_send(item) for item in items):
            return False
        now = time.monotonic()
        since = self._waits.setdefault(peer, now)
        if store.is_waiting_for_space:
            self.around.storage.submit(self.maintain)
        if now - since < (BACKLOG_WAIT_S if is_behind else SPACE_WAIT_S):
            return True
        self._waits.pop(peer, None)
        return False

    def _is_slowed(self, peer: Hashable, items: Sequence[Any]) -> bool:
        """Whether a peer that was refused too often waits yet; one that is lost does not."""
        until = self.slowed.get(peer, 0.0)
        if not until:
            return False
        must_end = self.registry.is_stopping or any(isinstance(item, Lost) for item in items)
        if time.monotonic() < until and not must_end:
            return True
        self.slowed.pop(peer, None)
        return False

    def _forget_slowed(self) -> None:
        """One that was dismissed with its last refusal asks no more: nobody else takes it away."""
        if self.slowed:
            now = time.monotonic()
            for peer in [one for one, until in list(self.slowed.items()) if until <= now]:
                self.slowed.pop(peer, None)

    def _await_log(self) -> None:
        """Wait while more than BACKLOG_BYTES_MAX are not synced yet."""
        store = self._store
        if store.backlog_bytes <= BACKLOG_BYTES_MAX:
            return
        with self._progress:
            self._awaiting_count += 1  # before it looks: who finds nobody counted, is seen by that
            try:
                self._progress.wait_for(
                    lambda: store.backlog_bytes <= BACKLOG_BYTES_MAX, BACKLOG_WAIT_S
                )
            finally:
                self._awaiting_count -= 1

    def _progressed(self) -> None:
        """The log has come on: those that wait for that look again."""
        if self._awaiting_count:
            with self._progress:
                self._progress.notify_all()
        if self._waits:
            self.around.on_progress()

    def _apply(self, peer: Hashable, commands: list[Command], *, is_last: bool) -> int:
        """Apply a portion of a batch; how many of its commands are done."""
        are_settled, is_any_new, done = True, False, 0
        engine, draining = self.engine, self.draining
        for envelope, _, _ in commands:
            kind = envelope.kind
            are_settled = are_settled and kind is Kind.SETTLE
            is_any_new = is_any_new or kind is Kind.SEND or kind is Kind.SCHEDULE
        verdicts, refused = self._verdicts, None
        if peer in verdicts:
            refused = verdicts.pop(peer)
        elif is_any_new:  # others are taken on a full disk, too
            refused = self._store.sends_refused()

        def change(fx: Effects, now_ms: int) -> None:
            nonlocal done
            self._effort = 0
            taken = draining.taken(peer, commands) if draining.is_over else commands
            for command in taken:
                if self._effort >= EFFORT_MAX:
                    return
                try:  # no function of its own, which would be a call more for each command
                    if not self._apply_one(peer, command, now_ms, refused, fx):
                        return
                except HmsError as error:
                    self._refuse(peer, command, error, now_ms, fx)
                done += 1
                if done < len(taken):
                    self._effort += engine.take_effort()

        self._change(change, is_in_hand=is_last, may_linger=are_settled, by=commands)
        return len(commands) if draining.is_over and draining.drops(peer) else done

    def _apply_one(
        self, peer: Hashable, command: Command, now_ms: int, refused: str | None, fx: Effects
    ) -> bool:
        """One command; a refusal is raised. False: a slice of it is done, and it comes again."""
        envelope, head, _ = command
        number, is_done = self.registry.numbers.get(peer), True
        if isinstance(head, HmsError):
            self._unreadable(peer, envelope, now_ms, fx)
            fx.out.append(ToPeer(peer, Refusal(0, envelope.correlation, head)))
            return True
        if self._permit is not None:
            kind = envelope.kind
            of_kind = OF_KIND.get(kind)  # a call less for messages
            self._permit(of_kind or command_of(kind, head), head, number)
        if number is None or envelope.kind is Kind.HELLO:
            return self._greet(peer, envelope, head, now_ms, fx)
        if envelope.kind is Kind.SEND:
            if refused is not None:
                self._check_space(number, head, refused)
            engine = self.engine
            is_done = not (
                engine.has_crowds
                and engine.send_some(number, head, memoryview(command[2]), now_ms, fx)
            )
            if is_done:
                engine.send(
                    number,
                    envelope.correlation,
                    head.producer,
                    head.first_sequence,
                    head.message_count,
                    head.is_persistent,
                    memoryview(command[2]),
                    now_ms,
                    fx,
                )
        elif envelope.kind is Kind.SETTLE:
            return self._settle(number, envelope, head, now_ms, fx)
        elif envelope.kind is Kind.REQUEST:
            return self._requests.apply(number, envelope.correlation, head, now_ms, fx)
        elif envelope.kind is Kind.SCHEDULE:
            self._schedule(number, envelope, head, refused, now_ms, fx)
        else:
            is_done = self._serve(number, envelope, head, now_ms, fx)
        return is_done

    def _refuse(
        self, peer: Hashable, command: Command, error: HmsError, now_ms: int, fx: Effects
    ) -> None:
        """A refusal is an effect like any other. No frame may keep the error: its traceback leads
        back to the frame and to the payload, 16 MiB until the garbage collector runs."""
        envelope = command[0]
        if isinstance(error, NotAuthorized):
            number = self.registry.numbers.get(peer)
            wait_ms = self._entrance.denied(number, error, now_ms, fx)
            if number is not None:
                self._requests.cut_off(number, now_ms, fx, error.number or 0)
            if wait_ms:
                self.slowed[peer] = time.monotonic() + wait_ms / 1000
        if refusals.isEnabledFor(logging.DEBUG):
            self._told.say("%s", error, extra=self._named(peer, envelope, error))
        refusal = Refusal(0, envelope.correlation, error.with_traceback(None))
        fx.out.append(ToPeer(peer, refusal))

    def _named(self, peer: Hashable, envelope: Envelope, error: HmsError) -> dict[str, Any]:
        """The fields of a refusal in the log; the client's error has the same request."""
        number = self.registry.numbers.get(peer, 0)
        return {
            "event": "refused",
            "request": wire.request_id(number, envelope.correlation),
            "connection": number,
            "kind": envelope.kind.name,
            "error": error.number,
        }

    def _dismiss(self, number: int, now_ms: int, fx: Effects) -> bool:
        """A client says good-bye. False: a slice of what it had is given back."""
        if self.registry.close_some(number, now_ms, fx):
            return False
        self.registry.dismiss(number, now_ms, fx, is_final=True)
        return True

    def _greet(
        self, peer: Hashable, envelope: Envelope, head: Any, now_ms: int, fx: Effects
    ) -> bool:
        """Who has not been let in yet. False: see _apply_one()."""
        if envelope.kind is Kind.HELLO:
            if self._entrance.hello_some(peer, head, now_ms, fx):
                return False
            self._entrance.hello(peer, envelope.correlation, head, now_ms, fx)
        elif envelope.kind is Kind.AUTH:
            self._entrance.auth(peer, envelope.correlation, head, now_ms, fx)
        else:
            self._entrance.stranger(peer, now_ms, fx)
        return True

    def _unreadable(self, peer: Hashable, envelope: Envelope, now_ms: int, fx: Effects) -> None:
        """Who waits for a result that cannot be read must not wait for more: the server goes. Who
        has not been let in is not, then."""
        number = self.registry.numbers.get(peer)
        if number is None:
            self._entrance.stranger(peer, now_ms, fx)
        if envelope.kind is Kind.RESULT and number is not None:
            self.registry.dismiss(number, now_ms, fx)

    def _serve(self, number: int, envelope: Envelope, head: Any, now_ms: int, fx: Effects) -> bool:
        """A CALL from a client, a RESULT from a server, a part of their conversation, a NOTICE, a
        block of a file, a good-bye. False: see _apply_one()."""
        kind = envelope.kind
        if kind is Kind.CALL:
            login = self.registry.logins.get(number)
            origin = Origin(number, envelope.correlation, user=login.user if login else "")
            self.monitor.call(origin, head[0], head[1], now_ms)
        elif kind is Kind.RESULT:
            self.monitor.result(number, head[0], head[1], now_ms)
        elif kind is Kind.TALK:
            self.monitor.talk(number, head[0], head[1])
        elif kind is Kind.FILE:
            self._transfers.block(number, envelope.correlation, head[0], head[1], now_ms)
        elif kind is Kind.NOTICE:
            notices = self.registry.notices(number, head[0], head[1])
            fx.out += [*notices, Reply(number, envelope.correlation, len(notices))]
        elif kind is Kind.AUTH:
            self._entrance.renew(number, envelope.correlation, head, now_ms)
        else:
            return self._dismiss(number, now_ms, fx)
        return True

    def _check_space(self, number: int, head: SendHead, refused: str) -> None:
        """A full disk refuses new messages, not those that it has and that come again."""
        if head.is_persistent and not self.engine.is_repeated(
            number, head.producer, head.first_sequence
        ):
            raise StoreFull(path="the store", detail=refused)

    def _schedule(
        self,
        number: int,
        envelope: Envelope,
        content: tuple[wire.ScheduleHead, bytes],
        refused: str | None,
        now_ms: int,
        fx: Effects,
    ) -> None:
        head, pack = content
        self._requests.schedule(
            number, envelope.correlation, head, memoryview(pack), refused, now_ms, fx
        )

    def _settle(
        self, number: int, envelope: Envelope, items: list[Settlement], now_ms: int, fx: Effects
    ) -> bool:
        """What is done of it is taken off its items; see _apply_one(). Messages go out at its end:
        each item that gives back and asks again would have all that its consumer may have sent
        once more, under one hold of the lock."""
        if len(items) == 1 and number not in self._settling:
            settled = self._settle_each(number, items, now_ms, fx)
            places: dict[int, Queue | Subscription] = {}
        else:
            settled, places = self._settling.pop(number, (0, {}))
            try:
                with self.engine.dispatching_later(places):
                    settled += self._settle_each(number, items, now_ms, fx)
            except HmsError:
                self.engine.dispatch(places.values(), fx)
                raise
        if items:
            self._settling[number] = settled, places
            return False
        if places:
            self.engine.dispatch(places.values(), fx)
        if envelope.correlation:
            fx.must_wait = True  # it answers for what was settled before, too
            fx.out.append(Reply(number, envelope.correlation, settled))
        return True

    def _settle_each(self, number: int, items: list[Settlement], now_ms: int, fx: Effects) -> int:
        """How many messages were settled; what has to wait for the next turn stays in the list."""
        engine, settled, done = self.engine, 0, 0
        for item in items:
            if self._effort >= EFFORT_MAX:
                break
            action, consumer, epoch = item.action, item.consumer, item.epoch
            if action is Action.CREDIT:
                engine.credit(number, consumer, epoch, item.credit, now_ms, fx)
            elif action is Action.CREDIT_BYTES:
                engine.credit(number, consumer, epoch, 0, now_ms, fx, item.credit)
            elif action is Action.SEEN:
                engine.seen(number, consumer, epoch, item.ranges)
            else:
                spans, later = item.ranges, None
                if len(spans) != 1 or spans[0][0] != spans[0][1]:  # one message is no slice
                    spans, later = engine.slice_of(number, consumer, epoch, spans)
                if action is Action.ACKNOWLEDGE:
                    settled += engine.acknowledge(number, consumer, epoch, spans, now_ms, fx)
                else:
                    settled += self._give_back(number, item, spans, now_ms, fx)
                if later is not None:
                    items[done] = structs.replace(item, ranges=later)
                    break
            done += 1
            if done < len(items):
                self._effort += engine.take_effort()
        del items[:done]
        return settled

    def _give_back(
        self,
        number: int,
        item: Settlement,
        spans: Sequence[tuple[int, int]],
        now_ms: int,
        fx: Effects,
    ) -> int:
        action, consumer, epoch = item.action, item.consumer, item.epoch
        how, delay_ms = _RETURNS[action], item.credit if action is Action.RETRY else None
        said = Said(item.code, item.text) if item.code or item.text else NOTHING
        return self.engine.give_back(
            number, consumer, epoch, spans, how, now_ms, fx, delay_ms, said
        )

    def _lose(self, peer: Hashable) -> bool:
        """False: a slice of it is done; see _apply_one()."""
        is_done = True

        def change(fx: Effects, now_ms: int) -> None:
            nonlocal is_done
            number = self.registry.numbers.get(peer)
            if number is None:
                self._entrance.lost(peer)
                return
            is_done = not self.registry.close_some(number, now_ms, fx)
            if is_done:
                self.registry.close(number, now_ms, fx)

        self._change(change, by="LOST")
        return is_done

    def _newly_due(self) -> int | None:
        """When delayed messages or calls are due, if that is sooner than what was asked for."""
        due_ms = self.engine.due_ms(is_prompt=self.around.go_on is not None)
        call_ms = self.monitor.times.due_ms
        if not due_ms or (call_ms and call_ms < due_ms):
            due_ms = call_ms
        if not due_ms or (self._armed_ms is not None and self._armed_ms <= due_ms):
            return None
        self._armed_ms = due_ms
        return due_ms

    def _tick(self) -> None:
        def change(fx: Effects, now_ms: int) -> None:
            self._armed_ms, self._goes_on = None, False
            self.engine.tick(now_ms, fx, self._store.sends_refused())
            self.monitor.tick(now_ms, self.around.servers.comes_back)
            self._transfers.tick(now_ms)

        self._change(change, by="TICK")
        self._forget_slowed()
        self.releases.tick()
        if self._housekeeping.is_due:  # what was consumed last may have freed a full disk
            self.around.storage.submit(self._clean)

    def open_declared(self, wanted: list[Declared]) -> None:
        """Have the listeners of the configuration served."""
        self._change(lambda fx, now: open_declared(self.engine, self.monitor, wanted, now, fx))

    def load(self) -> list[Load]:
        """How busy the node's server processes are."""
        with self._lock:
            return self.monitor.load()

    def server_ended(self, name: str) -> None:
        """A server process ended without a good-bye: its connection is over now, not when its
        silence is noticed."""
        is_done = False

        def change(fx: Effects, now_ms: int) -> None:
            nonlocal is_done
            for number in self.monitor.connections_of(name):
                if self.registry.close_some(number, now_ms, fx):
                    return
                self.registry.dismiss(number, now_ms, fx)
            is_done = True

        while not is_done:
            self._change(change, by="LOST")

    # the one place where the engine's lock is taken

    def _change(
        self,
        change: Callable[[Effects, int], None],
        *,
        is_in_hand: bool = False,
        may_linger: bool = False,
        by: Holder = "the node",
    ) -> None:
        """Apply a change, hand its records to the log and its other effects to the releases.

        is_in_hand: the caller is a general worker, who may also write and sync them. may_linger:
        if nobody is notified of the change they may be synced a little later, with what comes next.
        A collection of garbage would begin with the next object that is created, and all others
        would wait for it: it is put off until the lock is free. It is on then in any case: asked
        whether it was, a second node of the process would find what the first one switched off.
        """
        state, store = self.engine.state, self._store
        with self._lock:
            gc.disable()
            try:
                begun_s, cpu_begun_s = perf_counter(), thread_time()
                fx, now_ms = Effects(), self._clock_ms()
                change(fx, now_ms)
                has_blocked = state.blocked.lines and not state.blocked.has_more  # else ticks go on
                if has_blocked and store.sends_refused() is None:
                    self.engine.retry_blocked(now_ms, fx)
                told = self.monitor.effects or self.monitor.changed
                hung = drain_monitor(self.engine, self.monitor, now_ms, fx) if told else ()
                if state.files.left:
                    self.engine.count_files(fx)
                append_records(store, fx.records)
                is_held = self.releases.add(fx, store.last_lsn)
                due_ms = self._newly_due()
                outgoing, looking = state.outgoing, state.looking
                behind = state.unfinished or state.awaiting_ids or looking.behind or looking.left
                is_urgent = behind or outgoing.rest or (outgoing.held and outgoing.may_go_on())
                is_behind = bool(is_urgent) and not self._goes_on
                self._goes_on = self._goes_on or is_behind
                self._holds.ended(begun_s, cpu_begun_s, by, fx)
            finally:
                gc.enable()
        if due_ms is not None:
            self.around.arm(due_ms)
        if hung or is_behind:
            self._go_on(hung, is_behind=is_behind)
        if may_linger and fx.records and not (fx.out or state.awaiting_page_in):
            self.around.storage.notify_later()
        elif fx.unawaited and not (
            is_held or state.awaiting_page_in or len(fx.records) > fx.unawaited
        ):
            self.release(store.durable_lsn)
            self.around.storage.notify_later()
        elif fx.records or state.awaiting_page_in or (is_held and store.backlog_bytes):
            waiting_bytes = store.appended_bytes - store.safe_bytes
            if is_in_hand and waiting_bytes <= LEAD_BYTES_MAX and self.around.may_lead():
                self.around.storage.lead_here()
            else:
                self.around.storage.notify()
        elif fx.out and (calls := self.releases.release(store.durable_lsn)):
            self._call_listeners(calls)

    def _go_on(self, hung: Sequence[str], *, is_behind: bool) -> None:
        """End server processes that hang; have the next slice done behind what waits now."""
        for name in hung:
            self.around.servers.kill(name)
        if is_behind and self.around.go_on is not None:
            self.around.go_on()

    def release(self, durable_lsn: int) -> None:
        """Let go of what the log is durable for; listeners' messages go on to the monitor."""
        if calls := self.releases.release(durable_lsn):
            self._call_listeners(calls)

    def _call_listeners(self, calls: list[tuple[Deliver, bytes]]) -> None:
        self._change(lambda _, now: call_listeners(self.engine, self.monitor, calls, now))

    def command(self, change: Callable[[Effects, int], None]) -> None:
        """What comes over the links of the cluster."""
        self._change(change, by="a link")

    def audit(
        self, who: tuple[str, str], order: Order, error: int, now_ms: int, fx: Effects
    ) -> None:
        """What an operator said at another machine was done, or failed; under the engine's lock."""
        self._entrance.ordered_elsewhere(who, order, error, now_ms, fx)

    # storage workers

    def lead(self) -> bool:
        """Write and sync what waits, then release what depended on it."""
        store = self._store
        awaiting_page_in = (
            self._take_awaiting_page_in() if self.engine.state.awaiting_page_in else []
        )
        backlog_bytes = store.appended_bytes - store.safe_bytes
        if not backlog_bytes and not awaiting_page_in:
            return False
        begun_s, before = perf_counter(), store.durable_lsn
        self.commits += 1
        durable_lsn = store.commit()
        self.commits += 1
        taken_s = perf_counter() - begun_s  # Histogram.observe(), in place
        self._commit_seconds.counts[bisect_left(SECONDS, taken_s)] += 1
        self._commit_seconds.total += taken_s
        if sync_s := store.sync_s:
            self._sync_seconds.counts[bisect_left(SECONDS, sync_s)] += 1
            self._sync_seconds.total += sync_s
        self.commit_s += (taken_s - self.commit_s) / COMMITS_OF_AVERAGE
        self._batch_records.counts[bisect_left(BATCH_RECORDS, durable_lsn - before)] += 1
        self._batch_records.total += durable_lsn - before
        if self._awaiting_count or self._waits:
            self._progressed()
        if calls := self.releases.release(durable_lsn):
            self._call_listeners(calls)
        if awaiting_page_in:
            payloads = self._bodies.of_all([waiting.message for waiting in awaiting_page_in])
            found = list(zip(awaiting_page_in, payloads, strict=True))
            self._change(lambda fx, now_ms: self.engine.bodies_came(found, now_ms, fx))
        self._unlooked_bytes += backlog_bytes
        if self._unlooked_bytes >= store.look_bytes:
            self._unlooked_bytes = 0
            if store.needs_maintenance:
                self.around.storage.submit(self.maintain)
            if self._housekeeping.is_due:
                self.around.storage.submit(self._clean)
        return True

    def _positions(self, messages: Sequence[StoredMessage]) -> list[int]:
        with self._lock:
            return [
                m.block.position(m.slot) if m.is_paged and m.block is not None else IN_MEMORY
                for m in messages
            ]

    def _take_awaiting_page_in(self) -> list[AwaitingPageIn]:
        """Messages whose bodies can be read when what the log has now is durable."""
        with self._lock:
            return self.engine.take_awaiting_page_in()

    def _clean(self) -> None:
        """Clean the log; what that gave back is let go of at once."""
        self._housekeeping.run()
        if self._store.needs_maintenance:
            self.around.storage.submit(self.maintain)

    def maintain(self) -> None:
        """Prepare the log's next segment; senders that wait for it go on."""
        with self._lock:  # effects of all that is durable are known to the releases
            durable_lsn = self._store.durable_lsn
        self._store.maintain(self.releases.behind(durable_lsn))
        self._progressed()

    # the node's own

    def stopped(self, audit: Callable[[Effects, int], None] = _unsaid) -> None:
        """Note in the log that the node stopped in order; audit: notes it there first."""

        def change(fx: Effects, now_ms: int) -> None:
            audit(fx, now_ms)
            self.engine.stopped(now_ms, fx)

        self._change(change)

    def drained(self) -> None:
        """Tell every client that what was not answered was not taken."""
        self.releases.say(list(self.registry.numbers), Words(Kind.EVENT, DRAINED))

    def farewell(self, reason: HmsError) -> None:
        """Tell every peer why the node stops."""
        self.registry.farewell(reason)

    def look(self, at: Callable[[Engine], Any]) -> Any:
        """What somebody wants to see of the engine; it takes a moment, and changes nothing."""
        with self._lock:
            begun_s, cpu_begun_s = perf_counter(), thread_time()
            gc.disable()
            try:
                return at(self.engine)
            finally:
                gc.enable()
                self._holds.ended(begun_s, cpu_begun_s, "a look")

    @property
    def backed_up_ms(self) -> int:
        """When a backup was begun last; 0: not since the boot."""
        return self._requests.backed_up_ms

    @property
    def shipped_ms(self) -> int:
        """The same of one that `hms backup ship` made."""
        return self._requests.shipped_ms

    def commit_counts(self) -> list[int]:
        """How many commits of the log took how long; see histograms.SECONDS."""
        return list(self._commit_seconds.counts)

    def refusals(self) -> tuple[int, int]:
        """How many logins were refused, and commands not permitted."""
        told = self._entrance.figures()
        return told.get("logins_refused", 0), told.get("denied", 0)

    def abandoned(self) -> list[str]:
        """Durable subscriptions that pile messages up, and nobody receives (F-H5)."""
        with self._lock:
            found = self.engine.abandoned(self._clock_ms())
        has_more = True
        while has_more:
            with self._lock:
                has_more = found.go_on()
        return found.names

    def _metrics(self) -> dict[str, Any]:
        """What metrics tell of the node beside its destinations."""
        identity, state, blocks = (
            self.registry.identity,
            self.engine.state,
            self.engine.state.blocks,
        )
        return {
            "node": identity.node,
            "version": identity.version,
            "now_ms": self._clock_ms(),
            "connections": len(state.connections),
            "sessions": state.sessions_open,
            "held_bytes": state.held_bytes,
            "max_memory_bytes": state.settings.memory_bytes_max,
            "paged_messages": blocks.paged_count,
            "blocked_sends": sum(map(len, state.blocked.lines.values())),
            "sends_refused": self._store.sends_refused() is not None,
            **transactions(state),
            "decisions": len(state.decisions.decided),
            "audit_records": state.audit.number,
            "last_lsn": self._store.last_lsn,
            "appended_bytes": self._store.appended_bytes,
            "backlog_bytes": self._store.backlog_bytes,
            "confirmation": self.releases.confirmation.describe(),
            "commit": self._commit_seconds.describe(),
            **({"sync": self._sync_seconds.describe()} if self._sync_seconds.total else {}),
            "batch_records": self._batch_records.describe(),
            "services": self.monitor.describe(),
            "service_durations": self.monitor.durations(),
            "server_durations": self.monitor.server_durations(),
            "servers": self.around.servers.describe(),
            "links": self._links(),
            **self._entrance.figures(),
            **self._holds.describe(),
            **({} if self._own is None else self._own.figures()),
        }

    def _links(self) -> Sequence[dict[str, Any]]:
        """To the other nodes of the cluster, with what is moved over them."""
        cluster = self.engine.cluster
        if cluster is None:
            return ()
        moves = move_figures(self.engine.state, cluster)
        links = cluster.describe_links().get("links", ())
        return [{**one, **moves.get(one["node"], {})} for one in links]

    def _status(self) -> dict[str, Any]:
        identity, store = self.registry.identity, self._store
        return {
            "node": identity.node,
            "version": identity.version,
            **self._facts(),
            "store_id": self.engine.state.identity.store.hex(),
            "last_lsn": store.last_lsn,
            "durable_lsn": store.durable_lsn,
            "sends_refused": store.sends_refused(),
            "services": len(self.monitor.describe()),
            "listeners_missing": self.monitor.listeners_missing(),
            "alerts": [] if self._own is None else self._own.alerts.active(),
            **self._entrance.describe(),
            **self._holds.describe(),
            **self.around.resources.describe(),
            **store.describe(),
        }


def _is_send(item: Any) -> bool:
    return not isinstance(item, Lost) and item[0].kind is Kind.SEND
