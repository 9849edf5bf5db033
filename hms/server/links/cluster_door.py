"""The door: what comes over the links goes to the engine, and what it says to other nodes goes out.

A node's words and its coming and going are on a lane of their own, in the order in which the main
thread saw them; a general worker decodes words outside the engine's lock and applies them under it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hms.engine.cluster.cluster import Cluster
from hms.engine.cluster.cluster_messages import (
    ClusterMessage,
    Offer,
    decode_message,
    encode_message,
)
from hms.engine.cluster.members import Change, Incarnation
from hms.engine.effects import Effects, ToNode
from hms.errors.tree import HmsError
from hms.server.doors.door import PayloadsOf

log = logging.getLogger("hms.links")

CLUSTER_TICK = object()
"""Put on the lane of node 0 by the scheduler."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key of a node's lane; 0: of the cluster's own work."""

    index: int


Said = tuple[ClusterMessage, list[bytes], Incarnation]
TURN_WORDS = 16
"""So many are applied under one hold of the lock."""
TURN_BYTES = 256 << 10
"""And of those that carry messages so many bytes."""


class Door:
    """change: applies something under the engine's lock; say: puts bytes for a node on its link."""

    def __init__(
        self,
        cluster: Cluster,
        change: Callable[[Callable[[Effects, int], None]], None],
        say: Callable[[Sequence[tuple[int, bytes]]], None],
    ) -> None:
        self._cluster = cluster
        self._change = change
        self._say = say

    def turn(self, key: NodeKey, items: list[Any]) -> None:
        """Apply the first of a lane's batch; the rest stays in the list, for its next turn."""
        count, size = 0, 0
        for item in items:
            count += 1
            size += len(item[1]) if type(item) is tuple else 0
            if size >= TURN_BYTES:
                break
        count = min(count, TURN_WORDS)
        self.handle(key, items[:count])
        del items[:count]

    def handle(self, key: NodeKey, items: list[Any]) -> None:
        """Apply words under one hold of the engine's lock."""
        said = [item if isinstance(item, Change) else self._decode(key, item) for item in items]

        def apply(fx: Effects, now_ms: int) -> None:
            for item in said:
                self._apply(key, item, now_ms, fx)

        self._change(apply)

    def _decode(self, key: NodeKey, item: Any) -> Said | None:
        if item is CLUSTER_TICK:
            return None
        life, data = item
        try:
            word, payloads = decode_message(data)
        except HmsError as fault:
            self._blame(key.index, fault)
            return None
        return word, payloads, life

    def _apply(self, key: NodeKey, item: "Change | Said | None", now_ms: int, fx: Effects) -> None:
        cluster = self._cluster
        if item is None:
            if not key.index:
                cluster.tick(now_ms, fx)
        elif isinstance(item, Change):
            if item.is_up:
                cluster.up(item.node, item.life, now_ms, fx)
            else:
                cluster.down(item.node, item.reason, now_ms, fx)
        elif cluster.peers[key.index].life == item[2]:
            try:
                cluster.heard(key.index, item[0], item[1], now_ms, fx)
            except HmsError as fault:
                self._blame(key.index, fault)

    def _blame(self, index: int, fault: HmsError) -> None:
        peer = self._cluster.peers[index]
        peer.last_error = str(fault)
        peer.tally.faults += 1
        if peer.tally.faults.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …
            log.warning("node %s said what cannot be applied: %s", peer.name, fault)

    def release(self, effect: ToNode, payloads_of: PayloadsOf | None) -> None:
        """A word may be said now: its records are durable. An offer that was answered meanwhile is
        not said again: where its bodies lay may be used for something else."""
        word = effect.word
        if isinstance(word, Offer) and not self._cluster.is_open(effect.node, word.number):
            return
        payloads: Sequence[bytes] = [m.payload for m in effect.messages]
        if payloads_of is not None and any(m.is_paged for m in effect.messages):
            payloads = payloads_of(effect.messages)
        self._say([(effect.node, encode_message(effect.word, payloads))])
