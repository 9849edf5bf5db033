"""Searching what is retained for a subscription that begins, in slices.

To look through 90,000 topics and copy what is retained there takes a second. So before the command
that subscribes its slices walk the tree and make the copies; the command itself only puts those
into the new subscription that are retained still, with what was retained elsewhere meanwhile. To
its client that is what was retained at one moment, the one in which it is subscribed.
"""

from collections.abc import Iterable

from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.state import State
from hms.engine.topic import TopicNode
from hms.engine.topic.retained import is_alive
from hms.engine.topic.retention import chosen_by, copy_for

__all__ = ["SEARCHED_AT_ONCE", "RetainedSearch"]

SEARCHED_AT_ONCE = 500
"""So many retained publications are looked at by the command itself."""
_OF_COPY = 8
"""Steps of a copy; one of a topic is one. See hms/engine/selector/selector_cost.py."""

_Node = TopicNode[StoredMessage]


class RetainedSearch:
    """subscription: as it will be; handle: of the consumer that it is for; changed: where something
    was retained since the search began."""

    __slots__ = (
        "_client_uid",
        "_found",
        "_state",
        "_subscription",
        "_walk",
        "changed",
        "handle",
    )

    def __init__(
        self, state: State, subscription: Subscription, client_uid: int, handle: int
    ) -> None:
        self.handle = handle
        self._state = state
        self.changed: dict[_Node, None] = {}
        self._subscription = subscription
        self._client_uid = client_uid
        self._walk = state.space.tree.walk(subscription.pattern)
        self._found: dict[_Node, tuple[StoredMessage, StoredMessage]] = {}
        """What is retained at a topic, and its copy."""
        state.space.retained.tell(self)

    def go_on(self) -> bool:
        """Look at some more topics; whether there may be more yet."""
        selector = self._subscription.selector
        steps, nodes = LOOK_STEPS, []
        for node in self._walk:
            steps -= 1
            if node is not None and node.retained is not None:
                nodes.append(node)
                steps -= _OF_COPY
                if selector is not None:
                    steps -= selector.price.of(1, node.retained.head_bytes)
            if steps <= 0:
                break
        self._look(nodes)
        return steps <= 0

    def result(self) -> list[StoredMessage]:
        """The copies of what is retained now; the search has ended."""
        self.close()
        found, pattern = self._found, self._subscription.pattern
        new = [n for n in self.changed if n not in found or not _is_current(n, found)]
        self._look([node for node in new if pattern.matches(node.topic)])
        self.changed.clear()
        now_ms = self._state.now_ms
        return [
            copy
            for node, (message, copy) in found.items()
            if node.retained is message and (not copy.expires_at_ms or is_alive(copy, now_ms))
        ]

    def close(self) -> None:
        """Nobody asks for the result any more."""
        self._state.space.retained.tell_no_more(self)

    def _look(self, nodes: Iterable[_Node]) -> None:
        state, subscription = self._state, self._subscription
        by_id = {
            node.retained.id: node
            for node in nodes
            if node.retained is not None and state.space.is_allowed(subscription, node.topic)
        }
        messages = [node.retained for node in by_id.values() if node.retained is not None]
        for message in chosen_by(state, subscription, messages, self._client_uid):
            copy = copy_for(state, subscription, message, message.id)
            self._found[by_id[message.id]] = message, copy


def _is_current(node: _Node, found: dict[_Node, tuple[StoredMessage, StoredMessage]]) -> bool:
    return node.retained is found[node][0]
