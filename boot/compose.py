"""From a checked configuration to what the parts of a node are told."""

import grp
import os
import re
import zlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from hms.boot.calendar import CronCalendar
from hms.boot.clock import EvenClock
from hms.boot.clusters import cluster_settings
from hms.boot.descriptors import connections_max
from hms.boot.entries import Config, Node, Queue, Subscription, Topic
from hms.boot.orders import order_of, sort_settings
from hms.boot.sections import engine_settings as engine_settings_of
from hms.boot.sizes import definitions_bytes_max, frame_bytes_max
from hms.engine.flow.destination_control import LimitBehavior, Limits
from hms.engine.settings import (
    REPLAY_QUEUE,
    DestinationSettings,
    EngineSettings,
    SubscriptionSettings,
)
from hms.errors.catalogue import InvalidArgument, NotPrimary
from hms.server.broker import Identity
from hms.server.byte_ledger import Ledger
from hms.server.configured_listeners import Declared
from hms.server.gateway import GatewayLimits
from hms.server.resource_managers import ResourceManagers
from hms.store.journal.segment_manager import LogLimits
from hms.wire import structures as wire
from tpmon.scheduling.call_scheduler import CALL_BYTES_WAITING_MAX
from tpmon.scheduling.monitor import Monitor, Rules

PENDING_BYTES_PER_PEER = 64 << 20
REPLAY_RUNS = DestinationSettings("queue", REPLAY_QUEUE, redelivery_limit=-1)
"""How far replays have come: a message each, which must never be taken for a dead letter."""


def node_uid(config: Config, node: Node) -> int:
    """A number that names the node in its log and to its clients."""
    return uid_of(config.domain.name, node.name, node.group.hmsindex)


def uid_of(domain: str, node: str, index: int) -> int:
    """The same, of the three of which it is made."""
    return zlib.crc32(f"{domain}/{node}".encode()) << 8 | index


def hms_version() -> str:
    """The version that is installed, "source" when none is."""
    try:
        return version("hybrid-messaging")
    except PackageNotFoundError:
        return "source"


def release() -> tuple[int, int, int]:
    """The same in numbers, zeros when it has none."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", hms_version())
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


clock_ms = EvenClock()
"""Milliseconds since 1970 UTC."""


def engine_settings(config: Config, node: Node) -> EngineSettings:
    """What the engine is told."""
    places: list[Queue | Topic] = [*config.queues_of(node), *config.topics_of(node)]
    return EngineSettings(
        **engine_settings_of(node),
        node_index=node.group.hmsindex,
        is_warm=node.boot == "WARM",
        keeps_temporary=node.replica is not None or node.shared,
        calendar=CronCalendar(),
        limits=Limits(
            node.max_messages,
            node.max_bytes,
            producers_max=node.max_producers,
            behavior=LimitBehavior(node.limit_behavior),
        ),
        definitions_bytes_max=definitions_bytes_max(node),
        destinations=(*map(_destination, places), REPLAY_RUNS),
        subscriptions=tuple(map(_subscription, config.subscriptions_of(node))),
        cluster=cluster_settings(config, node),
    )


def _subscription(one: Subscription) -> SubscriptionSettings:
    return SubscriptionSettings(one.name, **engine_settings_of(one), sort=sort_settings(one))


def _destination(place: Queue | Topic) -> DestinationSettings:
    return DestinationSettings(
        **engine_settings_of(place),
        **(order_of(place) if isinstance(place, Queue) else {}),
        kind="queue" if isinstance(place, Queue) else "topic",
        name=place.name,
        is_warm=None if place.boot is None else place.boot == "WARM",
    )


def monitor(config: Config, node: Node) -> Monitor:
    """The node's monitor."""
    rules = {
        one.name: Rules(
            one.prio,
            round(one.timeout_s * 1000),
            round(one.blocktime_s * 1000),
            one.concurrency,
            one.autotran,
        )
        for one in config.services.values()
    }
    calls_bytes_max = min(CALL_BYTES_WAITING_MAX, node.max_memory_bytes // 4)
    calls_bytes_max = max(node.max_message_bytes, calls_bytes_max)
    return Monitor(1, rules, round(node.blocktime * 1000), calls_bytes_max, node.name)


def first_call(boot: bytes) -> int:
    """The number of a boot's first call, from the random number that it has in the log: a server
    that answers a call of the node's last life must not hit one of this, whatever the clock says.
    """
    return int.from_bytes(boot[:5], "big") << 22 | 1


def resources(config: Config, node: Node) -> ResourceManagers:
    """The resource managers, as clients learn them."""
    definitions = [
        {"name": one.name, "kind": one.kind, "open": one.open, "password": one.password or ""}
        for one in config.resources.values()
    ]
    return ResourceManagers(definitions, node.recovery_interval_s)


def declared(config: Config, node: Node) -> list[Declared]:
    """The listeners that the configuration has."""
    return [
        Declared(queue.name, queue.listener, queue.listener_sessions)
        for queue in config.queues_of(node)
        if queue.listener
    ]


def log_limits(node: Node) -> LogLimits:
    """What the log and its history may take."""
    return LogLimits(
        node.max_log_bytes,
        node.history_bytes,
        node.history_age_s,
        is_archive_required=node.archive == "REQUIRED",
        audit_keep_s=node.audit_keep_s,
    )


def gateway_limits(node: Node, descriptors: int = 1 << 20) -> GatewayLimits:
    """What the gateway is told; descriptors: how many the process may have."""
    return GatewayLimits(
        frame_bytes_max=frame_bytes_max(node.max_message_bytes, node.segment_bytes),
        peers_max=connections_max(node.max_connections, descriptors),
        heartbeat_s=node.heartbeat_s,
        pending_bytes_per_peer=PENDING_BYTES_PER_PEER + node.max_message_bytes,
        ipc_mode=int(node.ipc_mode, 8),
        ipc_gid=_gid(node.ipc_group),
        peers_per_address_max=node.max_connections_per_address,
    )


def _gid(group: str | None) -> int:
    """The number of a group to whom the node may give a file, -1 for none; InvalidArgument."""
    if group is None:
        return -1
    try:
        found = grp.getgrnam(group).gr_gid
    except KeyError as fault:
        detail = f"this machine has no group {group!r}"
        raise InvalidArgument(what="ipc_group", detail=detail) from fault
    if os.geteuid() and found not in (os.getegid(), *os.getgroups()):
        detail = f"the user of the node is not in the group {group!r}"
        raise InvalidArgument(what="ipc_group", detail=detail)
    return found


def not_primary(config: Config, node: Node, primary: str, epoch: int) -> NotPrimary:
    """What clients are told by a replica that does not lead; primary: who does, "" for nobody."""
    addresses = (config.replicas[primary].listen if primary in config.replicas else None) or ()
    told = {"primary": primary or "nobody", "addresses": " ".join(addresses)}
    return NotPrimary(replica=node.replica or "", node=node.name, epoch=epoch, **told)


def ledger(node: Node, engine_bytes: Callable[[], int]) -> Ledger:
    """What peers may have together."""
    limits = gateway_limits(node)
    return Ledger(
        limits.frame_bytes_max,
        node.max_memory_bytes,
        limits.pending_bytes_per_peer + limits.unread_bytes_per_peer,
        engine_bytes,
    )


def identity(config: Config, node: Node, epoch: int = 0) -> Identity:
    """What the WELCOME tells; epoch: of a primary of copies."""
    limits = wire.Limits(
        node.max_message_bytes,
        frame_bytes_max(node.max_message_bytes, node.segment_bytes),
        node.max_requests,
        node.prefetch_max,
        node.heartbeat_s,
        min(node.prefetch_bytes, node.prefetch_bytes_max),
        node.prefetch_bytes_max,
        transaction_idle_s=node.transaction_idle_s,
        takes_why=True,
    )
    replicas = [address for one in config.replicas_of(node) for address in one.listen or ()]
    idempotent = [one.name for one in config.services.values() if one.idempotent]
    name, uid = node.name, node_uid(config, node)
    return Identity(name, uid, limits, hms_version(), epoch, replicas, idempotent)
