"""The links of a node process: made if it is in a cluster, fed by its lanes and its scheduler."""

import logging
from collections.abc import Callable, Hashable
from typing import Any

from hms.boot import compose
from hms.boot.clusters import link_settings
from hms.boot.descriptors import raise_limit
from hms.boot.entries import Config, Node
from hms.boot.link_keys import LinkKeys, note_key
from hms.engine.cluster.members import Change, Incarnation
from hms.engine.engine import Engine
from hms.errors.catalogue import LinkKeyError
from hms.server.broker import Broker
from hms.server.gateway import GatewayLimits
from hms.server.links.cluster_door import CLUSTER_TICK, Door, NodeKey
from hms.server.links.links import Links
from hms.server.refused_connections import RefusedConnections
from hms.workers.lanes import LanePool

log = logging.getLogger("hms.node")

OnKey = Callable[[str, str, str], None]
"""Of which node, what has become of its key, and the public key."""
TICKS_PER_INTERVAL = 5
TICK_S_MAX, TICK_S_MIN = 0.2, 0.02


class Linking:
    """What a node in a cluster has more than one that is alone."""

    def __init__(
        self,
        config: Config,
        node: Node,
        engine: Engine,
        broker: Broker,
        refused: RefusedConnections,
        on_key: OnKey,
    ) -> None:
        """refused: as Links; on_key: told of another key of this node, or of one that another node
        is going to show."""
        self._on_key = on_key
        assert engine.cluster is not None
        self._engine, self._broker = engine, broker
        self.lanes: LanePool
        self.ring: Callable[[], None] = lambda: None
        self.tick_s = max(TICK_S_MIN, min(TICK_S_MAX, node.group.hmsgqint / TICKS_PER_INTERVAL))
        self.links = Links(
            link_settings(config, node),
            on_word=self._on_word,
            on_change=self._on_change,
            wake=self._wake,
            on_key_learned=self._on_key_learned,
            refused=refused,
            clock_ms=compose.clock_ms,
        )
        self._file = node.group.link_key_file
        self._keys = {
            one.group.nodename: one.group.link_public_key or "" for one in config.nodes.values()
        }
        own = f"node:{node.name}"
        told = self.links.announce, self.links.rekey, lambda key: on_key(own, "link key", key)
        self.keys = LinkKeys(self._file, *told)
        self._door = Door(engine.cluster, broker.command, self.links.outbox.put_many)
        broker.releases.to_node = self._door.release
        broker.registry.members = self.links.clients
        engine.cluster.describe_links = self.links.describe

    def booted(self) -> None:
        """The log is read: this run of the node has its number."""
        moves = self._engine.state.moves
        self.links.life = Incarnation(moves.life, moves.incarnation)

    def turn(self, key: Hashable, items: list[Any]) -> None:
        """A turn of a lane, of a node or of a client; the rest stays in the list."""
        if isinstance(key, NodeKey):
            self._door.turn(key, items)
        else:
            self._broker.turn(key, items)

    def tick(self) -> None:
        """Several times a second."""
        self.lanes.put_many(NodeKey(0), [CLUSTER_TICK])

    def _wake(self) -> None:
        self.ring()

    def _on_word(self, index: int, items: list[tuple[Incarnation, bytes]]) -> bool:
        return self.lanes.put_many(NodeKey(index), items)

    def _on_key_learned(self, name: str, key: str) -> None:
        """A boot should know it too; a full disk does not keep a running node from it."""
        self._on_key(f"node:{name}", "link key learned", key)
        if self._file is None:
            return
        try:
            note_key(self._file, name, self._keys[name], key)
        except (OSError, LinkKeyError) as fault:
            log.error("the next key of node %s is not noted for a boot: %s", name, fault)  # noqa: TRY400

    def _on_change(self, change: Change) -> None:
        """Goes behind what the node said before; a full lane is no reason to miss it."""
        key = NodeKey(change.node)
        if not self.lanes.put_many(key, [change]):
            self.lanes.discard(key)
            self.lanes.put_many(key, [change])


def make_linking(
    config: Config,
    node: Node,
    engine: Engine,
    broker: Broker,
    refused: RefusedConnections,
    on_key: OnKey,
) -> Linking | None:
    """The links of a node; None when it is alone."""
    about = config, node, engine, broker, refused, on_key
    return None if engine.cluster is None else Linking(*about)


def gateway_limits(node: Node) -> GatewayLimits:
    """Those of hms.conf, as far as the machine has descriptors for them."""
    limits = compose.gateway_limits(node, raise_limit(node.max_connections))
    if limits.peers_max < node.max_connections:
        detail = "%d connections are taken, not %d: the limit of descriptors is too low"
        log.warning(detail, limits.peers_max, node.max_connections)
    return limits
