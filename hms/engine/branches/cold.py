"""Cold: what branches in doubt hold of a destination that boots COLD goes with the rest (F-H2)."""

from field_buffer.packing import unpack_rows
from hms.engine.branches.branch import Branch
from hms.engine.branches.records import prepared_record, stand_in
from hms.engine.dispatch import discard
from hms.engine.effects import Effects
from hms.engine.places import Queue, Subscription
from hms.engine.sending import store_batch, transaction_bytes
from hms.engine.sessions import PendingBatch
from hms.engine.state import State
from hms.records import Cause, group


def empty_in_branches(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Delete what branches have received from a place; what they sent to a queue begins to wait
    there, so that it is deleted and counted with what waits. The branches stay."""
    for branch in state.branches.in_doubt():
        work = branch.work
        released = [batch for batch in work.sends if batch.producer.destination is place]
        if not (_discard_receipts(state, branch, place, fx) or released):
            continue
        work.sends = [batch for batch in work.sends if batch.producer.destination is not place]
        state.branches.let_go(branch)
        state.branches.hold(branch, transaction_bytes(state, work))
        fx.records.append(prepared_record(branch))  # first, so that a crash here doubles nothing
        for batch in released:
            _release(state, batch, fx)


def _discard_receipts(
    state: State, branch: Branch, place: Queue | Subscription, fx: Effects
) -> bool:
    work = branch.work
    taken = [message for where, message in work.acknowledged if where is place]
    work.acknowledged = [one for one in work.acknowledged if one[0] is not place]
    for message in taken:
        place.line.settle(message)
    discard(state, place, taken, Cause.COLD, fx)
    return bool(taken)


def _release(state: State, batch: PendingBatch, fx: Effects) -> None:
    batch.producer = stand_in(state, batch.producer)
    rows = unpack_rows(batch.pack, batch.count)
    records = store_batch(state, batch, rows, 0, fx).records
    fx.records.append(group(0, 0, 0, state.now_ms, records))
