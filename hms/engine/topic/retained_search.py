"""Searching what is retained for a subscription that begins, in slices.

To look through 90,000 topics, copy what is retained there and encode the copies' records takes more
than a second. So before the command that subscribes, or asks for it again, its slices walk the tree
and make the copies and their records; the command itself only puts those in that are retained
still, with what was retained elsewhere meanwhile, all of it in one record. To its client that is
what was retained at one moment, the one in which it is subscribed.
"""

from collections.abc import Iterable

from hms.engine.effects import Effects
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import ReadyCopy, StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.message_copies import ready_copy
from hms.engine.state import State
from hms.engine.topic import TopicNode
from hms.engine.topic.retained import is_alive
from hms.engine.topic.retention import chosen_by, copy_for

__all__ = ["SEARCHED_AT_ONCE", "RetainedSearch"]

SEARCHED_AT_ONCE = 500
"""So many retained publications are looked at by the command itself."""
_OF_COPY = 14
"""Steps of a copy and its record; a topic is one. See hms/engine/selector/selector_cost.py."""

_Node = TopicNode[StoredMessage]


class RetainedSearch:
    """subscription: as it will be; handle: of the consumer that it is for; number: of the place it
    goes to, 0 when the log does not know it; keeps_ids: a new subscription cannot have had what is
    retained before; changed: where something was retained since the search began."""

    __slots__ = (
        "_client_uid",
        "_found",
        "_keeps_ids",
        "_state",
        "_subscription",
        "_walk",
        "changed",
        "handle",
        "number",
    )

    def __init__(
        self,
        state: State,
        subscription: Subscription,
        client_uid: int | None,
        handle: int,
        number: int,
        *,
        keeps_ids: bool,
    ) -> None:
        self.handle, self.number = handle, number
        self._keeps_ids = keeps_ids
        self._state = state
        self.changed: dict[_Node, None] = {}
        self._subscription = subscription
        self._client_uid = client_uid
        self._walk = state.space.tree.walk(subscription.pattern)
        self._found: dict[_Node, tuple[StoredMessage, ReadyCopy]] = {}
        """What is retained at a topic, and its copy."""
        state.space.retained.tell(self)

    def go_on(self, fx: Effects) -> bool:
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
        self._look(nodes, fx)
        return steps <= 0

    def result(self, fx: Effects) -> list[ReadyCopy]:
        """The copies of what is retained now; the search has ended."""
        self.close()
        found, pattern = self._found, self._subscription.pattern
        new = [n for n in self.changed if n not in found or not _is_current(n, found)]
        self._look([node for node in new if pattern.matches(node.topic)], fx)
        self.changed.clear()
        now_ms = self._state.now_ms
        return [
            copy
            for node, (message, copy) in found.items()
            if node.retained is message and (not message.expires_at_ms or is_alive(message, now_ms))
        ]

    def close(self) -> None:
        """Nobody asks for the result any more."""
        self._state.space.retained.tell_no_more(self)

    def _look(self, nodes: Iterable[_Node], fx: Effects) -> None:
        state, subscription = self._state, self._subscription
        by_id = {
            node.retained.id: node
            for node in nodes
            if node.retained is not None and state.space.is_allowed(subscription, node.topic)
        }
        messages = [node.retained for node in by_id.values() if node.retained is not None]
        for message in chosen_by(state, subscription, messages, self._client_uid):
            id_ = message.id if self._keeps_ids else state.take_ids(1, fx)
            copy = copy_for(state, subscription, message, id_)
            self._found[by_id[message.id]] = message, self._ready(copy)

    def _ready(self, copy: StoredMessage) -> ReadyCopy:
        if not self.number or not copy.is_persistent:
            return ReadyCopy(copy, b"", 0)
        queue, topic = self._subscription.queue, self._subscription.topic
        return ready_copy(topic.number if queue is None else queue.number, self.number, copy)


def _is_current(node: _Node, found: dict[_Node, tuple[StoredMessage, ReadyCopy]]) -> bool:
    return node.retained is found[node][0]
