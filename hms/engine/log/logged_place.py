"""A place as the log has it: what waits there, what is out, and how often it was delivered."""

from collections.abc import Mapping, Sequence

from hms.engine.log.live_index import hold, left_by
from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import told_counts
from hms.records import Stay
from hms.records.message_states import Step, Steps

__all__ = ["LoggedPlace"]


class LoggedPlace:
    """A queue or durable subscription by its number.

    It has no order, no groups and no limits: those are of today's configuration, and the log may
    have been written under another one. waiting and out: by id; history: (deliveries, failed
    attempts) of messages that came back; due: when those are due that wait for a time.
    """

    __slots__ = ("due", "history", "number", "out", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: dict[int, StoredMessage] = {}
        self.out: dict[int, StoredMessage] = {}
        self.history: dict[int, tuple[int, int]] = {}
        self.due: dict[int, int] = {}

    def hold(self, messages: Sequence[StoredMessage], due: Mapping[int, int]) -> None:
        """New messages wait here, some of them for their time."""
        hold(messages, self.number)
        self.waiting.update([(m.id, m) for m in messages])
        if due:
            self.due.update((m.id, due[m.id]) for m in messages if m.id in due)

    def stay(self, message: StoredMessage, stay: Stay) -> None:
        """A message is here, whatever was known of it before."""
        self.leave((message.id,))
        hold([message], self.number)
        (self.out if stay.is_out else self.waiting)[message.id] = message
        if stay.deliveries or stay.attempts:
            self.count(message.id, stay.deliveries, stay.attempts)
        if stay.due_ms:
            self.due[message.id] = stay.due_ms

    def count(self, message_id: int, deliveries: int, attempts: int) -> None:
        """It was delivered so often before."""
        self.history[message_id] = told_counts(deliveries, attempts)

    def step(self, steps: Steps, ids: Sequence[int]) -> None:
        """Messages go out or come back, those of them that are here."""
        waiting, out = self.waiting, self.out
        were_waiting = [i for i in ids if i in waiting]
        were_out = [i for i in ids if i in out]
        if were_waiting:
            if steps[0].is_out:
                out.update([(i, waiting.pop(i)) for i in were_waiting])
            self._count(steps[0], were_waiting)
        if were_out:
            if not steps[1].is_out:
                waiting.update([(i, out.pop(i)) for i in were_out])
            self._count(steps[1], were_out)

    def _count(self, step: Step, ids: Sequence[int]) -> None:
        if step.deliveries:
            for message_id in ids:
                deliveries, attempts = self.history.get(message_id, (0, 0))
                counts = deliveries + step.deliveries, attempts + step.attempts
                self.history[message_id] = counts
        if self.due and not step.keeps_due:
            for message_id in ids:
                self.due.pop(message_id, None)

    def leave(self, ids: Sequence[int]) -> None:
        """Messages are gone, those of them that are here."""
        waiting, out = self.waiting, self.out
        gone = [out.pop(i) for i in ids if i in out]
        gone += [waiting.pop(i) for i in ids if i in waiting]
        left_by(gone, self.number)
        for counts in (self.history, self.due):
            if counts:
                for message in gone:
                    counts.pop(message.id, None)

    def end(self) -> None:
        """The place is gone with all that it holds."""
        left_by([*self.waiting.values(), *self.out.values()], self.number)
