"""Faults of replicas that are planted on purpose: a checker that never failed is not trusted.

Each changes the product, through monkeypatch, as a mistake would.
"""

from msgspec import structs

from hms.server.arbiter.interface import encode
from hms.server.arbiter.memory import MemoryArbiter
from hms.server.replicas.confirmation import Confirmation, _Peer
from hms.server.replicas.follower import Follower
from hms.server.replicas.leadership import Campaign, Leadership
from hms.server.replicas.log_copy import LogCopy
from hms.server.replicas.primary import Primary
from hms.store.journal.segment_walk import last_written


def confirmed_by_one_fewer(patch):
    """Confirm at A - 1."""

    def reached(self, rule):
        have = sorted((self._mark_of(one.copy_id) for one in rule.members), reverse=True)
        return have[max(rule.copies - 2, 0)]

    patch.setattr(Confirmation, "_reached", reached)


def answered_before_sync(patch):
    """Acknowledge before the sync."""
    patch.setattr(LogCopy, "sync", lambda self: self._unsynced.clear())


def promise_not_kept(patch):
    """The promise is not durable."""

    def promise(self):
        self._state = structs.replace(self._state, promised=self._leadership.promised)

    patch.setattr(Follower, "_promise", promise)


def unconfirmed_shown(patch):
    """A reader is told of what this copy has, not of what is confirmed."""

    def find(self):
        self._place = self._places[-1][1] if self._places else self._place

    patch.setattr(Primary, "_find_place", find)


def learner_counted(patch):
    """A copy counts before it has the whole log."""
    patch.setattr(_Peer, "is_whole", property(lambda self: self.acked >= 0 and self.heard_s > 0))


def changed_without_version(patch):
    """The configuration is changed whatever version it has: a deposed primary shrinks it."""

    def change(self, _expected, new):
        engine = self._reach()
        now = self._now(engine)
        engine.value = encode(structs.replace(new, version=now.version + 1))
        return True

    patch.setattr(MemoryArbiter, "change", change)


def stranger_campaigns(patch):
    """A copy that was removed takes over all the same."""
    decide = Leadership.decide

    def hasty(self, standing, now_s):
        action = decide(self, standing, now_s)
        if standing.leader is None and self.is_silent(now_s):
            return Campaign(standing.configuration.version)
        return action

    patch.setattr(Leadership, "decide", hasty)


def gone_back_counted(patch):
    """Starts are not compared."""
    patch.setattr(Leadership, "_known_start", lambda *_: -1)


def shrunk_before_the_answer(patch):
    """The new rule holds before anybody knows that the arbiter has it."""

    def asking(self, new):
        self.now = new
        self._advance()

    patch.setattr(Confirmation, "asking", asking)
    patch.setattr(Confirmation, "may_ask", lambda *_: True)


def admitted_while_it_lacks_some(patch):
    """A copy is admitted before it has what was confirmed meanwhile."""
    patch.setattr(Confirmation, "may_ask", lambda *_: True)


def gap_taken_for_whole(patch):
    """The end of what a copy has is where its last byte stands, whatever a cut left before."""

    def end(self, number):
        found = last_written(self._disk, self._fd(number), 64)
        return found + -found % 8

    patch.setattr(LogCopy, "_end", end)


def tail_cut_for_good(patch):
    """What nobody adopted is written over."""
    patch.setattr(LogCopy, "_copy_aside", lambda self, number: self._tails.pop(number))


PLANTS = [
    tail_cut_for_good,
    confirmed_by_one_fewer,
    answered_before_sync,
    promise_not_kept,
    learner_counted,
    changed_without_version,
    stranger_campaigns,
    gone_back_counted,
    shrunk_before_the_answer,
    admitted_while_it_lacks_some,
    unconfirmed_shown,
    gap_taken_for_whole,
]
