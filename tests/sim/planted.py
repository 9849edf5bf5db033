"""Faults that are planted on purpose: a checker that never failed is not trusted.

Each changes the product, through monkeypatch, as a mistake would. The letters are those of
the negative controls; the others are further mistakes of the same kind. Those of the journal alone
stand in tests.crash.planted: (b) no_sync, (c) sync_retried, (f) checksum_skipped.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import hms.engine.queue.dispatch as dispatching
import hms.engine.session.transactions as committing
import hms.server.doors.native_door as wiring
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.engine.effects import Deliver
from hms.engine.log.recovery import Recovery
from hms.engine.queue import settlement
from hms.engine.queue.pending_list import PendingList
from hms.engine.session import opening
from hms.engine.session.deduplication import DeduplicationState, ProducerMemory
from hms.engine.state import Outgoing
from hms.engine.xa import completion
from hms.engine.xa.branch_records import RecoveredBranches
from hms.records import Cause, Ended, Record, RecordType, decode_group, ended, group
from hms.server.broker import Broker
from tests.crash.planted import checksum_skipped, no_sync, sync_retried

_NOTHING = ended(Ended(b"nobody", 3, 0)).parts[0]
Plant = Callable[[pytest.MonkeyPatch], None]


def confirmation_before_sync(patch: pytest.MonkeyPatch) -> None:
    """(a)"""
    change = Broker._change

    def hasty(self: Broker, what: Any, **how: Any) -> None:
        change(self, what, **how)
        self.releases.release(self._store.last_lsn)

    patch.setattr(Broker, "_change", hasty)


def acknowledgement_dropped(patch: pytest.MonkeyPatch) -> None:
    """(d) one record in ten."""
    write_ranges, seen = dispatching.write_ranges, [0]

    def forgetful(state: Any, place: Any, kind: RecordType, *rest: Any) -> None:
        seen[0] += kind is RecordType.ACKNOWLEDGED
        if kind is not RecordType.ACKNOWLEDGED or seen[0] % 10:
            write_ranges(state, place, kind, *rest)

    patch.setattr(dispatching, "write_ranges", forgetful)


def redelivered_flag_lost(patch: pytest.MonkeyPatch) -> None:
    """(e)"""
    rows = wiring.delivered_rows
    patch.setattr(
        wiring, "delivered_rows", lambda messages, _counts, *more: rows(messages, None, *more)
    )


def redelivery_forgotten_by_recovery(patch: pytest.MonkeyPatch) -> None:
    """(e) over a crash only."""
    fill = Recovery._fill

    def without(self: Recovery, place: Any, found: Any) -> None:
        fill(self, place, found)
        history = place.line.history
        place.line.history = {one: (0, attempts) for one, (_, attempts) in history.items()}

    patch.setattr(Recovery, "_fill", without)


def transaction_split(patch: pytest.MonkeyPatch) -> None:
    """(h) the sends in one record, the acknowledgements in another behind it."""

    def split(uid: int, session: int, number: int, at_ms: int, records: list[Record]) -> Record:
        whole = group(uid, session, number, at_ms, records)
        decoded = decode_group(b"".join(whole.parts))
        first = group(uid, session, number, at_ms, decoded.records[:1])
        split.rest += decoded.records[1:]
        return first

    split.rest = []
    commit = committing.commit

    def torn(state: Any, session: Any, correlation: int, number: int, fx: Any) -> None:
        commit(state, session, correlation, number, fx)
        rest, split.rest = split.rest, []
        fx.records += rest

    patch.setattr(committing, "group", split)
    patch.setattr(committing, "commit", torn)


def repeated_send_not_known(patch: pytest.MonkeyPatch) -> None:
    """A batch that comes again is stored again."""
    patch.setattr(ProducerMemory, "remember", lambda *_: None)


def commit_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A client that asks is told that its commit had no effect."""
    patch.setattr(DeduplicationState, "committed", lambda *_: None)


def expiry_without_record(patch: pytest.MonkeyPatch) -> None:
    """What expired stays in the log."""
    write_ranges = dispatching.write_ranges

    def forgetful(*args: Any) -> None:
        if args[-1] is not Cause.EXPIRED:
            write_ranges(*args)

    patch.setattr(dispatching, "write_ranges", forgetful)


def cause_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The history says of all that left that it was acknowledged (P9)."""
    write_ranges = dispatching.write_ranges
    patch.setattr(dispatching, "write_ranges", lambda *args: write_ranges(*args[:5]))


def attempts_not_counted(patch: pytest.MonkeyPatch) -> None:
    """What fails again and again never becomes a dead letter."""
    put_back = PendingList.put_back

    def without(self: PendingList, message: Any, deliveries: int, attempts: int) -> None:
        put_back(self, message, deliveries, min(attempts, 1))

    patch.setattr(PendingList, "put_back", without)


def lent_to_two(patch: pytest.MonkeyPatch) -> None:
    """A queue's messages go to two consumers at a time (P6)."""
    deliver = dispatching._deliver

    def twice(state: Any, place: Any, consumer: Any, messages: Any, fx: Any) -> None:
        deliver(state, place, consumer, messages, fx)
        for other in place.consumers:
            if other is not consumer and not (other.listener or other.selector):
                handles = other.connection.number, other.handle, other.epoch
                fx.out.append(Deliver(*handles, messages, fx.out[-1].counts))
                return

    patch.setattr(dispatching, "_deliver", twice)


def memory_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """What is acknowledged counts as waiting for ever."""
    acknowledge = settlement.acknowledge

    def greedy(state: Any, *rest: Any) -> None:
        before = state.waiting_bytes
        acknowledge(state, *rest)
        state.waiting_bytes = before

    patch.setattr(settlement, "acknowledge", greedy)


def receipts_of_branches_forgotten(patch: pytest.MonkeyPatch) -> None:
    """After a crash a prepared branch no longer has what it received."""
    patch.setattr(RecoveredBranches, "holds", lambda _self, _number, _message_id: False)
    patch.setattr(RecoveredBranches, "take", lambda _self, _place, _messages: None)


def vote_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """What a branch promised does not outlive the node."""
    promise = completion.prepared_record

    def hollow(branch: Any) -> Record:
        promised = promise(branch)
        return msgspec.structs.replace(promised, type=RecordType.ENDED, parts=(_NOTHING,))

    patch.setattr(completion, "prepared_record", hollow)


def older_epoch_accepted(patch: pytest.MonkeyPatch) -> None:
    """A client takes messages that it has given back before they came."""
    delivered = PrefetchBuffer.delivered

    def trusting(self: PrefetchBuffer, _epoch: int, messages: Any, size_bytes: int) -> None:
        delivered(self, self.stamp.epoch, messages, size_bytes)

    patch.setattr(PrefetchBuffer, "delivered", trusting)


def returned_to_the_end(patch: pytest.MonkeyPatch) -> None:
    """What comes back stands behind what came later."""
    put_back = PendingList.put_back

    def behind(self: PendingList, message: Any, deliveries: int, attempts: int) -> None:
        put_back(self, message, deliveries, attempts)
        self._ready._levels[message.priority].rotate(-1)

    patch.setattr(PendingList, "put_back", behind)


def flight_bytes_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """What a lost consumer had counts for its user for ever."""
    give_back_all = settlement.give_back_all

    def greedy(state: Any, consumer: Any, *rest: Any, **more: Any) -> None:
        limit = consumer.session.connection.in_flight
        before = 0 if limit is None else limit.size_bytes
        give_back_all(state, consumer, *rest, **more)
        if limit is not None:
            limit.size_bytes = before

    for module in (opening, committing):
        patch.setattr(module, "give_back_all", greedy)


def flight_bytes_of_each_consumer(patch: pytest.MonkeyPatch) -> None:
    """Each consumer of a user may have as much as all of them together."""

    def alone(_state: Any, _place: Any, consumer: Any) -> int:
        limit = consumer.session.connection.in_flight
        room: int = consumer.room_bytes
        return room if limit is None else min(room, limit.bytes_max - consumer.out_bytes)

    patch.setattr(dispatching, "_room_bytes", alone)


def held_places_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Where the limit of a user was in the way nobody looks again when there is room."""
    patch.setattr(dispatching, "_room_bytes", _room_without_note)
    patch.setattr(Outgoing, "may_go_on", lambda self: bool(self.rest))


def _room_without_note(_state: Any, _place: Any, consumer: Any) -> int:
    limit = consumer.session.connection.in_flight
    room: int = consumer.room_bytes
    return room if limit is None else min(room, limit.room_bytes)


def _faults(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}:" for name in names)


PLANTS: dict[Plant, tuple[str, ...]] = {
    confirmation_before_sync: _faults("lost", "duplicated"),
    no_sync: _faults("lost", "duplicated"),
    sync_retried: ("lost:", "failed: StoreCorrupt"),
    acknowledgement_dropped: _faults("duplicated"),
    redelivered_flag_lost: _faults("unflagged"),
    redelivery_forgotten_by_recovery: _faults("unflagged"),
    checksum_skipped: _faults("unexpected", "lost", "failed"),
    transaction_split: _faults("torn", "duplicated"),
    repeated_send_not_known: _faults("duplicated"),
    commit_not_remembered: _faults("unexpected", "torn", "duplicated"),
    returned_to_the_end: _faults("reordered"),
    expiry_without_record: _faults("leftover"),
    cause_forgotten: _faults("unaccounted"),
    attempts_not_counted: _faults("unlimited"),
    lent_to_two: _faults("unflagged", "duplicated"),
    memory_not_given_back: _faults("leftover"),
    receipts_of_branches_forgotten: _faults("duplicated", "torn"),
    vote_not_recorded: _faults("lost", "torn"),
    older_epoch_accepted: _faults("unflagged", "reordered"),
}
"""What is planted, and the counts of which at least one must show it."""
USER_PLANTS: dict[Plant, tuple[str, ...]] = {
    flight_bytes_not_given_back: ("invariant: a user has",),
    flight_bytes_of_each_consumer: ("invariant: a user has",),
    held_places_forgotten: ("failed: StuckError",),
}
"""The same where users have a limit of bytes in flight."""
