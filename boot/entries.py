"""A loaded configuration: what stands in each section of hms.conf, and what lives on a node."""

from dataclasses import dataclass, field
from pathlib import Path

from hms.boot.known_topics import Known
from hms.boot.sections import (
    Alerts,
    Arbiter,
    Domain,
    Group,
    LetterHandler,
    Listener,
    Node,
    Queue,
    Replica,
    Resource,
    Server,
    Service,
    Subscription,
    Topic,
)
from hms.errors.catalogue import ConfigError

__all__ = [
    "LETTERS",
    "Alerts",
    "Arbiter",
    "Config",
    "Domain",
    "Group",
    "LetterHandler",
    "Listener",
    "Node",
    "Queue",
    "Replica",
    "Resource",
    "Server",
    "Service",
    "Subscription",
    "Topic",
]

LETTERS = "_dlq."
"""Followed by the name of a [dlq.NAME]: the server that carries out its rules table."""


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
    listeners: dict[str, Listener] = field(default_factory=dict)
    alerts: Alerts = field(default_factory=Alerts)
    arbiter: Arbiter | None = None
    replicas: dict[str, Replica] = field(default_factory=dict)
    letter_handlers: dict[str, LetterHandler] = field(default_factory=dict)

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

    def policy_master_of(self, node: Node) -> str:
        """The other node where alone its users and roles are changed; "" when they are changed
        here."""
        master = self.domain.config_master
        is_shared = node.group.link_key_file is not None
        return master if master and master != node.name and is_shared else ""

    def replicas_of(self, node: Node) -> list[Replica]:
        """The copies of a node's log."""
        return [one for one in self.replicas.values() if one.nodename == node.name]

    def copies_min_of(self, node: Node) -> int:
        """The fewest copies with which a node confirms anything."""
        if node.copies_min is not None:
            return node.copies_min
        counting = [one for one in self.replicas_of(node) if one.mode == "SYNC"]
        return max(1, min(len(counting) - 1, 2))

    def servers_of(self, node: Node) -> list[Server]:
        """The servers that a node runs."""
        return [server for server in self.servers.values() if self._is_on(node, server.svgname)]

    def letter_handlers_of(self, node: Node) -> list[LetterHandler]:
        """The rules tables that a node has carried out."""
        every = self.letter_handlers.values()
        return [one for one in every if self._is_on(node, one.svgname)]

    def _is_on(self, node: Node, svgname: str | None) -> bool:
        return svgname is None or self.groups[svgname].nodename == node.name
