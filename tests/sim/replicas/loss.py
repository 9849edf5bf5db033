"""A lossy promotion: an operator has one copy go on without enough others.

What others confirmed and that copy lacks is lost, and nothing else may be. A client is told exactly
that when it is connected again: it compares the last of its numbers that the log has with what was
confirmed to it, by the client's own code.
"""

import re
from collections import deque
from types import SimpleNamespace

from hms.client.send_buffer import RECEIPTS_KEPT, Sender
from hms.server.arbiter import Member
from hms.server.arbiter.interface import goes_on_alone
from hms.server.arbiter.memory import MemoryArbiter
from hms.store.journal.confirmed_place import NOTHING
from hms.store.journal.format import SEGMENT_HEADER_BYTES, unpack_segment_header
from hms.store.journal.segment_walk import segment_file
from tests.sim.replicas.what_is_fixed import FOLDER, LOG


class Reader:
    """The client's memory of what was confirmed to it, and the numbers of its messages."""

    def __init__(self, world):
        self.world, self.last = world, 0
        self.sequences = {}
        self._buffer = SimpleNamespace(kept=deque(maxlen=RECEIPTS_KEPT), destination="q")
        self.lost = frozenset()
        """Bodies that a promotion lost, and nobody has told the client of."""

    def sends(self, body):
        """One more; its number."""
        self.last += 1
        self.sequences[body] = self.last
        return self.last

    def confirmed(self, records):
        """It hears of them."""
        for _, body in records:
            if number := self.sequences.get(body):
                self._buffer.kept.append((LOG, number, number, 1))

    def opens(self, restated, found, epoch):
        """It is connected to a new primary, which says the last number that its log has: by what
        was told again, and by the records since. An older epoch is not spoken to."""
        numbers = [self.sequences.get(body, 0) for _, body in found]
        last = max([restated, *numbers])
        if not self.world.is_full or epoch < max(self.world.led):
            return last
        known = {first for _, first, _, _ in self._buffer.kept}
        error = Sender.lost_of(self._buffer, LOG, last)
        told = {int(one, 16) for one in error.message_ids} if error is not None else set()
        lost = {self.sequences.get(body, 0) for body in self.lost} & known
        self.lost = frozenset()
        self.world.told_lost += len(told)
        if told != lost:
            wrong = sorted(told ^ lost)[:5]
            self.world.fault(f"ConfirmedLost: {len(told)} told, {len(lost)} lost; wrong: {wrong}")
        return last


def promote(world, name):
    """An operator looks whether nobody leads, stops the others, and has this one go on alone."""
    process, state, now = world.processes.get(name), world._state(name), world.configuration()
    leader = world.engine.standing_leader()
    is_led = leader is not None or any(one.primary for one in world.processes.values())
    if process is None or state is None or is_led or world.promoted:
        return
    if process.primary is not None or process.follower.copy.gap():
        return
    if not process.follower.copy.newest_now():
        return
    is_lost = (name, state.copy_id) in world.lost and name not in world.damaged
    if is_lost or state.copy_id in world.retired:
        return
    operator = MemoryArbiter(world.engine, "operator")
    new = goes_on_alone(now, Member(name, state.copy_id, state.starts))
    if not operator.force(now.version, new):
        return
    for other in world.names:
        if other != name:
            world.kill(other, is_power=False)
    world.damaged.pop(name, None)
    world.lost.pop((name, state.copy_id), None)
    world.promoted, world.promoted_in = name, now.epoch
    world.may_fall = set(world.names)
    world.always_far -= {name}
    world.places.clear()
    world.last_place, world.read, world.timed = None, (NOTHING, b""), None
    world.promotions += 1


def accept(world, name, there, needed, first):
    """The promoted copy leads. there: the records of its log, which begins with the segment
    `first`; needed: numbers of confirmed ones that have not left it. What it lacks of them is
    lost."""
    world.promoted = ""
    last = max(map(_order, there.values()), default=0)
    lost = [
        (lsn, body)
        for lsn, body in world.confirmed
        if (there.get(lsn) != body if lsn in needed else _order(body) > last)
    ]
    world.reader.lost = frozenset(body for _, body in lost)
    adopted = {one for one in world.adopted if _order(one) > last or world.written_in[one] >= first}
    _remember(world, adopted - {*there.values()})
    past = world.kept_bytes(name, ".history")
    world.adopted |= {one for one in world.gone if one in past}  # they had left this log
    world.losses += len(lost)
    world.confirmed = [one for one in world.confirmed if one not in set(lost)]
    for lsn, _ in lost:
        del world.confirmed_in[lsn], world.bodies_of[lsn]
    data = b"".join(there.values())
    names = set(re.findall(rb"\+([0-9a-f-]{90})\)", data))
    for file in sorted(world.files):
        if file.encode() not in names:
            del world.files[file]
    world.last_place, world.timed = None, None


def _remember(world, lost):
    """What is in this log no more, its machines set aside when they come back (H7). What had left
    the log there, while that branch was led, goes by the limits of the history."""
    world.adopted -= lost
    world.gone |= lost
    for name in world.names:
        data = world.kept_bytes(name, (".log", ".pinned", ".aside"))
        there = {body for body in lost if body in data}
        world.synced[name] = (world.synced[name] - lost) | there


def _order(body):
    """In which records were written."""
    return int(body[1 : body.index(b" ")])


def rises_again(world, name, place):
    """A copy of the log before the promotion says its old place until it is cut; whether it does
    not any more."""
    if name not in world.may_fall:
        return True
    file = world.disks[name].names.get(segment_file(FOLDER, place.segment).name)
    header = (
        None if file is None else unpack_segment_header(bytes(file.cache[:SEGMENT_HEADER_BYTES]))
    )
    if header is None or header.epoch <= world.promoted_in:
        return False
    world.may_fall.discard(name)
    return True
