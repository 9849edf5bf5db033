"""What a run of records changes in the rows of messages, netted.

Every commit folds what waits into one change for each row: a message that came and went within the
run leaves nothing to write, one that came and was delivered is inserted as delivered. Rows are
deleted before others are inserted, so that a message may leave and come back.
"""

from collections.abc import Iterable

from hms.records import Stay
from hms.store.database.message_steps import DELAYED, Due, Outcome, outcome
from hms.store.database.rows import KEPT_MS, DefinitionRow, MessageRow, StayChange, StayRow

GOING_OUT = ("", "D")
"""After these steps a message may be out."""


class Changes:
    """The rows that are inserted, changed and deleted by one transaction."""

    def __init__(self) -> None:
        self.places_gone: list[int] = []
        self.definitions: dict[int, DefinitionRow] = {}
        self.ids_below: dict[int, int] = {}
        """By the index of the node that gave the ids."""
        self._messages: dict[int, MessageRow] = {}
        self._holders: dict[int, int] = {}
        self._stays: dict[int, dict[int, tuple[int, Stay]]] = {}
        self._steps: dict[int, dict[int, str]] = {}
        self._due_ms: dict[tuple[int, int], int] = {}
        """Of what came back with a time, by holder and message id."""
        self._gone: dict[int, set[int]] = {}

    # what happens

    def add(self, row: MessageRow) -> None:
        """A message came; it is written if something holds it at the end."""
        self._messages[row.position] = row

    def hold(self, id_: int, position: int, stay: Stay, *, is_new: bool) -> None:
        """A message is at a place. is_new: it cannot have been there before."""
        holder = stay.number
        rows = self._stays.setdefault(holder, {})
        before = rows.get(id_)
        if before is not None:
            self._holders[before[0]] -= 1
        elif not is_new:
            self._gone.setdefault(holder, set()).add(id_)
        rows[id_] = (position, stay)
        self._steps.get(holder, {}).pop(id_, None)
        self._holders[position] = self._holders.get(position, 0) + 1

    def step(self, holder: int, ids: Iterable[int], step: str, due_ms: int = 0) -> None:
        """Messages that are at a place were delivered, failed or released; due_ms: until then."""
        steps = self._steps.setdefault(holder, {})
        here, gone = self._stays.get(holder, ()), self._gone.get(holder, ())
        for id_ in ids:
            if id_ in here or id_ not in gone:
                before = steps.get(id_, "")
                if due_ms and before[-1:] in GOING_OUT:  # else it waits: nothing comes back
                    self._due_ms[holder, id_] = due_ms
                    steps[id_] = before + DELAYED[step]
                else:
                    steps[id_] = before + step

    def leave(self, holder: int, ids: Iterable[int]) -> None:
        """Messages leave a place."""
        here, steps = self._stays.get(holder, {}), self._steps.get(holder, {})
        gone = self._gone.setdefault(holder, set())
        for id_ in ids:
            steps.pop(id_, None)
            found = here.pop(id_, None)
            if found is None:
                gone.add(id_)
            else:
                self._holders[found[0]] -= 1

    def end_place(self, number: int) -> None:
        """A place is gone with all that it holds."""
        for position, _ in self._stays.pop(number, {}).values():
            self._holders[position] -= 1
        self._steps.pop(number, None)
        self._gone.pop(number, None)
        self.definitions.pop(number, None)
        self.places_gone.append(number)

    # what is to be written

    def messages(self) -> list[MessageRow]:
        """New messages that something holds."""
        return [row for row in self._messages.values() if self._holders.get(row.position)]

    def stays(self) -> list[StayRow]:
        """New rows of messages at their places."""
        return [
            self._new_row(holder, id_, position, stay)
            for holder, rows in self._stays.items()
            for id_, (position, stay) in rows.items()
        ]

    def stay_changes(self) -> list[StayChange]:
        """Changes of rows that are there."""
        return [
            self._change(holder, id_, steps)
            for holder, every in self._steps.items()
            for id_, steps in every.items()
            if id_ not in self._stays.get(holder, ())
        ]

    def gone(self) -> list[tuple[int, int]]:
        """Holder and message id of rows that go, if they are there."""
        return [(holder, id_) for holder, ids in self._gone.items() for id_ in ids]

    def _new_row(self, holder: int, id_: int, position: int, stay: Stay) -> StayRow:
        steps = self._steps.get(holder, {}).get(id_, "")
        end = outcome(steps, stay.is_out)
        due_ms = self._due(holder, id_, end)
        counts = stay.deliveries + end.deliveries, stay.attempts + end.attempts
        due_ms = stay.due_ms if due_ms == KEPT_MS else due_ms
        return StayRow(holder, id_, position, *counts, due_ms, end.is_out)

    def _change(self, holder: int, id_: int, steps: str) -> StayChange:
        ends = outcome(steps, is_out=True), outcome(steps, is_out=False)
        told = [(*end[:3], self._due(holder, id_, end)) for end in ends]
        return StayChange(holder, id_, *told[0], *told[1])

    def _due(self, holder: int, id_: int, end: Outcome) -> int:
        if end.due is Due.TOLD:
            return self._due_ms[holder, id_]
        return KEPT_MS if end.due is Due.KEPT else 0
