"""Segments that leave a log: pinned, to the history, or for good, by the journal's own manager.

What an engine would tell again before the oldest segment leaves stands in a record of the log: the
segments that stay pinned, the last number that the log has of a client (deduplication), and from
which segment on the log is needed then.
"""

import re

from hms.store.journal.segment_manager import LogLimits, SegmentManager
from tests.sim.replicas.what_is_fixed import FOLDER, SEGMENT

TOLD = re.compile(rb"=([\d.]*)/(\d+)/(\d+)\)$")
SEGMENTS_MIN = 3
CLEANS, PINS, EMPTIES = 0.3, 0.5, 0.1
HISTORIES = 0, 3 * SEGMENT, 1 << 30


class NoSpare:
    """Files are not used again here: the disk of the world has no end."""

    is_out_of_space, refusal, has_room_to_clean, wanted = False, None, True, 1

    def offer(self, _file):
        """No, it goes."""
        return False


class StaysWhole:
    """Of a world whose logs grow."""

    sequence, pins, first, told_first = 0, frozenset(), 1, 1

    def __init__(self, _world, _disk, _bodies):
        pass

    def begun_with(self, _recovery):
        """Nothing is left of a log."""

    def oldest_for(self, _lsn):
        """All of it is needed."""
        return 1

    def begun(self, _number, _oldest):
        """One more."""

    def tells(self, _number, _lsn):
        """Nothing is to be told again."""
        return b""

    def sent(self, _body, *, is_of_client):
        """It counts nobody's messages."""

    def let_go(self, _lsn):
        """Nothing."""
        return False


class Leaving:
    """Of one primary. bodies: of the records that its log begins with."""

    def __init__(self, world, disk, bodies):
        self.world = world
        spare = NoSpare()
        given = spare, lambda _number: None, lambda _number: None
        self.manager = SegmentManager(disk, FOLDER, SEGMENT, world.past_limits, *given)
        told = next((one for body in reversed(bodies) if (one := TOLD.search(body))), None)
        self.pins, self.sequence, self.told_first = set(), 0, 1
        if told is not None:
            self.pins = {int(number) for number in told[1].split(b".") if number}
            self.sequence, self.told_first = int(told[2]), int(told[3])

    def begun_with(self, recovery):
        """As the journal does at a boot: what is pinned by its name only is needed no more."""
        self.manager.found(recovery.segments, recovery.oldest, recovery.pinned)
        self.manager.emptied(set(recovery.pinned) - self.pins, recovery.next_lsn - 1)
        self.manager.pin(self.pins)

    @property
    def first(self):
        """The first segment of the log."""
        return self.manager.oldest

    def oldest_for(self, lsn):
        """What the header of the next segment says."""
        return self.manager.oldest_for(lsn)

    def begun(self, number, oldest):
        """A segment is safe with its header."""
        self.manager.begun(number, oldest)

    def tells(self, newest, lsn):
        """At times, what the next record tells again, as the oldest segment is about to leave, or
        nothing in a pinned one is needed any more; b"" when there is no reason."""
        rng, first = self.world.rng, self.manager._first()
        if newest - first >= SEGMENTS_MIN and rng.random() < CLEANS:
            if rng.random() < PINS:
                self.pins.add(first)
                self.manager.pin([first])
            self.manager.cleaned(first, lsn)
            self.told_first = first + 1
        elif self.pins and rng.random() < EMPTIES:
            empty = rng.choice(sorted(self.pins))
            self.pins.discard(empty)
            self.manager.emptied([empty], lsn)
        else:
            return b""
        self.world.left += 1
        pins = b".".join(b"%d" % number for number in sorted(self.pins))
        return b" =%s/%d/%d" % (pins, self.sequence, self.told_first)

    def sent(self, body, *, is_of_client):
        """A record that a client waits for."""
        if is_of_client:
            self.sequence = self.world.reader.sends(body)

    def let_go(self, lsn):
        """What is confirmed up to there has left; whether files have other names now."""
        return self.manager.is_due(lsn) and self.manager.let_go(lsn)


def limits_of(rng):
    """How much of the past a machine keeps."""
    return LogLimits(history_bytes_max=rng.choice(HISTORIES))
