"""The node process: reads its log, starts its threads, moves frames until it is told to stop.

    python -P -m hms.boot.node --config FILE --node NAME [--warm | --cold] [--standby]
        [--ready-fd N]

SIGTERM drains: what the node has taken is finished, confirmed and said good-bye to. A second one
stops at once; nothing confirmed is lost either way. One that stands by, or is not ready yet, ends
at once. SIGHUP opens the log file anew, after it was moved away, and takes log_level from the
configuration as it is now. A fault of the store or of the engine stops the node with its reason in
the log (P7). A replica that leads no more, because it moved or was replaced, begins anew as one
that follows, in the same process.
"""

import argparse
import contextlib
import logging
import os
import platform
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import zmq

from hms.boot import compose
from hms.boot.audit_anchors import AuditAnchors, Head
from hms.boot.ban_file import BanFile
from hms.boot.config import load
from hms.boot.entries import Config, Node
from hms.boot.failing_back import FailingBack, preferred_of
from hms.boot.garbage import freeze_survivors
from hms.boot.hardening import keep_memory_private
from hms.boot.linking import gateway_limits, make_linking
from hms.boot.listening import listening
from hms.boot.memory import keep_freed_memory
from hms.boot.memory_limit import memory_limit, resident_bytes
from hms.boot.monitoring.alert_command import AlertCommand, Change
from hms.boot.monitoring.alert_topic import AlertTopic
from hms.boot.monitoring.node_load import NodeLoad
from hms.boot.monitoring.notify import Notifier
from hms.boot.monitoring.state_file import StateFile, state_file_of
from hms.boot.monitoring.vitals import Vitals
from hms.boot.monitoring.watch import Watch
from hms.boot.monitoring.watch_parts import Parts
from hms.boot.own_log import OwnLog
from hms.boot.ready import tell_failed, tell_progress, tell_ready, tell_standby
from hms.boot.recovering import make_engine, recover
from hms.boot.roles import forget_role, tell_role
from hms.boot.scheduler import EvenScheduler, after_ms
from hms.boot.securing import audit_boot, make_securing
from hms.boot.server_keys import make_server_keys
from hms.boot.servers import Servers
from hms.boot.standby import Taken, take_store
from hms.boot.switching import Switching
from hms.boot.syslog_output import SyslogOutput
from hms.boot.withheld_variables import has_secrets, named_by_node
from hms.client.core.log_lines import (
    FORMAT_VARIABLE,
    JOURNAL_TEXT,
    PAYLOADS_VARIABLE,
    JsonLines,
    TextLines,
    form_of,
    make_formatter,
)
from hms.client.core.log_output import LogOutput
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import (
    LeadershipLost,
    NodeFailed,
    NodeStopping,
    StoreCorrupt,
    StoreFenced,
)
from hms.errors.tree import HmsError
from hms.server.alerts import Alerts
from hms.server.broker import INTERNAL, TICK, Broker, Lost, Surroundings
from hms.server.byte_ledger import FRAME_BYTES, size_of, take_part
from hms.server.effect_release import append_records
from hms.server.gateway import Gateway, PeerKey
from hms.server.log_levels import LogLevels
from hms.server.log_payloads import LogPayloads
from hms.server.logins.auditing import Auditing
from hms.server.logins.callers import Caller
from hms.server.lone_frames import LoneFrames
from hms.server.node_operations import Later, NodeOperations
from hms.server.progress import Progress
from hms.server.rare_lines import RareLines
from hms.server.refused_connections import RefusedConnections
from hms.server.replicas.orders import Answer
from hms.store.files import FileStore
from hms.store.journal.journal import Journal
from hms.wire.commands import Order, operation_of
from hms.wire.operations import AddReplica, Operation, RemoveReplica, SwitchOver
from hms.workers.lanes import AGAIN, PARK, Handle, LanePool
from hms.workers.load import PoolLoad
from hms.workers.storage import StoragePool

log = logging.getLogger("hms.node")

TICK_S = LOOK_S = 1.0
RESTS_S = 2.0
"""So long behind a take-over the next segment is not prepared: what clients sent comes first."""
STORE_EVERY = 10
"""It lists the files of the log and its history, of which there may be thousands."""
BATCH_BYTES = 8 << 20
"""Decoded at a time: until they are applied, messages are there twice."""
WARN_S = 3600
DRAIN_TIMEOUT_S = 30.0
SERVERS_TIMEOUT_S = 15.0
DEBUGGER_ALLOWED = (
    "allow_debugger: processes of the node's user may read passwords and messages in its memory, "
    "and a crash may write them to a core file"
)
PAYLOADS_LOGGED = "log_payloads: services that fail write bodies and properties into the log"
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _unaudited(_resource: str, _command: str, _key: str) -> None:
    """An open node has no audit."""


class _Ended(BaseException):
    """It was told to stop before it was ready."""


class NodeProcess:
    """One running node."""

    def __init__(self, config: Config, taken: Taken, start: str | None, own_log: OwnLog) -> None:
        self._config, self._taken, self._own_log = config, taken, own_log
        node = self._node = taken.node
        self._start = start
        self._failed = False
        self._losses = RareLines(log.info)
        self._stops = self._signals = self._looks = 0
        self.is_replaced = False
        """Another process has the store, or may have it: this one confirms nothing more."""
        self._ready_fd: int | None = None
        self._listens: list[str] = []
        self._booted_at = self._disk_free_bytes = self._disk_bytes = 0
        self._store_figures: dict[str, Any] = {}
        self._vitals = Vitals(
            node.name,
            StateFile(state_file_of(node)),
            node.watchdog_s,
            Notifier.taken(),
            is_watched=taken.has_waited,
        )
        self._vitals.start()
        moving = {} if taken.hand_over is None else {"replicas": self._on_replicas}
        about = node.name, config.alerts.command or (), self._environment
        self._alert_command, alerts = (
            AlertCommand(*about),
            Alerts(compose.clock_ms, tell=self._told),
        )
        self._own = NodeOperations(
            alerts,
            LogLevels(),
            LogPayloads(node.log_payloads, self._tell_payloads),
            self._figures,
            **moving,
        )
        self._deleted = 0
        """So many messages a COLD boot removed."""
        self._journal = taken.store
        applied = taken.applied
        self._engine = make_engine(config, node) if applied is None else applied.engine
        self._files = FileStore(node.store / "files", node.max_file_bytes, taken.files_disk)
        monitor = compose.monitor(config, node)
        refused = RefusedConnections(is_audited=node.security is not None)
        self._securing = make_securing(
            config,
            node,
            self._engine,
            monitor,
            self._caller_of,
            compose.clock_ms,
            refused,
            self._drop,
        )
        self._broker = Broker(
            self._engine,
            self._journal,
            monitor,
            compose.identity(config, node, taken.epoch),
            compose.clock_ms,
            None if node.shared and node.database is not None else self._files,
            None if self._securing is None else self._securing.entrance,
            self._facts,
            self._own,
        )
        linking = self._linking = make_linking(
            *(config, node, self._engine, self._broker, refused),
            _unaudited if self._securing is None else self._securing.key_changed,
        )
        self._ledger = compose.ledger(node, self._engine_bytes)
        turn = self._broker.turn if linking is None else linking.turn
        workers = node.group.hmsmaxthr
        self._lanes = LanePool(workers, self._handler(turn), on_fault=self._on_fault)
        is_local = isinstance(self._journal, Journal) and taken.copies is None
        lone = LoneFrames(self._broker, self._lanes, turn, may_sync=is_local)
        go_on = self._lanes.go_on
        moving_to = self._broker, go_on, self._stop
        preferred = preferred_of(config, node)
        preferred = "" if preferred == node.replica else preferred
        switching = self._switching = Switching(node, taken, *moving_to, preferred)
        moved = taken, self._broker, switching, self._damage
        self._failing_back = FailingBack(config, node, *moved)
        self._gateway = Gateway(
            listening(config, node),
            limits=gateway_limits(node),
            on_frames=self._lanes.put_many,
            on_alone=lone.apply,
            on_lost=self._on_lost,
            on_dropped=self._on_dropped,
            ledger=self._ledger,
            known_keys=tuple if self._securing is None else self._securing.known_keys,
            refused=refused,
            user_of=self._broker.registry.user_of,
            links=None if linking is None else linking.links,
        )
        if linking is not None:
            linking.ring = self._gateway.wake
        self._server_keys = make_server_keys(config, node, self._securing, self._gateway.rekey)
        self._scheduler = EvenScheduler(self._on_fault)
        self._servers = Servers(
            config,
            node,
            on_ended=self._broker.server_ended,
            secret=self._secret_variables,
        )
        self._anchors, self._load, self._alert_topic = (
            self._audit_anchors(),
            self._node_load(),
            AlertTopic(node.name, self._engine, self._broker.command, compose.clock_ms),
        )
        self._watch = Watch(
            self._broker,
            self._journal,
            self._own.alerts,
            config.alerts,
            lambda: (self._disk_free_bytes, self._disk_bytes),
            compose.clock_ms,
            compose.clock_ms.machine_ms,
            self._parts(),
            self._taken.clocks,
        )

    def run(self, ready_fd: int | None) -> int:
        """Boot, serve, stop; the process's exit code."""
        self._ready_fd = ready_fd
        if self._taken.beat is not None:
            self._taken.beat.on_fenced = self._on_fault
        self._recover()
        freeze_survivors()  # what was recovered, perhaps millions of messages, comes first
        if self._config.servers_of(self._node):
            self._broker.monitor.begins()
        self._taken.leave_door()
        addresses = self._listens = self._gateway.bind()
        self._booted_at = compose.clock_ms()
        self._look_at_disk()
        self._start_workers()
        self._schedule()
        self._warn()
        self._broker.open_declared(compose.declared(self._config, self._node))
        for number in _STOPPING:
            signal.signal(number, self._on_signal)
        self._own_log.tells(self._servers.tell_log)
        self._servers.start(addresses[0])
        self._taken.obeys(self._ordered)
        log.info("node %s listens at %s", self._node.name, ", ".join(addresses))
        threading.Thread(target=self._tell_ready, daemon=True).start()
        try:
            self._gateway.run()
        except (OverflowError, MemoryError) as fault:
            self._on_fault(fault)
        return 1 if self._failed else 0

    def _tell_ready(self) -> None:
        """The node is ready when its servers offer their services, or cannot."""
        if not self._servers.wait_until_settled(SERVERS_TIMEOUT_S):
            log.warning("not all servers offer their services after %g s", SERVERS_TIMEOUT_S)
        self._broker.command(lambda _fx, _now_ms: self._broker.monitor.begun())
        log.info("node %s is ready", self._node.name)
        self._vitals.ready(self._progress(), self._own.alerts.active)
        if (ready_fd := self.taken_ready_fd()) is not None:
            tell_ready(ready_fd)

    def taken_ready_fd(self) -> int | None:
        """Where the process that started this one waits for a word; None when it had one."""
        fd, self._ready_fd = self._ready_fd, None
        return fd

    def _progress(self) -> Progress:
        """What comes on while the node works."""
        hands = self._lanes.hands
        parts: dict[str, Callable[[], int]] = {
            f"worker {n + 1}": partial(hands.__getitem__, n) for n in range(len(hands))
        }
        parts["main loop"] = lambda: self._gateway.turns
        parts["log"] = lambda: self._broker.commits
        return Progress(parts, always=frozenset(("main loop",)))

    def _node_load(self) -> NodeLoad:
        def storage() -> PoolLoad:  # its workers are started after the recovery
            return self._storage.load()

        pools = {"general": self._lanes.load, "storage": storage}
        return NodeLoad(pools, lambda: self._gateway.turns, self._gateway.slowest_turn_s)

    def _parts(self) -> Parts:
        """What may become an alert."""
        own, audit, arbiter = self._securing, self._engine.state.audit, self._config.arbiter
        cluster = self._engine.cluster
        files = () if arbiter is None else (arbiter.ca_file, arbiter.cert_file)
        secured = {} if own is None else {"policy_rejected": own.rejected}
        secured |= {} if own is None else {"policy_differs": own.differs}

        most_bytes = memory_limit() or 0
        is_open = self._node.allow_debugger and has_secrets(self._config, self._node)
        debugger_allowed = DEBUGGER_ALLOWED if is_open else ""
        payloads = self._own.payloads

        def audit_broken() -> str:
            heads = None if cluster is None else cluster.audits
            return audit.broken or ("" if heads is None else heads.broken or heads.doubted)

        def certificates() -> Iterator[Path]:
            yield from filter(None, files)
            yield from () if own is None else own.certificates()

        return Parts(
            slowest_turn_s=self._load.slowest_turn_s,
            closed_for_memory=self._gateway.closed_for_memory,
            resident=lambda: (resident_bytes(), most_bytes),
            growth=self._journal.growth,
            servers=self._servers.describe,
            listeners_missing=self._broker.monitor.listeners_missing,
            audit_broken=audit_broken,
            anchor_not_sent=lambda: "" if self._anchors is None else self._anchors.fault,
            alert_not_told=lambda: self._alert_command.fault,
            debugger_allowed=lambda: debugger_allowed,
            log_payloads=lambda: PAYLOADS_LOGGED if payloads.is_on else "",
            copy_damaged=self._damage,
            certificates=certificates,
            copies=self._taken.troubles,
            addresses_locked=tuple if own is None else own.addresses_locked,
            **secured,
        )

    def _secret_variables(self) -> set[str]:
        """What other programs that the node starts do not get."""
        found = named_by_node(self._config, self._node)
        return found if self._securing is None else found | self._securing.secret_variables()

    def _audit_anchors(self) -> AuditAnchors | None:
        """None for a node that sends none."""
        way, journal, look = self._node.audit_anchor, self._journal, self._broker.look
        if way is None:
            return None

        def head(engine: Engine) -> Head:
            audit = engine.state.audit
            return Head(audit.number, audit.head.hex(), journal.last_lsn)

        about = lambda: look(head), lambda: journal.durable_lsn, self._environment
        return AuditAnchors(self._node.name, way, *about)

    def _environment(self) -> dict[str, str]:
        """Of commands that the configuration names."""
        secret = self._secret_variables()
        return {name: text for name, text in os.environ.items() if name not in secret}

    def _tell_payloads(self, is_on: bool) -> None:
        self._servers.tell_payloads(is_on)

    def _told(self, *, begins: bool, name: str, destination: str, text: str) -> None:
        change = Change(begins, name, destination, text)
        self._alert_command.put(change)
        self._alert_topic.put(change)

    def _damage(self) -> str:
        """Of a copy of a replicated log."""
        copies = self._taken.copies
        return "; ".join(copies()["damage"]) if copies is not None else ""

    # boot

    def _recover(self) -> None:
        """Read the log; what boots COLD is emptied, and that is logged too."""
        applied = self._taken.applied
        records = recover(self._engine, self._journal, self._tell_progress, applied)
        fx = Effects()
        is_warm = None if self._start is None else self._start == "WARM"
        own = self._journal.last_lsn + 1, os.urandom(16)
        compose.clock_ms.begin_at(self._engine.state.now_ms + 1)
        self._broker.monitor.number_from(compose.first_call(own[1]))
        found, last_ms = self._waiting(), self._engine.state.now_ms
        was_killed = self._engine.was_killed
        self._engine.boot(compose.clock_ms(), is_warm, compose.hms_version(), fx, own)
        if self._linking is not None:
            self._linking.booted()
        self._journal.start(self._dictionary)
        self._look_for_files()
        waiting = self._waiting()
        self._deleted = found - waiting
        append_records(self._journal, self._audited(last_ms if was_killed else 0).records)
        append_records(self._journal, fx.records)
        self._commit_first()
        if not self._taken.has_waited:
            self._journal.maintain()
        elif isinstance(self._journal, Journal):  # clients wait: a tick does it
            self._journal.rest(RESTS_S)
        if self._deleted:
            log.warning("the COLD boot deleted %d messages", self._deleted)
        log.info("recovered %d messages from %d records", waiting, records)

    def _audited(self, killed_ms: int) -> Effects:
        """What the audit says of this boot, behind the opening of the log, which tells the record
        before it; killed_ms: the last time that the log has of a life that was killed, or 0. A node
        that has an audit tells there that it is open now."""
        fx, chain = Effects(), self._engine.state.audit
        start, waited = self._start or self._node.boot, self._taken.has_waited
        about = start, self._deleted, killed_ms
        if self._securing is not None:
            self._securing.booted(*about, fx, has_waited=waited)
        elif chain.number:
            when = *about, compose.clock_ms(), fx
            audit_boot(Auditing(chain), self._node.name, *when, has_waited=waited, is_open=True)
        return fx

    def _commit_first(self) -> None:
        """The first records of this boot are safe; where copies are missing for that, the parent
        process is told that this machine stands by for them."""
        if self._taken.beat is not None:
            self._taken.beat.on_blocked = self._stands_by
        self._journal.commit()
        if self._taken.beat is not None:
            self._taken.beat.on_blocked = lambda _what: None
            self._vitals.goes_on()
            forget_role(self._node)

    def _stands_by(self, what: str) -> None:
        tell_role(self._node, what, str(self._node.store))
        self._vitals.stands_by(what)
        if (fd := self.taken_ready_fd()) is not None:
            tell_standby(fd)

    def _waiting(self) -> int:
        return sum(place.line.waiting_count for place in self._engine.state.places.values())

    def _look_for_files(self) -> None:
        """Files that messages name and that are gone are reported; others are given up in time."""
        missing = self._engine.files_found(self._files.open(), compose.clock_ms())
        if missing:
            log.error("%d files that messages name are not there: %s", len(missing), missing[:10])

    def _tell_progress(self, done: int, total: int) -> None:
        log.info("recovering: %d of %d MiB", done >> 20, total >> 20)
        self._vitals.recovering(done, total)
        if self._ready_fd is not None:
            tell_progress(self._ready_fd, done, total)

    def _dictionary(self) -> tuple[int, int, Sequence[bytes | memoryview]]:
        record = self._engine.dictionary()
        return record.type, record.events, record.parts

    def _start_workers(self) -> None:
        group = self._node.group
        self._storage = StoragePool(group.hmsmaxdbthr, self._broker.lead, on_fault=self._on_fault)
        bans = BanFile(self._node.runtime / f"{self._node.name}.bans")
        self._broker.registry.bans.keep_in(bans, self._storage)
        # A database may be away for minutes, and a pool of one has other things to do.
        leads = group.hmsmaxthr > 1 and isinstance(self._journal, Journal)
        self._broker.begin(
            Surroundings(
                self._storage,
                self._gateway,
                greedy=self._ledger.greedy,
                about_peer=self._gateway.about,
                servers=self._servers,
                resources=compose.resources(self._config, self._node),
                arm=self._arm,
                may_lead=self._lanes.is_quiet if leads else lambda: False,
                go_on=self._go_on,
                on_progress=self._lanes.go_on,
                check_format=self._taken.check_format,
            )
        )
        if self._linking is not None:
            self._linking.lanes = self._lanes
        self._taken.configurations(self._configured)

    def _configured(self, copies: str, is_planned: bool) -> None:
        """Other copies of the log count, or another one leads: the log has it."""
        me, note = self._node.replica or "", partial(self._engine.configured, copies)
        self._broker.command(lambda fx, now_ms: note(me, now_ms, fx, is_planned=is_planned))

    def _engine_bytes(self) -> int:
        return self._engine.state.held_bytes + self._broker.monitor.bytes_waiting

    def _handler(self, turn: Callable[[Hashable, list[Any]], None]) -> Handle:
        """The same for so many bytes at a time, and the ledger knows what is done."""
        handled = self._ledger.handled

        must_wait = self._broker.must_wait

        def in_parts(peer: Hashable, items: list[Any]) -> object:
            if isinstance(peer, int) and must_wait(peer, items):
                return PARK
            if len(items) == 1 and type(items[0]) is tuple:  # a call less for a frame alone
                part = [items.pop()]
                size = len(part[0][1]) + FRAME_BYTES
            else:
                part, size = take_part(items, BATCH_BYTES)
            try:
                turn(peer, part)
            except BaseException:
                part.clear()
                raise
            finally:
                if size:
                    size -= size_of(part) if part else 0
                    handled(peer, size)
            items[:0] = part
            return AGAIN if items else None

        return in_parts

    def _schedule(self) -> None:
        """Periodic work of the node; a job only hands a command to the workers."""
        every = {"trigger": "interval", "coalesce": True, "misfire_grace_time": None}
        self._scheduler.add_job(self._tick, seconds=TICK_S, **every)
        self._scheduler.add_job(self._warn, seconds=WARN_S, **every)
        self._scheduler.add_job(self._look, seconds=LOOK_S, **every)
        if self._linking is not None:
            self._scheduler.add_job(self._linking.tick, seconds=self._linking.tick_s, **every)
        self._scheduler.start()

    def _warn(self) -> None:
        for name in self._broker.abandoned():
            log.warning("nobody receives what waits for the durable subscription %s", name)

    def _look_at_disk(self) -> None:
        """Asked for here and not when somebody wants to know: that is under the engine's lock."""
        with contextlib.suppress(OSError):
            usage = shutil.disk_usage(self._node.store)
            self._disk_free_bytes, self._disk_bytes = usage.free, usage.total

    def _facts(self) -> dict[str, Any]:
        """What the process knows of itself, for the status."""
        return {
            "listen": list(self._listens),
            "uptime_s": (compose.clock_ms() - self._booted_at) // 1000,
            "disk_free_bytes": self._disk_free_bytes,
            "deleted_at_boot": self._deleted,
            "log_lines_dropped": self._own_log.lines_dropped,
            "role": "active",
            **self._replicated(),
        }

    def _replicated(self) -> dict[str, Any]:
        facts = self._taken.facts()
        if "replication" in facts:
            facts["replication"] |= self._failing_back.facts()
            terms = self._engine.terms
            facts["replication"]["take_overs"] = terms.take_overs
            facts["replication"]["switchovers"] = terms.switchovers
            facts["replication"]["drains_for"] = self._switching.drains_for
            facts["replication"]["move_waits_for"] = self._switching.waits_for
        return facts

    def _figures(self) -> dict[str, Any]:
        """The same for metrics."""
        return {
            "state": self._vitals.state,
            "python": platform.python_version(),
            "libzmq": zmq.zmq_version(),
            "booted_ms": self._booted_at,
            "recovery_s": self._vitals.recovery_s,
            "disk_free_bytes": self._disk_free_bytes,
            "disk_bytes": self._disk_bytes,
            "store": self._store_figures,
            "log_lines_dropped": self._own_log.lines_dropped,
            **self._load.describe(),
            **self._watch.latencies.figures(),
            **self._replicated(),
        }

    def _look(self) -> None:
        self._load.look()
        self._own.levels.tick()
        self._own.payloads.tick()
        self._watch.look()
        self._failing_back.look()
        self._alert_command.look()
        self._alert_topic.look()
        if self._anchors is not None:
            self._anchors.look()
        self._looks += 1
        if self._looks % STORE_EVERY == 1:
            self._store_figures = dict(self._journal.describe())

    def _arm(self, due_ms: int) -> None:
        """A TICK at that time; an earlier wish replaces a later one."""
        at = after_ms(due_ms - compose.clock_ms())
        self._scheduler.add_job(
            self._tick,
            "date",
            run_date=at,
            id="due",
            replace_existing=True,
            misfire_grace_time=None,
        )

    def _go_on(self) -> None:
        """A TICK behind what waits for the workers now."""
        self._lanes.put_many(INTERNAL, [TICK])

    def _tick(self) -> None:
        self._lanes.put_many(INTERNAL, [TICK])
        self._lanes.go_on()
        self._servers.adjust(self._broker.load())
        self._look_at_disk()
        if self._securing is not None:
            self._securing.look()
        self._server_keys.look()
        if self._linking is not None:
            self._linking.keys.look()
        if self._journal.needs_maintenance:
            self._storage.submit(self._broker.maintain)

    # between gateway and broker

    def _caller_of(self, peer: Any) -> Caller | None:
        """What the transport proves of a peer."""
        return self._gateway.caller_of(peer)

    def _drop(self, sources: tuple[str, ...]) -> None:
        """Nobody opens a connection from there."""
        self._gateway.drop(sources)

    def _on_lost(self, peer: PeerKey, reason: str) -> None:
        """Goes behind what the peer sent before, and behind others; a full lane is no reason to
        miss it."""
        self._losses.say("connection %s is lost: %s", peer, reason)
        lost: Hashable = peer
        if not self._lanes.put_late(lost, [Lost(reason)]):
            self._lanes.discard(lost)
            self._lanes.put_late(lost, [Lost(reason)])

    def _on_dropped(self, peer: PeerKey) -> None:
        """A peer was closed for what it had on its lane: that it is lost is all that counts now."""
        self._lanes.discard(peer)
        self._ledger.dropped(peer)
        self._lanes.put_many(peer, [Lost("too many bytes were held for it")])

    # stop

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
        if not (self.moves_to and self._signals == 1):  # else it drains already
            self._stop()

    @property
    def is_told_to_stop(self) -> bool:
        """By a signal: it does not begin anew then."""
        return self._signals > 0

    def _stop(self) -> None:
        self._stops += 1
        self._switching.is_stopping = not self.moves_to
        if self._stops == 1:
            threading.Thread(target=self._drain, name="hms-stop", daemon=True).start()
        else:
            self._gateway.stop()

    @property
    def moves_to(self) -> str:
        """The replica that is to lead from now on: this process then follows."""
        return self._switching.to

    def _on_replicas(self, asked: Operation) -> dict[str, Any] | Later:
        """What an operator wants of the copies."""
        taken = self._taken
        assert taken.add is not None
        assert taken.remove is not None
        match asked:
            case SwitchOver():
                return self._switching.begin(asked)
            case AddReplica():
                taken.add(asked.name)
            case RemoveReplica():
                taken.remove(asked.name)
        log.warning("%s: %s", type(asked).__name__, getattr(asked, "name", ""))
        return taken.facts()

    def _ordered(self, asked: SwitchOver, by: tuple[str, str], answer: Answer) -> None:
        """A machine that follows sends on what an operator has said there. That it was ordered is
        audited, and a refusal too, as of one who is connected."""
        who = f"os:{by[0]}", f"replica {by[1]}"
        order = Order(operation_of("replica.switchover"), asked)
        begun: list[Later] = []
        faults: list[HmsError] = []

        def audit(fault: HmsError | None, now_ms: int, fx: Effects) -> None:
            error = 0 if fault is None else fault.number or 0
            self._broker.audit(who, order, error, now_ms, fx)

        def begin(fx: Effects, now_ms: int) -> None:
            try:
                begun.append(self._switching.begin(asked))
            except HmsError as fault:
                faults.append(fault)
            audit(faults[0] if faults else None, now_ms, fx)
            for later in begun:
                later.then = partial(ended, self._switching.target)

        def ended(to: str, fault: HmsError | None) -> None:
            if fault is not None:
                self._broker.command(lambda fx, now_ms: audit(fault, now_ms, fx))
            answer(to, fault)

        self._broker.command(begin)
        for fault in faults:
            answer("", fault)

    def _farewell(self) -> HmsError:
        if not self.moves_to:
            return NodeStopping()
        return compose.not_primary(self._config, self._node, self.moves_to, self._taken.epoch)

    def _drain(self) -> None:
        """Finish what was taken, in the order in which it flows."""
        log.info("draining")
        if not self.moves_to:  # else a supervisor would wait for the end
            self._vitals.draining()
        self._broker.registry.is_stopping = True
        self._servers.stop()
        self._gateway.stop_reading()
        self._lanes.close(drain=True, timeout_s=DRAIN_TIMEOUT_S)
        secured = self._securing
        if secured is None:
            self._broker.stopped()
        else:
            self._broker.stopped(partial(secured.stopped, self.moves_to))
        self._storage.close(drain=True, timeout_s=DRAIN_TIMEOUT_S)
        if self._broker.draining.is_over and not self._journal.backlog_bytes:
            self._broker.drained()
        self._broker.farewell(self._farewell())
        self._gateway.stop()

    def _on_fault(self, fault: BaseException) -> None:
        """The store failed, or something nobody foresaw: stop, confirm nothing more (P7)."""
        if not self._failed:
            self._failed = True
            fault = self._taken.why(_known(fault))
            self.is_replaced = isinstance(fault, StoreFenced | LeadershipLost)
            told = isinstance(fault, HmsError)
            _say("node_failed", f"the node stops: {fault}", None if told else fault)
            reason = fault if isinstance(fault, HmsError) else NodeFailed(detail=repr(fault))
            if not self.is_replaced:
                self._vitals.failed(str(reason))
            self._broker.farewell(reason)
        self._gateway.stop()

    def replaced(self, fault: HmsError) -> None:
        """The log takes no more: another process has it."""
        self._on_fault(fault)
        self.is_replaced = True

    def close(self) -> None:
        """Give back what the process holds; the log stays as it is."""
        self._vitals.stop()
        with contextlib.suppress(Exception):
            self._servers.stop()
        with contextlib.suppress(OverflowError):  # it writes a line to the log
            if self._scheduler.running:
                self._scheduler.shutdown(wait=False)
        self._alert_command.close()
        if self._anchors is not None:
            self._anchors.close()
        if self._taken.beat is not None:
            self._taken.beat.stop()
        if not self._failed:
            self._journal.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node in this process; its exit code."""
    given, environment = _parse(arguments), dict(os.environ)
    _log_to_stderr(None, form_of(""), given.node or "")
    for number in _STOPPING:
        signal.signal(number, _end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is known where the log lies
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    keep_freed_memory()
    try:
        compose.clock_ms.check()
        config = load(given.config)
        node = config.node(given.node)
        form = os.environ[FORMAT_VARIABLE] = form_of(node.log_format)
        os.environ[PAYLOADS_VARIABLE] = "1" if node.log_payloads else ""
        output = _log_to_stderr(node.log_level, form, node.name, node.log_syslog)
        own_log = OwnLog(node, output, partial(_level_of, config.path, node.name))
        own_log.start()
        if has_secrets(config, node) and not node.allow_debugger:
            keep_memory_private()
        return _run(config, node, own_log, given, environment)
    except _Ended:
        log.warning("the process was told to stop before the node was ready: it ends")
        return 0
    except (HmsError, OverflowError) as fault:
        error = _known(fault)
        if not isinstance(error, HmsError):
            raise
        _say("boot_failed", str(error))
        if given.ready_fd is not None:
            with contextlib.suppress(OSError):
                tell_failed(given.ready_fd, str(error))
        return 1


def _end(number: int, _frame: object) -> None:
    """A second signal ends it where it stands."""
    signal.signal(number, signal.SIG_DFL)
    raise _Ended


def _run(
    config: Config,
    node: Node,
    own_log: OwnLog,
    given: argparse.Namespace,
    environment: dict[str, str],
) -> int:
    """Wait for the store, run the node on it, and begin anew where it is to follow from then on."""
    taken = take_store(config, node, given.ready_fd, waits=given.standby)
    start = "WARM" if taken.has_waited else given.start  # whatever else was said
    process = NodeProcess(config, taken, start, own_log)
    stands_by = node.replica is not None or given.standby
    code, damage = 1, None
    try:
        code = process.run(given.ready_fd if not taken.has_waited else None)
    except StoreCorrupt as fault:
        if node.replica is None:
            raise
        damage = fault
    except (StoreFenced, LeadershipLost) as fault:
        if not stands_by and not process.is_replaced:
            raise
        process.replaced(fault)  # who watches the lease may be about to say so, or said it earlier
    finally:
        process.close()
    if damage is not None:
        _repair(node, damage)
    returns = process.is_replaced and stands_by
    if damage is None and not returns and not (process.moves_to and not code):
        return code
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # the next one may come in between
    if process.is_told_to_stop:
        return code
    if returns:
        log.warning("node %s begins anew, and stands by", node.name)
    return _follow(given, environment, process.taken_ready_fd())


def _repair(node: Node, fault: StoreCorrupt) -> None:
    """A replica whose log is damaged leads no more: it gets from another one what it lacks."""
    from hms.boot.replicating import note_damage  # noqa: PLC0415 - a node alone does not pay for it

    _say("replica_damaged", f"this replica cannot lead: {fault}")
    note_damage(node, fault)


def _follow(given: argparse.Namespace, environment: dict[str, str], ready_fd: int | None) -> int:
    """Begin anew as one that follows, in this process: its supervisor sees no end."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # stays so for the new program: else it would end
    words = [sys.executable, "-P", "-m", "hms.boot.node", "--config", given.config]
    words += ["--node", given.node] if given.node else []
    words += ["--standby"] if given.standby else []
    words += [] if ready_fd is None else ["--ready-fd", str(ready_fd)]
    os.execve(words[0], words, environment)  # noqa: S606 - this interpreter, its own words
    return 1


def _known(fault: BaseException) -> BaseException:
    """The fault, or why it came: with a clock that nobody can read anything overflows."""
    if isinstance(fault, OverflowError):
        try:
            compose.clock_ms.check()
        except HmsError as error:
            return error
    return fault


def _say(event: str, text: str, fault: BaseException | None = None) -> None:
    """Into the log; without the time when no clock tells it."""
    try:
        log.critical(text, exc_info=fault, extra={"event": event})
    except OverflowError:
        sys.stderr.write(f"CRITICAL {log.name} {text}\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m hms.boot.node")
    parser.add_argument("--config", required=True)
    parser.add_argument("--node")
    boot = parser.add_mutually_exclusive_group()
    boot.add_argument("--warm", dest="start", action="store_const", const="WARM")
    boot.add_argument("--cold", dest="start", action="store_const", const="COLD")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    return parser.parse_args(arguments)


def _log_to_stderr(
    level: str | None, form: str, node: str = "", also_syslog: bool = False
) -> LogOutput:
    output, about = LogOutput(), {"node": node, "boot": os.urandom(4).hex()}
    output.setFormatter(make_formatter(form, about))
    outputs: list[logging.Handler] = [output]
    if also_syslog:
        outputs.append(SyslogOutput())
        outputs[-1].setFormatter(JsonLines(about) if form == "JSON" else TextLines(JOURNAL_TEXT))
    logging.basicConfig(level=level or "INFO", handlers=outputs, force=True)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    return output


def _level_of(config: Path, name: str) -> str | None:
    """The level that is configured now; None when that cannot be read, which the log tells."""
    try:
        return load(config).node(name).log_level
    except HmsError as fault:
        log.warning("log_level stays as it is: %s", fault)
        return None


if __name__ == "__main__":
    code = main()
    for handler in logging.getLogger().handlers:
        handler.flush()
    sys.stderr.flush()
    os._exit(code)  # a stuck worker must not keep a node that has stopped
