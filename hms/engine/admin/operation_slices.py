"""Operations that look at, or discard, very much: they are done in slices.

Each slice is done under its own hold of the engine's lock, before the operation itself, which does
the rest and answers for all of it. What a slice discards is recorded with it: a crash in between
leaves the rest where it was, and nobody was told.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from hms.engine.admin.destination_figures import FiguresPass
from hms.engine.admin.destination_lifecycle import bury_deleted, reason_to_stay
from hms.engine.admin.message_selection import place_of
from hms.engine.admin.status_view import StatusPass
from hms.engine.admin.topic_operations import (
    LISTED_MAX,
    TopicShow,
    describe_node,
    pattern_of,
    unused_subscription,
)
from hms.engine.admin.views import LISTINGS
from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage
from hms.engine.queue import pending_list, purge_slices
from hms.engine.queue.dead_letters import DeadReason, target_of
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.queue.purge_slices import begin_ending, lift_ending, purge_some
from hms.engine.session.session_objects import Work
from hms.engine.session.transactions import ready_some
from hms.engine.state import State
from hms.engine.topic import TopicNode
from hms.engine.topic.retention import take_away
from hms.engine.topic.spreading import give_now
from hms.engine.xa.branch_operations import prepared_branch
from hms.records import Cause
from hms.wire import operations as ops
from hms.wire.commands import Order

__all__ = ["SLICED", "Progress"]

SLICED = (
    "topic.tree",
    "topic.clear_retained",
    "queue.purge",
    "topic.purge",
    "queue.delete",
    "subscription.delete",
    "metrics.show",
    "status",
    "topic.show",
    "transaction.commit",
    "message.move",
    "message.alter",
    "dlq.return",
    *LISTINGS,
)
WALKED_AT_ONCE = 1000
"""Topics: 5 ms."""
BURIED_AT_ONCE = 500
"""Messages that become dead letters: 10 ms."""
LOOKED_AT_ONCE = 10_000
"""Messages whose bodies may be missing: 5 ms."""
EMPTIED_STEPS = 20
"""What a subscription takes of which nothing waits, in messages that are discarded."""
LISTED_AT_ONCE = 2000
"""Rows of a list: 5 to 10 ms."""


class Progress:
    """Of one operation: what was discarded, and what is to be shown."""

    __slots__ = (
        "_buries",
        "_connection",
        "_emptied",
        "_ends",
        "_indexed",
        "_listed",
        "_listing",
        "_looked_for",
        "_looked_to",
        "_purged",
        "_rows",
        "_shown",
        "_walk",
        "_work",
        "asked",
        "count",
    )

    def __init__(self, state: State, asked: Order, connection: int) -> None:
        self.asked = asked
        self._connection = connection
        self._ends = False
        self.count = 0
        self._rows: list[dict[str, Any]] = []
        self._walk: Iterator[TopicNode[StoredMessage] | None] | None = None
        self._purged: list[Queue | Subscription] = []
        self._buries = False
        self._emptied: deque[Subscription] | None = None
        """Of a topic, those of which something may wait yet."""
        self._looked_for: Queue | None = None
        """Where bodies may be missing, so that not all of it can become dead letters at once."""
        self._looked_to = 0
        self._indexed: Queue | Subscription | None = None
        """Where messages are to come, which is asked whether it has their ids."""
        self._shown = _shown(state, asked)
        self._work: Work | None = None
        self._listing = LISTINGS.get(asked.command.name)
        self._listed: Iterator[dict[str, Any] | None] = iter(())
        arguments, verb = asked.arguments, asked.command.name
        if isinstance(arguments, ops.ShowTopics | ops.ClearRetained) and arguments.pattern:
            self._walk = state.space.tree.walk(pattern_of(arguments.pattern, arguments.scheme))
        elif isinstance(arguments, ops.NameOne) and verb in ("queue.purge", "topic.purge"):
            target = state.destination(verb.partition(".")[0], arguments.name)
            if isinstance(target, Queue):
                self._purged = [target]
            else:
                self._emptied = deque(target.subscriptions)
        elif isinstance(arguments, ops.DeleteDestination) and verb == "queue.delete":
            self._begin_deleting(state, arguments)
        elif isinstance(arguments, ops.MoveMessages | ops.ReturnLetters | ops.AlterMessages):
            self._indexed = _indexed(state, arguments)
        elif isinstance(arguments, ops.NameBranch):
            self._work = prepared_branch(state, arguments).work
        elif self._listing is not None:
            self._listed = self._listing.rows(state, arguments)
        elif isinstance(arguments, ops.DeleteSubscription):
            self._purged, self._ends = [unused_subscription(state, arguments)], True

    def _begin_deleting(self, state: State, asked: ops.DeleteDestination) -> None:
        queue = state.destination("queue", asked.name)
        if isinstance(queue, Queue) and asked.force and not reason_to_stay(state, queue):
            self._buries = not asked.discard
            self._looked_for = queue if self._buries and state.blocks.paged_count else None
            if self._buries and queue.line.stays_count:
                self._indexed = target_of(state, queue, DeadReason.DESTINATION_DELETED)
            self._ends, self._purged = True, [queue]

    def go_on(self, state: State, fx: Effects) -> bool:
        """A slice; whether there is more before the operation."""
        if self._walk is not None:
            return self._walk_some(self._walk, state, fx)
        if self._shown is not None:
            return self._shown.go_on()
        if self._work is not None:
            return ready_some(state, self._work, fx)
        if self._listing is not None:
            some = list(islice(self._listed, LISTED_AT_ONCE))
            self._rows += [row for row in some if row is not None]
            self._rows = self._listing.chosen(self._rows, self.asked.arguments)
            return len(some) == LISTED_AT_ONCE
        if self._indexed is not None and self._index_some(self._indexed, state):
            return True
        return self._purge_some(state, fx)

    def close(self) -> None:
        """Who asked is gone: what was made ready takes no memory any more."""
        if self._work is not None:
            self._work.unready()
        if self._indexed is not None:
            self._indexed.line.give_up_index()

    def _index_some(self, place: Queue | Subscription, state: State) -> bool:
        """What is deleted is begun to be used by nobody meanwhile."""
        for one in self._purged if self._ends else ():
            begin_ending(state, self._connection, one)
        return place.line.index_some(pending_list.INDEXED_AT_ONCE)

    def _empty_some(self, subscriptions: deque[Subscription], state: State, fx: Effects) -> bool:
        """Some messages of a topic's subscriptions are discarded; there may be 65,000 of these."""
        steps = purge_slices.PURGED_AT_ONCE
        while subscriptions and steps > 0:
            one = subscriptions[0]
            give_now(state, one)
            count = purge_some(state, one, self._cause, fx, state.now_ms)
            if not count:
                waiting = one.line.remove_everything()
                discard(state, one, waiting, self._cause, fx)
                count = len(waiting)
                subscriptions.popleft()
            self.count += count
            steps -= EMPTIED_STEPS + count
        return bool(subscriptions)

    def _purge_some(self, state: State, fx: Effects) -> bool:
        if self._emptied is not None:
            return self._empty_some(self._emptied, state, fx)
        if self._looked_for is not None:
            return self._look_for_paged(state, self._looked_for)
        for place in self._purged:
            count = self._discard_some(state, place, fx)
            self.count += count
            if count and self._ends:
                begin_ending(state, self._connection, place)
            if count:
                return True
        if self._ends:
            lift_ending(state, self._connection)
        return False

    def _look_for_paged(self, state: State, queue: Queue) -> bool:
        """A slice of what waits there, the oldest first; the operation refuses what it finds.
        Nobody else begins to use it meanwhile, so that the reasons to stay are known still."""
        begin_ending(state, self._connection, queue)
        arrived = queue.line.arrivals(self._looked_to, (), is_newest_first=False)
        some = list(islice(arrived, LOOKED_AT_ONCE))
        is_paged = any(message.is_paged for message in some)
        if is_paged:
            self._ends, self._purged = False, []
            lift_ending(state, self._connection)
        if is_paged or len(some) < LOOKED_AT_ONCE:
            self._looked_for = None
            return not is_paged
        self._looked_to = some[-1].seq
        return True

    def _discard_some(self, state: State, place: Queue | Subscription, fx: Effects) -> int:
        if not self._buries or not isinstance(place, Queue):
            return purge_some(state, place, self._cause, fx, state.now_ms)
        if place.line.stays_count <= BURIED_AT_ONCE:
            return 0
        count = bury_deleted(state, place, fx, BURIED_AT_ONCE)
        return count or purge_some(state, place, self._cause, fx, state.now_ms)

    @property
    def _cause(self) -> Cause:
        if not self._ends:
            return Cause.PURGED
        is_queue = self.asked.command.name == "queue.delete"
        return Cause.DELETED if is_queue else Cause.UNSUBSCRIBED

    @property
    def answer(self) -> Any:
        """Where nothing is left for the operation itself; else None."""
        if self._shown is not None:
            return self._shown.answer()
        if self._listing is not None:
            return self._rows
        if self._emptied is not None:
            return self.count
        if self._walk is None:
            return None
        return self._rows if isinstance(self.asked.arguments, ops.ShowTopics) else self.count

    def _walk_some(
        self, walk: Iterator[TopicNode[StoredMessage] | None], state: State, fx: Effects
    ) -> bool:
        visited = list(islice(walk, WALKED_AT_ONCE))
        nodes = [node for node in visited if node is not None]
        if isinstance(self.asked.arguments, ops.ShowTopics):
            self._rows += map(describe_node, nodes[: LISTED_MAX - len(self._rows)])
        else:
            topics = [node.topic for node in nodes if node.retained is not None]
            self.count += take_away(state, topics, Cause.CLEARED, fx)
        return len(visited) == WALKED_AT_ONCE and len(self._rows) < LISTED_MAX


def _indexed(
    state: State, asked: ops.MoveMessages | ops.ReturnLetters | ops.AlterMessages
) -> Queue | Subscription | None:
    """Where messages are to come with the ids that they have, if that is one place."""
    if isinstance(asked, ops.AlterMessages):
        return place_of(state, asked.to or asked.place).place if asked.is_id_taken else None
    return None if asked.node else state.queues.get(asked.to.removeprefix("queue:"))


def _shown(state: State, asked: Order) -> FiguresPass | StatusPass | TopicShow | None:
    """What looks at very much, and changes nothing."""
    arguments, verb = asked.arguments, asked.command.name
    if isinstance(arguments, ops.ShowMetrics):
        return FiguresPass(state, arguments.names, arguments.limit)
    if isinstance(arguments, ops.NameOne) and verb == "topic.show":
        return TopicShow(state, arguments)
    return StatusPass(state) if verb == "status" else None
