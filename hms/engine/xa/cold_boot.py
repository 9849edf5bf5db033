"""Cold: what branches in doubt hold of a destination that boots COLD goes with the rest (F-H2)."""

from hms.engine.effects import Effects
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.queue.incoming import accepted
from hms.engine.queue.queue_send import store_batch, transaction_bytes
from hms.engine.session.session_objects import PendingBatch
from hms.engine.state import State
from hms.engine.xa.branch import Branch
from hms.engine.xa.branch_records import prepared_record, stand_in
from hms.records import Cause, group
from hms.wire.packed_messages import unpack_rows


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
    records = store_batch(state, batch, accepted(batch.pack, rows), 0, fx).records
    fx.records.append(group(0, 0, 0, state.now_ms, records))
