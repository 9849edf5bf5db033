"""Delivery samples: how long a message waited until it went out, and then until it was settled.

Of each place one message at a time is timed, the first of a delivery, and the next one when
somebody has looked. So the way of a message has two comparisons for it and no call.
"""

from collections.abc import Sequence
from typing import Any

from hms.engine.messages import StoredMessage

__all__ = ["DeliverySample"]

LOOKS_MAX = 8
"""So many batches are looked through for the message; then another one is timed."""


class DeliverySample:
    """is_armed: the next delivery is timed; message_id: what is out and timed, 0 for none;
    waited_ms, held_ms: what was found since somebody looked, None for nothing."""

    __slots__ = ("_looks", "held_ms", "is_armed", "message_id", "since_ms", "waited_ms")

    def __init__(self) -> None:
        self.is_armed, self.message_id, self.since_ms, self._looks = True, 0, 0, 0
        self.waited_ms: int | None = None
        self.held_ms: int | None = None

    def delivered(self, message: StoredMessage, now_ms: int) -> None:
        """This one is timed."""
        self.is_armed, self._looks = False, LOOKS_MAX
        self.message_id, self.since_ms = message.id, now_ms
        self.waited_ms = max(0, now_ms - message.timestamp_ms)

    def settled(self, messages: Sequence[StoredMessage], now_ms: int) -> None:
        """It may be among these, which are acknowledged."""
        self._looks -= 1
        if any(message.id == self.message_id for message in messages):
            self.message_id, self.held_ms = 0, max(0, now_ms - self.since_ms)
        elif not self._looks:
            self.message_id = 0

    def take(self) -> tuple[int | None, int | None]:
        """What was found since the last time; another message is timed when this one is done."""
        found = self.waited_ms, self.held_ms
        self.waited_ms = self.held_ms = None
        self.is_armed = not self.message_id
        return found

    def give_up(self) -> None:
        """It came back, or left in another way."""
        self.message_id = 0

    def is_out_at(self, holders: Sequence[Any]) -> bool:
        """Whether one of these consumers has it."""
        return any(self.message_id in one.out for one in holders)
