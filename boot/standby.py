"""A standby: waits until the store of its node is to be had, and takes it over.

A node with replicas follows its primary until it leads (replicating). A store in a shared directory
is had when the lock of its generation is free, or when its owner has been silent for lease_s; a
database store when the claim of the other node has ended. The node's time goes on as it ran at the
other machine (node_time). The node says "standby" to the process that started it, and a file beside
the pid file says what it waits for.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hms.boot import compose
from hms.boot.entries import Config, Node
from hms.boot.monitoring.notify import Notifier
from hms.boot.node_time import NodeTime
from hms.boot.ready import tell_standby
from hms.boot.recovering import Applied
from hms.boot.roles import forget_role, tell_role
from hms.boot.stores import is_passing, open_store
from hms.errors.catalogue import DatabaseUnavailable, StoreLocked
from hms.errors.tree import HmsError
from hms.server.replicas.orders import Ordered
from hms.store.interface import Store
from hms.store.journal.disk import PRIVATE_DISK, Disk
from hms.store.shared import (
    Generations,
    Heartbeat,
    check_layout,
    check_mount,
    fenced,
    generation_of,
    time_in,
)

__all__ = ["Taken", "take_store"]

log = logging.getLogger("hms.standby")

LOOK_S = 0.2
"""How often a standby looks."""


class Claim(Protocol):
    """What proves that the store is still ours; on_fenced is told once when it is not; on_blocked
    what a sync waits for, when it waits for other machines."""

    on_fenced: Callable[[BaseException], None]
    on_blocked: Callable[[str], None]

    def stop(self) -> None:
        """Give it up."""


class Taken(msgspec.Struct, frozen=True):
    """A store that is this node's now. node: with the folder where it lies; beat: of a shared
    directory, or of a replica that leads; has_waited: it stood by, and its parent process was told
    so; files_disk: where the files of messages are written; epoch, hand_over: of a replica that
    leads, and how another one is to, may_lead: whether it could, to_apply: how much of the log it
    has not applied, has_told: whether it said so within so many seconds
    (primary.py); readiness, sent_away_in: of a preferred one (failing_back); configurations: has
    each told that holds, and whether the lead was handed over; add, remove: have a replica count,
    or count no more; troubles: what is an alert; obeys: has what operators said at other machines
    done by that; applied: what of its log is applied already; check_format: raises while a copy
    cannot read a format of the log; leave_door: the node is about to listen where a replica that
    followed did; clocks: by how much those of other replicas' machines are ahead."""

    node: Node
    store: Store
    beat: Claim | None = None
    has_waited: bool = False
    files_disk: Disk = PRIVATE_DISK
    copies: Callable[[], dict[str, Any]] | None = None
    epoch: int = 0
    hand_over: Callable[[str], str] | None = None
    may_lead: Callable[[str], str] | None = None
    to_apply: Callable[[str], int | None] = lambda _name: None
    has_told: Callable[[str, float], bool] = lambda _name, _within_s: True
    readiness: Callable[[str], tuple[int, str]] | None = None
    sent_away_in: Callable[[str], int] = lambda _name: 0
    configurations: Callable[[Callable[[str, bool], None]], None] = lambda _told: None
    add: Callable[[str], None] | None = None
    remove: Callable[[str], None] | None = None
    troubles: Callable[[], dict[str, str]] = dict
    obeys: Callable[[Ordered], None] = lambda _ordered: None
    applied: Applied | None = None
    check_format: Callable[[int], None] = lambda _format: None
    leave_door: Callable[[], None] = lambda: None
    clocks: Callable[[], list[dict[str, Any]]] = list

    def why(self, fault: BaseException) -> BaseException:
        """The fault of a store, or that another one has it: then nothing else matters."""
        is_others = self.beat is not None and not self.node.store.is_dir()
        return fenced(self.node.store) if is_others else fault

    def facts(self) -> dict[str, Any]:
        """For the status: which generation of a shared directory it has, or which copies."""
        if self.copies is not None:
            return {"replication": self.copies()}
        number = generation_of(self.node.store)
        return {"generation": number} if number else {}


def take_store(config: Config, node: Node, ready_fd: int | None, *, waits: bool) -> Taken:
    """Open the store of a node; waits: until it is to be had, else StoreLocked says who has it."""
    told = _Told(node, ready_fd)
    try:
        if node.database is None:
            check_layout(node.store, is_shared=node.shared)
        if node.replica is not None:
            return _led(config, node, told)
        if node.shared and node.database is None:
            check_mount(node.store)
            return _shared(config, node, told, waits=waits)
        node_time = NodeTime()
        while True:
            try:
                store = open_store(config, node, lambda at_ms: node_time.saw(at_ms, at_ms))
                node_time.go_on(compose.clock_ms)
                return Taken(node, store, has_waited=told.has_waited)
            except StoreLocked as held:
                if not waits:
                    raise
                told.waits_for(f"process {held.fields['pid']}")
                told.pause()
            except DatabaseUnavailable as fault:
                if not (told.has_waited and is_passing(fault)):
                    raise
                told.waits_for(f"a database that does not answer: {fault.__cause__}")
                told.pause()
    finally:
        told.forget()


def _led(config: Config, node: Node, told: "_Told") -> Taken:
    from hms.boot import replicating  # noqa: PLC0415 - a node alone does not pay for it

    led = replicating.lead(config, node, told.waits_for, told.goes_on)
    primary = led.primary

    def add(name: str) -> None:
        primary.add(name, replicating.peers_now(config, node))

    may_lead = primary.may_lead, primary.to_apply, primary.has_told
    moves = primary.hand_over, *may_lead, primary.readiness, primary.sent_away_in
    more = primary.follow_configurations, add, primary.remove
    about = led.files_disk, led.describe, primary.epoch, *moves, *more
    last = primary.troubles, primary.orders.obey, led.applied, primary.check_format, led.leave_door
    return Taken(node, led.store, primary, told.has_waited, *about, *last, primary.clocks)


def _shared(config: Config, node: Node, told: "_Told", *, waits: bool) -> Taken:
    generations, node_time = Generations(node.store), NodeTime()
    seen, since = generations.look(), time.monotonic()
    silent_s = node.lease_s + node.failover_check_count * node.failover_check_timeout_s
    while True:
        if seen.beat:
            node_time.saw(seen.beat, time_in(seen.beat))
        folder = generations.claim_free(seen)
        may_wait = waits or not generations.is_locked(seen)
        if folder is None and may_wait and time.monotonic() - since >= silent_s:
            log.warning("the owner of %s has been silent for %g s", node.store, silent_s)
            folder = generations.claim(seen)
        if folder is not None:
            node_time.go_on(compose.clock_ms)  # before the first beat, which tells it
            taken = _settled(config, node, generations, folder)
            if taken is not None:
                return msgspec.structs.replace(taken, has_waited=told.has_waited)
        elif not may_wait:
            raise StoreLocked(path=str(node.store), pid=generations.holder(seen))
        else:
            if waits:
                told.waits_for(f"process {generations.holder(seen)}, generation {seen.generation}")
            told.pause()
        now = generations.look()
        if now != seen:
            seen, since = now, time.monotonic()


def _settled(config: Config, node: Node, generations: Generations, folder: Path) -> Taken | None:
    """The folder is ours, unless another one has taken it over again."""
    try:
        beat = Heartbeat(folder, node.lease_s, compose.clock_ms)
    except OSError:
        return None
    try:
        generations.settle(folder)
        own = msgspec.structs.replace(node, store=folder)
        return Taken(own, open_store(config, own), beat)
    except HmsError:
        beat.stop()
        if folder.is_dir():
            raise
        return None


class _Told:
    """Who waits, told once."""

    def __init__(self, node: Node, ready_fd: int | None) -> None:
        self._node, self._ready_fd = node, ready_fd
        self._notifier = Notifier(os.environ)
        self._said = ""
        self.has_waited = False

    def waits_for(self, what: str) -> None:
        """Say what is waited for, when it is another than before."""
        if what == self._said:
            return
        self._said = what
        node = self._node
        where = str(node.store) if node.database is None else node.database
        tell_role(node, what, where)
        self._notifier.say("READY=1", f"STATUS=stands by, waits for {what}")
        log.info("node %s stands by, waits for %s: %s", node.name, what, where)
        fd, self._ready_fd = self._ready_fd, None
        self.has_waited = True
        if fd is not None:
            tell_standby(fd)

    def forget(self) -> None:
        """It waits no longer."""
        self._notifier.close()
        with suppress(OSError):
            forget_role(self._node)

    def goes_on(self) -> None:
        """A supervisor that watches is told that this goes on."""
        self._notifier.say("WATCHDOG=1")

    def pause(self) -> None:
        """Until the next look."""
        self.goes_on()
        threading.Event().wait(LOOK_S)
