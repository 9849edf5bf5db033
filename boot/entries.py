"""The entries of a loaded configuration.

Attributes are the file's keys in lower case; sizes are in bytes, paths absolute.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hms.boot.known_topics import Known
from hms.errors.catalogue import ConfigError


@dataclass(frozen=True, slots=True)
class Domain:
    """The whole."""

    name: str
    maxsession: int
    config_master: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A server group; svgtype is HMS (the broker) or TMAX (application servers)."""

    name: str
    nodename: str
    svgtype: str
    hmsindex: int
    hmsmaxthr: int
    hmsmaxdbthr: int
    hmsport: int | None = None
    link_host: str = "127.0.0.1"
    hmsheartbeat: float = 10
    hmsgqint: float = 5
    link_key_file: Path | None = None
    link_public_key: str | None = None

    @property
    def link_address(self) -> str:
        """Where other nodes find the node."""
        host = f"[{self.link_host}]" if ":" in self.link_host else self.link_host
        return f"tcp://{host}:{self.hmsport}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Sizes are in bytes; group is its HMS group."""

    name: str
    group: Group
    listen: tuple[str, ...]
    ipc_mode: str
    store: Path
    database: str | None
    database_password: str | None
    table_prefix: str | None
    database_lease_s: float
    database_retry_s: float
    runtime: Path
    boot: str
    maxsession: int
    heartbeat_s: float
    max_message_bytes: int
    max_transaction_bytes: int
    transaction_idle_s: float
    segment_bytes: int
    max_log_bytes: int
    history_bytes: int
    history_age_s: float
    archive: str
    abandoned_after_s: float
    max_memory_bytes: int
    max_pending_bytes: int
    max_paged_messages: int
    max_messages: int
    max_bytes: int
    max_producers: int
    limit_behavior: str
    flow_control_s: float
    max_blocked_bytes: int
    auto_destinations: bool
    auto_idle_s: float
    open_topics: bool
    strict_topics: bool
    topic_life_s: float
    max_topics: int
    max_topic_length: int
    max_topic_levels: int
    max_retained: int
    max_retained_bytes: int
    max_requests: int
    max_connections: int
    max_consumers: int
    max_schedules: int
    max_file_bytes: int
    file_life_s: float
    blocktime: float
    prefetch_max: int
    prefetch_bytes: int
    prefetch_bytes_max: int
    max_selectors: int
    redelivery_limit: int
    recovery_interval_s: float
    log_file: Path
    log_level: str


@dataclass(frozen=True, slots=True)
class Server:
    """Processes that run the services of a module."""

    name: str
    module: str
    svgname: str | None
    min: int
    max: int
    python_path: tuple[Path, ...]
    restart_delay_s: float
    restart_delay_max_s: float
    maxrstart: int
    gperiod: int
    idle_s: float
    environment: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Service:
    """What holds for one service; 0 sets no limit of its own."""

    name: str
    timeout_s: float
    blocktime_s: float
    prio: int
    concurrency: int
    autotran: bool


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource manager; password: where the secret is."""

    name: str
    kind: str
    open: str
    password: str | None
    last_resource: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue; what is None is as the node has it. max_messages 0: no limit of its own."""

    name: str
    svgname: str | None
    boot: str | None
    redelivery_limit: int | None
    redelivery_delay_s: float
    dead_letter: str
    expired_to: str
    max_messages: int
    max_bytes: int
    max_message_bytes: int
    max_producers: int
    limit_behavior: str
    export_name: str
    max_active_consumers: int
    max_backup_consumers: int
    listener: str
    listener_sessions: int
    global_: str = "N"
    gqthr: int = 100
    gqmaxreq: int = 1000
    gqfull: int = 10_000
    delivery: str = "EVERYWHERE"
    sort_key: str = ""
    sort_type: str = "STRING"
    sort_direction: str = "ASCENDING"
    message_group: str = "PASS"
    group_expiry_s: float = -1

    def on(self, node: Node | None) -> "Queue":
        """The same with what the node decides filled in."""
        return self if node is None else replace(self, **_from_node(self, node))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; what is None is as the node has it. All of it holds for its subscriptions."""

    name: str
    svgname: str | None
    boot: str | None
    redelivery_limit: int | None
    redelivery_delay_s: float
    dead_letter: str
    expired_to: str
    max_messages: int
    max_bytes: int
    max_message_bytes: int
    max_producers: int
    limit_behavior: str
    export_name: str
    topic_string: str | None
    persistent_delivery: str | None
    non_persistent_delivery: str | None
    global_: str = "N"

    def on(self, node: Node | None) -> "Topic":
        """The same with what the node decides filled in."""
        return self if node is None else replace(self, **_from_node(self, node))


def _from_node(place: Queue | Topic, node: Node) -> dict[str, Any]:
    limit = place.redelivery_limit
    return {
        "boot": place.boot or node.boot,
        "redelivery_limit": node.redelivery_limit if limit is None else limit,
    }


@dataclass(frozen=True, slots=True)
class Subscription:
    """A durable subscription that exists from boot; svgname None: wherever its topic lives."""

    name: str
    topic: str
    selector: str
    svgname: str | None
    scheme: str
    queue: str
    correlation_id: str
    retained: str
    sort_key: str = ""
    sort_type: str = "STRING"
    sort_direction: str = "ASCENDING"


@dataclass(frozen=True, slots=True)
class Config:
    """All of hms.conf; every mapping is by name, in the order of the file."""

    domain: Domain
    nodes: dict[str, Node]
    groups: dict[str, Group]
    servers: dict[str, Server]
    services: dict[str, Service]
    queues: dict[str, Queue]
    topics: dict[str, Topic]
    subscriptions: dict[str, Subscription]
    path: Path
    resources: dict[str, Resource] = field(default_factory=dict)

    def node(self, name: str | None = None) -> Node:
        """The node of that name, or the first one."""
        if name is None:
            return next(iter(self.nodes.values()))
        if name not in self.nodes:
            known = ", ".join(self.nodes)
            raise ConfigError(report=f"{self.path} has no node {name}; it has {known}")
        return self.nodes[name]

    def queues_of(self, node: Node) -> list[Queue]:
        """The queues that live on a node."""
        return [queue for queue in self.queues.values() if self._is_on(node, queue.svgname)]

    def topics_of(self, node: Node) -> list[Topic]:
        """The topics that live on a node."""
        return [topic for topic in self.topics.values() if self._is_on(node, topic.svgname)]

    def subscriptions_of(self, node: Node) -> list[Subscription]:
        """The configured subscriptions that exist on a node."""
        known = Known({t.name: t.topic_string or t.name for t in self.topics_of(node)})
        found = [one for one in self.subscriptions.values() if self._is_on(node, one.svgname)]
        return [one for one in found if node.open_topics or known.has(one.topic, one.scheme)]

    def servers_of(self, node: Node) -> list[Server]:
        """The servers that a node runs."""
        return [server for server in self.servers.values() if self._is_on(node, server.svgname)]

    def _is_on(self, node: Node, svgname: str | None) -> bool:
        return svgname is None or self.groups[svgname].nodename == node.name
