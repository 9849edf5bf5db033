"""Waiting letters: dead letters for a queue that has to learn the ids of what waits there first.

Of 500,000 that was 61 ms under one hold of the engine's lock, once after each boot.
"""

from hms.engine.effects import Effects
from hms.engine.queue import pending_list
from hms.engine.queue.dead_letters import ids_known
from hms.engine.queue.dispatch import dispatch
from hms.engine.state import State

__all__ = ["go_on"]

LETTERS_AT_ONCE = 200
"""5 ms."""


def go_on(state: State, fx: Effects) -> None:
    """A slice of the ids of one queue, or of the letters that have waited for them."""
    if not state.awaiting_ids:
        return
    target, letters = next(iter(state.awaiting_ids.items()))
    if target.line.is_index_far and not target.control.is_gone:
        target.line.index_some(pending_list.INDEXED_AT_ONCE)
        return
    for _ in range(min(LETTERS_AT_ONCE, len(letters))):
        dispatch(state, ids_known(state, letters.popleft(), fx), fx)
    if not letters:
        del state.awaiting_ids[target]
