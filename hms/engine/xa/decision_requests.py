"""Decision requests: what a coordinator asks of the decision log (see decisions.py)."""

from collections.abc import Iterator, Sequence
from typing import Any

from hms.engine.effects import Effects
from hms.engine.log.state_records import applied, write
from hms.engine.queue.queue_send import check_effect, transaction_bytes
from hms.engine.state import State
from hms.engine.xa.branch import Branch
from hms.engine.xa.completion import finish, obstacle_of, take_all
from hms.engine.xa.decisions import DECIDED_BYTES, IDENTITY, Active
from hms.errors.catalogue import (
    DecisionNotFound,
    DecisionRefused,
    IllegalState,
    InvalidArgument,
    TransactionTooLarge,
)
from hms.records import Decided, decided, forgotten

GTRID_BYTES_MAX = 64
PARTICIPANTS_BYTES_MAX = 48 << 10
ACTIVE_MAX = 100_000
DECISIONS_BYTES_MAX = 32 << 20
PAGE_MAX = 200
TIMEOUT_MS_MAX = 1 << 40


def begin(state: State, connection: int, gtrid: bytes, timeout_ms: int, name: str) -> None:
    """A client begins a global transaction; DecisionRefused when there is one of that name."""
    decisions = state.decisions
    if not 0 < len(gtrid) <= GTRID_BYTES_MAX or not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise InvalidArgument(what="BeginGlobal", detail="a gtrid has 1 to 64 bytes")
    known = decisions.active.get(gtrid)
    if known is not None and known.connection == connection:
        return  # asked twice
    if known is not None or gtrid in decisions.decided:
        raise DecisionRefused(gtrid=gtrid.hex(), reason="there is one of that name already")
    if len(decisions.active) >= ACTIVE_MAX:
        raise DecisionRefused(gtrid=gtrid.hex(), reason=f"{ACTIVE_MAX} are active")
    deadline_ms = state.now_ms + timeout_ms if timeout_ms else 0
    decisions.given_up.pop(gtrid, None)
    decisions.active[gtrid] = Active(connection, state.now_ms, deadline_ms, name)


def decide(
    state: State,
    connection: int,
    gtrid: bytes,
    participants: bytes,
    xids: Sequence[bytes],
    fx: Effects,
) -> dict[str, Any]:
    """Commit a global transaction, and with the same record its branches here; when it was decided.
    DecisionRefused and TransactionTooLarge change nothing: then it is to be rolled back."""
    decisions = state.decisions
    fx.must_wait = True
    known = decisions.decided.get(gtrid)
    if known is not None:
        return {"at_ms": known.at_ms}
    _check_active(state, connection, gtrid)
    branches = [_branch(state, gtrid, xid) for xid in dict.fromkeys(xids)]
    _check_size(state, gtrid, participants, branches)
    content = Decided(gtrid, decisions.next_serial, state.now_ms, participants)
    effects = [take_all(state, branch, fx) for branch in branches]
    record = applied(state, decided(content, events=0))
    decisions.held[gtrid] = connection
    finish(state, effects, fx, first=[record])
    return {"at_ms": content.at_ms}


def _check_size(
    state: State, gtrid: bytes, participants: bytes, branches: Sequence[Branch]
) -> None:
    """All of it is one record."""
    if len(participants) > PARTICIPANTS_BYTES_MAX:
        raise InvalidArgument(what="participants", detail=f"{len(participants)} bytes")
    size = len(participants) + sum(transaction_bytes(state, b.work) for b in branches)
    if size > state.settings.transaction_bytes_max:
        raise TransactionTooLarge(size=size, limit=state.settings.transaction_bytes_max)
    check_effect(state, *(b.work for b in branches))
    _check_room(state, gtrid, DECIDED_BYTES + len(participants))


def _check_room(state: State, gtrid: bytes, size: int) -> None:
    """Decisions are in memory until they are forgotten. Messages that fill the memory must not
    keep a transaction from consuming them, so decisions have a limit of their own."""
    used = state.decisions.size_bytes
    if size > 0 and used + size > DECISIONS_BYTES_MAX:
        reason = f"decisions that are not forgotten have {used} of {DECISIONS_BYTES_MAX} bytes"
        raise DecisionRefused(gtrid=gtrid.hex(), reason=reason)


def _check_active(state: State, connection: int, gtrid: bytes) -> None:
    """The one who began it decides, in time."""
    active = state.decisions.active.get(gtrid)
    reason = ""
    if active is None:
        reason = "it is not active: never begun, rolled back, or its connection was lost"
    elif active.connection != connection:
        reason = "another connection has begun it"
    elif 0 < active.deadline_ms <= state.now_ms:
        reason = "its time is over"
    if reason:
        raise DecisionRefused(gtrid=gtrid.hex(), reason=reason)


def _branch(state: State, gtrid: bytes, xid: bytes) -> Branch:
    """A branch that can be committed now."""
    branch = state.branches.by_xid.get(xid)
    if branch is None:
        raise DecisionRefused(gtrid=gtrid.hex(), reason=f"branch {xid.hex()} is not known here")
    if not branch.may_end:
        reason = f"branch {xid.hex()} is {branch.state.value}"
        raise DecisionRefused(gtrid=gtrid.hex(), reason=reason)
    obstacle = "" if branch.is_recorded else obstacle_of(state, branch.work)
    if obstacle:
        raise DecisionRefused(gtrid=gtrid.hex(), reason=obstacle)
    return branch


def end(state: State, connection: int, gtrid: bytes) -> bool:
    """A global transaction ends without a decision, or others are to carry out what was decided;
    whether it was active."""
    if state.decisions.held.get(gtrid) == connection:
        del state.decisions.held[gtrid]
    active = state.decisions.active.get(gtrid)
    if active is None or active.connection != connection:
        return False
    state.decisions.give_up(gtrid)
    return True


def ask(state: State, gtrid: bytes, fx: Effects) -> dict[str, Any]:
    """What became of a global transaction; "committing": the one who decided carries it out;
    "unknown": it is to be rolled back."""
    fx.must_wait = True
    known = state.decisions.decided.get(gtrid)
    if known is not None:
        return {
            "state": "committing" if gtrid in state.decisions.held else "committed",
            "participants": known.participants,
            "decided_at_ms": known.at_ms,
        }
    word = "active" if gtrid in state.decisions.active else "unknown"
    return {"state": word, "participants": b"", "decided_at_ms": 0}


def check_may_change(gtrid: bytes) -> None:
    """Nobody notes or forgets what the node is known by: with another identity it would take its
    own branches in databases for those of others."""
    if gtrid == IDENTITY:
        detail = "it is what this node is known by in distributed transactions"
        raise IllegalState(what=f"the decision {gtrid.hex()}", detail=detail)


def note(state: State, gtrid: bytes, participants: bytes, fx: Effects) -> None:
    """What a decision has to say of its participants now; DecisionNotFound."""
    known = state.decisions.decided.get(gtrid)
    if known is None:
        raise DecisionNotFound(gtrid=gtrid.hex())
    if len(participants) > PARTICIPANTS_BYTES_MAX:
        raise InvalidArgument(what="participants", detail=f"{len(participants)} bytes")
    _check_room(state, gtrid, len(participants) - len(known.participants))
    content = Decided(gtrid, known.serial, known.at_ms, participants)
    fx.must_wait = True
    write(state, decided(content), fx)


def forget(state: State, gtrid: bytes, fx: Effects) -> None:
    """Every participant has done its part; again is no error.

    Nobody waits for its record: a node that dies before it is synced knows the decision again, and
    recovery finds its participants done and forgets it, as when the coordinator had died before.
    Who asks about the decision meanwhile is answered when the record is durable.
    """
    if gtrid in state.decisions.decided:
        write(state, forgotten(gtrid), fx)
        fx.unawaited += 1
    else:
        state.decisions.held.pop(gtrid, None)


def page(state: State, after: int, count_max: int, fx: Effects) -> dict[str, Any]:
    """Decisions in their order."""
    fx.must_wait = True
    found = sorted(
        (one for one in state.decisions.decided.values() if one.serial > after),
        key=lambda one: one.serial,
    )
    chosen = found[: max(1, min(count_max, PAGE_MAX))]
    held = state.decisions.held
    rows = [[one.gtrid, one.participants, one.at_ms, one.gtrid in held] for one in chosen]
    return {
        "decisions": rows,
        "position": chosen[-1].serial if chosen else after,
        "has_more": len(found) > len(chosen),
    }


def active(state: State) -> Iterator[list[Any]]:
    """Global transactions that are neither decided nor over, as long as that is so."""
    known = state.decisions.active
    for gtrid, one in list(known.items()):
        if known.get(gtrid) is one:
            yield [gtrid, one.connection, one.since_ms, one.name]
