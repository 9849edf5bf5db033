"""Sends that their user may not make any more, and that have had no effect yet: those that wait for
room are refused, transactions and branches that hold some are rolled back. What is prepared stays.
"""

from collections.abc import Mapping

from hms.engine.effects import Effects
from hms.engine.flow.room_wait import Waiting
from hms.engine.queue.settlement import Return
from hms.engine.session.session_objects import Producer, Work
from hms.engine.session.transactions import end_without_effect, work_of
from hms.engine.state import State
from hms.engine.xa.association import give_up
from hms.engine.xa.xa_codes import Code
from hms.errors.catalogue import TransactionRolledBack
from hms.errors.tree import HmsError

__all__ = ["producers_at_work", "revoke"]


def producers_at_work(state: State) -> dict[int, dict[Producer, None]]:
    """By connection, those whose sends have had no effect yet; some are closed by now."""
    works = [s.work for c in state.connections.values() for s in c.sessions.values()]
    works += [branch.work for branch in state.branches.live.values()]
    found = dict.fromkeys(batch.producer for work in works for batch in work.sends)
    for waiting in _waiting(state):
        found |= dict.fromkeys(_producers_of(waiting))
    by_connection: dict[int, dict[Producer, None]] = {}
    for producer in found:
        by_connection.setdefault(producer.session.connection.number, {})[producer] = None
    return by_connection


def revoke(state: State, denied: Mapping[Producer, HmsError], fx: Effects) -> None:
    """End what holds sends of these producers; why not, of each."""
    for waiting in _waiting(state):
        fault = next((denied[one] for one in _producers_of(waiting) if one in denied), None)
        work = work_of(waiting)
        if fault is None:
            continue
        if work is None:
            state.blocked.refuse(waiting, fault, fx)
        else:  # what its session has done since is the next transaction
            state.blocked.refuse(waiting, TransactionRolledBack(reason=str(fault)), fx)
            end_without_effect(state, work, Return.LOST, fx)
    for connection in {one.session.connection for one in denied}:
        for session in connection.sessions.values():
            fault = None if session.is_xa else _fault_in(session.work, denied)
            if fault is not None:
                session.work.rolled_back = str(fault)
                end_without_effect(state, session.work, Return.LOST, fx)
    for branch in list(state.branches.live.values()):
        if _fault_in(branch.work, denied) is not None:
            give_up(state, branch, Code.RBROLLBACK, Return.LOST, fx)


def _fault_in(work: Work, denied: Mapping[Producer, HmsError]) -> HmsError | None:
    return next((denied[one.producer] for one in work.sends if one.producer in denied), None)


def _waiting(state: State) -> list[Waiting]:
    lines = state.blocked.lines.values()
    return list(dict.fromkeys(waiting for line in lines for waiting in line))


def _producers_of(waiting: Waiting) -> list[Producer]:
    work = work_of(waiting)
    if work is not None:
        return [batch.producer for batch in work.sends]
    return [] if waiting.producer is None else [waiting.producer]
