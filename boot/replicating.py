"""A node with replicas: which copy this machine has, who decides, and how it comes to lead.

The copy follows until it leads; then the node process reads its log as after a crash.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import structs

from hms.boot import compose
from hms.boot.config import load
from hms.boot.entries import Config, Node
from hms.boot.guarding import Guarding
from hms.boot.hot_standby import HotStandby
from hms.boot.monitoring.standby_figures import CopyFile
from hms.boot.recovering import Applied, make_engine
from hms.boot.secrets_of import password_of
from hms.errors.catalogue import (
    ArbiterUnavailable,
    LinkKeyError,
    ReplicaAddressInUse,
    ReplicasBegun,
    ReplicasNotBegun,
    StoreCorrupt,
)
from hms.errors.tree import HmsError
from hms.server.arbiter import Arbiter, Configuration, Member, Standing
from hms.server.arbiter.etcd import EtcdArbiter, Tls
from hms.server.arbiter.postgresql import PostgresqlArbiter
from hms.server.links.keys import read_key_file
from hms.server.replicas.candidate import Candidate
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.copy_state import (
    CopyState,
    begin_copy,
    read_state,
    state_of,
)
from hms.server.replicas.damage import damage_of, note_damages
from hms.server.replicas.follower import NOTHING_APPLIED, Follower, Won
from hms.server.replicas.frames import Envelope
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Held, Peer, PrimarySocket, now_s
from hms.server.replicas.primary import Primary
from hms.server.replicas.promises import Lead
from hms.server.replicas.replica_disk import FilesDisk, ReplicaDisk
from hms.server.replicas.scrubbing import Scrubbing
from hms.server.replicas.standby_door import StandbyDoor
from hms.store.journal import Journal
from hms.store.journal.confirmed_place import NOTHING, begin_place, confirmed_place
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.lock import DirectoryLock
from hms.store.journal.prepared_spare import PreparedSpare
from hms.store.journal.reader import list_segments

__all__ = [
    "Led",
    "arbiter_password",
    "arbiter_tls",
    "await_found",
    "await_leader",
    "await_members",
    "begin_replicas",
    "endpoint_of",
    "group_of",
    "lead",
    "make_arbiter",
    "note_damage",
    "peers_now",
]


log = logging.getLogger("hms.replicas")

Found = TypeVar("Found")
LOOK_AGAIN_S: Final = 1.0
"""What an arbiter tells of changes is a hint, which may not come."""


class Led(NamedTuple):
    """What a copy has that leads."""

    store: Journal
    primary: Primary
    files_disk: FilesDisk
    scrubbing: Scrubbing
    applied: Applied | None = None
    leave_door: Callable[[], None] = lambda: None
    """The node is about to listen itself."""

    def describe(self) -> dict[str, Any]:
        """For the status; from memory."""
        about = self.primary.describe() | self.scrubbing.describe()
        return {**about, "confirmed_lsn": self.store.durable_lsn}


_Won = tuple[Won, PrimarySocket, Group, Mapping[str, tuple[bytes, Envelope]]]


def make_arbiter(config: Config, node: Node) -> Arbiter:
    """Of a node; nothing is asked yet."""
    said = config.arbiter
    assert said is not None, "the configuration was checked"
    domain, name = config.domain.name, node.name
    if said.kind == "postgresql":
        password = arbiter_password(config)
        return PostgresqlArbiter(said.endpoints[0], domain, name, said.lease_s, password)
    tls = arbiter_tls(config)
    return EtcdArbiter(said.endpoints, domain, name, said.lease_s, said.prefix, tls)


def arbiter_password(config: Config) -> str | None:
    """PostgreSQL's, as [arbiter] names it. ArbiterUnavailable."""
    said = config.arbiter
    assert said is not None, "the configuration was checked"
    return password_of(
        said.password,
        config.path.parent,
        "password",
        lambda why: ArbiterUnavailable(endpoint=said.endpoints[0], detail=why),
    )


def arbiter_tls(config: Config) -> Tls:
    """Files for etcd, as [arbiter] names them."""
    said = config.arbiter
    assert said is not None, "the configuration was checked"
    files = (said.ca_file, said.cert_file, said.key_file)
    tls = tuple(None if file is None else str(file) for file in files)
    return tls[0], tls[1], tls[2]


def lead(
    config: Config, node: Node, waits: Callable[[str], None], pauses: Callable[[], None]
) -> Led:
    """Follow until this copy leads; returns with its log opened, in the epoch that was granted."""
    with ExitStack() as until_listening, ExitStack() as until_opened:
        arbiter, group = make_arbiter(config, node), group_of(config, node)
        REAL_DISK.make_dir(node.store)
        lock = DirectoryLock(REAL_DISK, node.store)
        try:
            state = _state(arbiter, group, config, node)
            about = group.me, state.copy_id, state.starts + 1, state.promised, state.log
            checks_s = node.failover_check_count * node.failover_check_timeout_s
            leadership = Leadership(
                *about, group.lease_s, checks_s, is_async=group.me in group.asynchronous
            )
            until_opened.callback(Held(group).close)
            door = _door(config, node, leadership)
            until_listening.callback(door.close)
            scrubbing = Scrubbing(REAL_DISK, node.store, config.replicas[group.me].scrub_s)
            scrubbing.start()

            def stands_by(what: str) -> None:
                door.open()
                waits(what)

            def learn() -> Mapping[str, Peer]:
                return _learned(config, node, group.peers)

            hot = None
            if config.replicas[group.me].standby == "HOT":
                hot = HotStandby(REAL_DISK, node.store, lambda: make_engine(config, node))
            told = CopyFile(node)
            until_opened.callback(told.close)
            spare = PreparedSpare(node.store, node.segment_bytes)

            def looks() -> None:
                door.look()
                pauses()

            def tells(said: Mapping[str, Any]) -> None:
                door.look()
                told.tell(said)
                if said["is_in_sync"]:
                    spare.begin()

            follower = Follower(
                group,
                node.store,
                REAL_DISK,
                arbiter,
                leadership,
                state,
                stands_by,
                looks,
                limits=compose.log_limits(node),
                learn=learn,
                applies=NOTHING_APPLIED if hot is None else hot,
                tells=tells,
                machine_ms=compose.clock_ms.machine_ms,
            )
            about_us = node, arbiter, leadership, follower
            led = _won(group, learn, *about_us, stands_by, looks)
            applied = None if hot is None else hot.take(follower.copy.written)
            spare.end()
        except BaseException:
            with suppress(HmsError):
                arbiter.resign()  # an epoch may have been granted just now
            arbiter.close()
            raise
        finally:
            lock.release()
        store, primary = _opened(config, node, arbiter, leadership, led, spare)
        scrubbing.look()
        primary.on_stopped = Guarding(config, node, primary.epoch).stop
        until_listening.pop_all()
        return Led(store, primary, FilesDisk(primary), scrubbing, applied, door.close)


def _opened(
    config: Config,
    node: Node,
    arbiter: Arbiter,
    leadership: Leadership,
    led: _Won,
    spare: PreparedSpare,
) -> tuple[Journal, Primary]:
    """The log, in the epoch that was granted."""
    won, socket, group, came = led
    if (told_ms := won.node_ms(now_s())) is not None:
        compose.clock_ms.go_on_from(told_ms)
    primary = Primary(
        group,
        node.store,
        REAL_DISK,
        arbiter,
        leadership,
        won.configuration,
        socket,
        silent_since_s=won.silent_since_s,
        clock_ms=compose.clock_ms,
        came=came,
        took=won.took,
        machine_ms=compose.clock_ms.machine_ms,
    )
    try:
        primary.hold()
        return _store(config, node, primary, spare), primary
    except BaseException:
        primary.stop()
        raise


def note_damage(node: Node, fault: StoreCorrupt) -> None:
    """This copy's log is damaged: it is to follow one that is whole, and get what is damaged."""
    note_damages(REAL_DISK, node.store, [damage_of(fault)])


def _store(config: Config, node: Node, primary: Primary, spare: PreparedSpare) -> Journal:
    return Journal.open(
        node.store,
        segment_bytes=node.segment_bytes,
        node_uid=compose.node_uid(config, node),
        limits=compose.log_limits(node),
        disk=ReplicaDisk(primary),
        epoch=primary.epoch,
        release=compose.release(),
        reaches=confirmed_place(node.store) or NOTHING,
        is_zeros=spare.is_it,
    )


def _won(
    group: Group,
    learn: Callable[[], Mapping[str, Peer]],
    node: Node,
    arbiter: Arbiter,
    leadership: Leadership,
    follower: Follower,
    waits: Callable[[str], None],
    pauses: Callable[[], None],
) -> _Won:
    """An epoch that enough copies have promised, the group as it is then, and who has joined; until
    then this one follows."""
    while True:
        won = follower.run()
        group = structs.replace(group, peers=learn())
        try:
            socket = PrimarySocket(group)
        except ReplicaAddressInUse as fault:
            log.error("%s does not lead: %s", group.me, fault)  # noqa: TRY400
            with suppress(ArbiterUnavailable):
                arbiter.resign()
            leadership.gave_back(now_s())
            continue
        except BaseException:
            arbiter.resign()
            raise
        about = arbiter, leadership, won.configuration, socket
        candidate = Candidate(group, node.store, REAL_DISK, *about, copy=follower.copy)
        if candidate.promises.needed > 1:
            waits(f"the promises of {candidate.promises.needed} copies")
        try:
            outcome = candidate.run(pauses)
        except BaseException:
            with suppress(ArbiterUnavailable):
                arbiter.resign()
            socket.close()
            raise
        if isinstance(outcome, Lead):
            if len(outcome.by) > 1:  # those who promised were heard just now
                won.silent_since_s = now_s()
            if won.took is not None and won.took.cause != "BOOT":  # else it is no standby yet
                waits(f"the rest of its own log to be read: it leads in epoch {leadership.epoch}")
            return won, socket, group, candidate.came


def _door(config: Config, node: Node, leadership: Leadership) -> StandbyDoor:
    """What clients are told while this replica follows."""
    plain = [address for address in node.listen if address not in config.listeners]
    return StandbyDoor(
        plain,
        compose.gateway_limits(node),
        lambda: compose.not_primary(config, node, *leadership.leader),
        lambda: leadership.is_undecided,
    )


def begin_replicas(config: Config, node: Node) -> Configuration:
    """Make this machine's store the first copy, and tell the arbiter. ReplicasBegun."""
    arbiter = make_arbiter(config, node)
    group = group_of(config, node)
    try:
        _refuse_begun(arbiter, config, node)
        REAL_DISK.make_dir(node.store)
        lock = DirectoryLock(REAL_DISK, node.store)
        try:
            state = begin_copy(REAL_DISK, node.store, group.me)
            begin_place(REAL_DISK, node.store)
            epoch = max((one.epoch for one in list_segments(node.store)), default=0)
        finally:
            lock.release()
        first = Configuration(
            version=1,
            log=state.log,
            epoch=epoch,
            members=(Member(group.me, state.copy_id, state.starts),),
            copies_min=config.copies_min_of(node),
        )
        if not arbiter.begin(first):
            _refuse_begun(arbiter, config, node)
        return first
    finally:
        arbiter.close()


def await_leader(arbiter: Arbiter, after: int, timeout_s: float) -> Configuration | None:
    """The configuration when somebody leads in a later epoch; None when nobody does in time."""

    def look() -> Configuration | None:
        standing = arbiter.read()
        leader = None if standing is None else standing.leader
        is_led = leader is not None and leader.epoch > after
        return standing.configuration if standing is not None and is_led else None

    return await_found(arbiter, look, timeout_s)


def await_found(
    arbiter: Arbiter, look: Callable[[], Found | None], timeout_s: float
) -> Found | None:
    """What look() finds; None when it finds nothing in time."""
    changed = threading.Event()
    unwatch = arbiter.watch(changed.set)
    until = time.monotonic() + timeout_s
    try:
        while True:
            changed.clear()
            with suppress(ArbiterUnavailable):
                if (found := look()) is not None:
                    return found
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            changed.wait(min(left_s, LOOK_AGAIN_S))
    finally:
        unwatch()


def _refuse_begun(arbiter: Arbiter, config: Config, node: Node) -> None:
    standing = arbiter.read()
    if standing is not None:
        names = ", ".join(one.name for one in standing.configuration.members)
        raise ReplicasBegun(endpoint=endpoint_of(config), node=node.name, members=names)


def endpoint_of(config: Config) -> str:
    """What the arbiter is called in errors."""
    assert config.arbiter is not None, "the configuration was checked"
    return config.arbiter.endpoints[0].rpartition("@")[2]


def group_of(config: Config, node: Node) -> Group:
    """All replicas of a node, as this machine's one has them. LinkKeyError."""
    assert config.arbiter is not None, "the configuration was checked"
    assert node.replica is not None, "the configuration was checked"
    own = config.replicas[node.replica]
    keys = None if own.key_file is None else read_key_file(own.key_file)
    if (None if keys is None else keys.public.decode()) != own.public_key:
        detail = f"public_key of [replica.{own.name}] is not that of its key_file, {own.key_file}"
        raise LinkKeyError(detail=detail)
    peers = _peers(config, node)
    limits = Limits(
        config.copies_min_of(node),
        node.replica_timeout_s,
        node.replica_lost_s,
        is_all=node.confirm == "ALL",
    )
    lease_s, window_bytes = config.arbiter.lease_s, node.replica_window_bytes
    return Group(node.name, node.replica, peers, lease_s, limits, keys, window_bytes)


def _peers(config: Config, node: Node) -> dict[str, Peer]:
    return {
        one.name: Peer(one.name, one.address, one.public_key or "", one.mode == "ASYNC")
        for one in config.replicas_of(node)
    }


def peers_now(config: Config, node: Node) -> dict[str, Peer]:
    """All replicas of a node, as its hms.conf has them by now. ConfigError."""
    now = load(config.path)
    return _peers(now, now.node(node.name))


def _learned(config: Config, node: Node, known: Mapping[str, Peer]) -> Mapping[str, Peer]:
    """The same, for one that follows: an hms.conf that cannot be read adds nobody."""
    try:
        return {**known, **peers_now(config, node)}
    except HmsError as fault:
        log.warning("replicas that were added are not known: %s", fault)
        return known


def await_members(
    arbiter: Arbiter, is_so: Callable[[Configuration], bool], timeout_s: float
) -> Configuration | None:
    """The configuration when it is so; None when it is not in time."""

    def look() -> Configuration | None:
        standing = arbiter.read()
        is_there = standing is not None and is_so(standing.configuration)
        return standing.configuration if standing is not None and is_there else None

    return await_found(arbiter, look, timeout_s)


def _state(arbiter: Arbiter, group: Group, config: Config, node: Node) -> CopyState:
    """What this copy knows of itself; a new one asks the arbiter which log it is to get."""
    found = read_state(REAL_DISK, node.store, group.me)
    if found is None:
        log = _log(arbiter.read(), config, node)
    else:
        log = found.log
        with suppress(ArbiterUnavailable):
            _log(arbiter.read(), config, node)  # one that lost all it had is told as such
    return state_of(REAL_DISK, node.store, group.me, log)


def _log(standing: Standing | None, config: Config, node: Node) -> str:
    if standing is None:
        raise ReplicasNotBegun(endpoint=endpoint_of(config), node=node.name)
    return standing.configuration.log
