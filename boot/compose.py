"""From a checked configuration to what the parts of a node are told."""

import time
import zlib
from importlib.metadata import PackageNotFoundError, version

from boot.config import Config, Node
from hms.engine.settings import DestinationSettings, EngineSettings
from tpmon.broker import Identity
from tpmon.gateway import GatewayLimits
from tpmon.monitor import Monitor
from tpmon.protocol.structures import Limits

FRAME_ROOM_BYTES = 1 << 20
"""A frame may be so much larger than the largest message: other messages packed with it."""
PENDING_BYTES_PER_PEER = 64 << 20
PEERS_MAX = 10_000


def node_uid(config: Config, node: Node) -> int:
    """A number that names the node in its log and to its clients."""
    name = f"{config.domain.name}/{node.name}".encode()
    return zlib.crc32(name) << 8 | node.group.hmsindex


def hms_version() -> str:
    """The version that is installed, "source" when none is."""
    try:
        return version("hybrid-messaging")
    except PackageNotFoundError:
        return "source"


def clock_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def engine_settings(config: Config, node: Node) -> EngineSettings:
    """What the engine is told."""
    queues = [
        DestinationSettings(
            "queue",
            queue.name,
            None if queue.boot is None else queue.boot == "WARM",
            queue.redelivery_limit,
            queue.dead_letter,
            queue.max_messages,
        )
        for queue in config.queues_of(node)
    ]
    topics = [
        DestinationSettings(
            "topic",
            topic.name,
            None if topic.boot is None else topic.boot == "WARM",
            topic.redelivery_limit,
        )
        for topic in config.topics_of(node)
    ]
    return EngineSettings(
        node_index=node.group.hmsindex,
        is_warm=node.boot == "WARM",
        redelivery_limit=node.redelivery_limit,
        memory_bytes_max=node.max_memory_bytes,
        message_bytes_max=node.max_message_bytes,
        transaction_bytes_max=node.max_transaction_bytes,
        sessions_max=node.maxsession,
        consumers_max=node.max_consumers,
        prefetch_max=node.prefetch_max,
        frames_in_flight_max=node.max_requests,
        destinations=(*queues, *topics),
    )


def monitor(config: Config) -> Monitor:
    """The node's monitor. Its calls' numbers begin with the time: a server that answers a call of
    the node's last life must not hit one of this."""
    limits = {s.name: int(s.timeout_s * 1000) for s in config.services.values() if s.timeout_s}
    return Monitor(clock_ms() << 16, limits)


def gateway_limits(node: Node) -> GatewayLimits:
    """What the gateway is told."""
    return GatewayLimits(
        frame_bytes_max=node.max_message_bytes + FRAME_ROOM_BYTES,
        peers_max=PEERS_MAX,
        heartbeat_s=node.heartbeat_s,
        pending_bytes_per_peer=PENDING_BYTES_PER_PEER + node.max_message_bytes,
    )


def identity(config: Config, node: Node) -> Identity:
    """What the WELCOME tells."""
    limits = Limits(
        node.max_message_bytes,
        node.max_message_bytes + FRAME_ROOM_BYTES,
        node.max_requests,
        node.prefetch_max,
        node.heartbeat_s,
    )
    return Identity(node.name, node_uid(config, node), limits, hms_version())
