"""Status: the figures of a whole node, and the subscriptions that nobody receives from.

Sums are kept by the lines themselves (counters.py); of a node with 65,000 queues they were added up
under one hold of the engine's lock, 53 ms. Subscriptions are walked in slices.
"""

from itertools import islice
from typing import Any

from hms.engine.queue.destinations import Subscription
from hms.engine.state import State
from hms.engine.xa.branch_operations import count_in_doubt

__all__ = ["AbandonedPass", "StatusPass"]

LOOKED_AT_ONCE = 2000
"""Subscriptions: 5 ms."""


class AbandonedPass:
    """Durable subscriptions for which messages have waited too long, and nobody receives (F-H5)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rest = iter([*state.space.subscriptions.values()])
        self.names: list[str] = []

    def go_on(self) -> bool:
        """A slice; whether there is more."""
        some = list(islice(self._rest, LOOKED_AT_ONCE))
        until_ms = self._state.now_ms - self._state.settings.abandoned_after_ms
        self.names += [
            f"{one.name} ({one.line.waiting_count} messages)"
            for one in some
            if _is_away(one) and next(one.line.in_order()).timestamp_ms <= until_ms
        ]
        return len(some) == LOOKED_AT_ONCE


def _is_away(subscription: Subscription) -> bool:
    """Something waits, and nobody receives."""
    if not subscription.line.waiting_count or subscription.consumers:
        return False
    return subscription.is_durable and subscription.queue is None and not subscription.is_removed


class StatusPass:
    """The status of a node."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._abandoned = AbandonedPass(state)

    def go_on(self) -> bool:
        """A slice; whether there is more."""
        return self._abandoned.go_on()

    def answer(self) -> dict[str, Any]:
        """When there is no more."""
        state = self._state
        totals = state.space.totals[True]
        return {
            "connections": len(state.connections),
            "sessions": state.sessions_open,
            "queues": len(state.queues),
            "topics": len(state.topics),
            "retained": state.space.retained.count,
            **count_in_doubt(state),
            "waiting": totals.messages,
            "in_flight": totals.in_flight,
            "waiting_bytes": state.waiting_bytes,
            "max_memory_bytes": state.settings.memory_bytes_max,
            "abandoned_subscriptions": self._abandoned.names,
        }
