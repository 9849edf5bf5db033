"""What operators ask of the cluster: its status, and to drain a node."""

from collections.abc import Callable
from typing import Any

from hms.engine.cluster.cluster import Cluster
from hms.engine.cluster.demand import figures_of
from hms.engine.effects import Effects
from hms.engine.state import State
from hms.errors.catalogue import NotInCluster
from hms.wire import operations as ops

PREFIX = "cluster."
Forwarding = ops.MoveMessages | ops.ReturnLetters


def operate(state: State, cluster: Cluster | None, verb: str, asked: ops.Operation) -> Any:
    """The answer to an operation, as plain data."""
    if cluster is None:
        raise NotInCluster(what=verb.replace(".", " "))
    return _OPERATIONS[verb](state, cluster, asked)


def forward(cluster: Cluster | None, asked: Forwarding, fx: Effects) -> Any:
    """message.move and dlq.return to a queue of another node."""
    if cluster is None:
        raise NotInCluster(what=f"node {asked.node}")
    peer = cluster.node(asked.node)
    if isinstance(asked, ops.MoveMessages):
        return cluster.forwards.move(peer, asked, fx)
    return cluster.forwards.send_back(peer, asked, fx)


def show_forwarded(cluster: Cluster | None, asked: ops.ForwardedMessages) -> Any:
    """What of a place is on its way to other nodes, and why messages came back."""
    if cluster is None:
        raise NotInCluster(what="forwarded messages")
    return cluster.forwards.show(asked)


def _status(state: State, cluster: Cluster, _: ops.Nothing) -> dict[str, Any]:
    moves = state.moves
    return {
        "index": state.settings.node_index,
        "life": f"{moves.life}.{moves.incarnation}",
        "config_master": cluster.config_master,
        "is_drained": cluster.is_drained,
        "left": cluster.left(),
        "undecided": len(moves.undecided),
        "members": [_member(state, cluster, index) for index in sorted(cluster.peers)],
        "queues": [_queue(state, cluster, name) for name in sorted(state.global_queues)],
        "not_done": [
            {"kind": kind, "name": name, "reason": reason}
            for (kind, name), reason in sorted(cluster.directory.faults.items())
        ],
        **cluster.describe_links(),
    }


def move_figures(state: State, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Of each other node, by its name: what was moved to and from it, and what it was offered and
    has not answered, since when."""
    found = {}
    for index, peer in cluster.peers.items():
        offers = state.moves.peer(index).offers.values()
        oldest_ms = min((one.said_ms for one in offers), default=state.now_ms)
        found[peer.name] = {
            "moved_in": peer.tally.moved_in,
            "moved_out": peer.tally.moved_out,
            "unconfirmed": sum(len(one.messages) for one in offers),
            "lag_s": max(0, state.now_ms - oldest_ms) / 1000,
        }
    return found


def _member(state: State, cluster: Cluster, index: int) -> dict[str, Any]:
    peer, moves = cluster.peers[index], state.moves.peer(index)
    audit_number, audit_head = cluster.audits.of.get(index, (0, b""))
    oldest_ms = min((o.said_ms for o in moves.offers.values()), default=state.now_ms)
    return {
        "node": peer.name,
        "index": index,
        "is_up": peer.is_up,
        "is_drained": peer.is_drained,
        "offers": len(moves.offers),
        "offered": sum(len(o.messages) for o in moves.offers.values()),
        "forwarded": cluster.forwards.waiting_for(index),
        "lag_ms": state.now_ms - oldest_ms,
        "moved_in": peer.tally.moved_in,
        "moved_out": peer.tally.moved_out,
        "refused": peer.tally.refused,
        "asked": peer.tally.asked,
        "faults": peer.tally.faults,
        "audit_number": audit_number,
        "audit_hash": audit_head.hex(),
        "last_error": peer.last_error,
    }


def _queue(state: State, cluster: Cluster, name: str) -> dict[str, Any]:
    queue = state.queues[name]
    own = figures_of(queue)
    counters = queue.line.counters
    found: dict[str, Any] = {
        "name": name,
        "length": own.length,
        "consumers": own.consumers,
        "moved_in": counters.moved_in,
        "moved_out": counters.moved_out,
    }
    found["elsewhere"] = {
        peer.name: {"length": told.length, "consumers": told.consumers}
        for peer in cluster.peers.values()
        if peer.is_up and (told := peer.figures.get(name)) is not None
    }
    return found


def _drain(_: State, cluster: Cluster, asked: ops.DrainNode) -> dict[str, Any]:
    if not asked.is_on:
        cluster.resume()
        return {"is_drained": False, "left": cluster.left()}
    return {"is_drained": True, "left": cluster.drain()}


_OPERATIONS: dict[str, Callable[[State, Cluster, Any], Any]] = {
    "cluster.status": _status,
    "cluster.drain": _drain,
}
