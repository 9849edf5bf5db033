"""Faults of replicas that are planted on purpose: a checker that never failed is not trusted.

Each changes the product, through monkeypatch, as a mistake would.
"""

from types import MappingProxyType

from msgspec import structs

from hms.boot.clock import EvenClock
from hms.client.send_buffer import Sender
from hms.server.arbiter.interface import Configuration, Member, encode
from hms.server.arbiter.memory import MemoryArbiter
from hms.server.replicas import primary
from hms.server.replicas.catching_up import plan
from hms.server.replicas.confirmation import Confirmation, _Peer
from hms.server.replicas.follower import Follower, Won
from hms.server.replicas.frames import Fence
from hms.server.replicas.leadership import Campaign, Leadership, Role
from hms.server.replicas.link import Group
from hms.server.replicas.log_copy import LogCopy
from hms.server.replicas.primary import Primary
from hms.server.replicas.promises import GiveWay, Lead, Promises
from hms.store.journal.confirmed_place import Place
from hms.store.journal.disk import write_all
from hms.store.journal.lock import DirectoryLock
from hms.store.journal.segment_walk import (
    PINNED_SUFFIX,
    Walk,
    last_written,
    segment_numbers,
)
from tests.sim.replicas.what_is_fixed import LOG


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
    stranger_promises(patch)


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


def one_admitted_at_a_time(patch):
    """Each copy that came is a change of its own, and who is silent another one."""
    choices = Confirmation._choices

    def one(self, now_s):
        for member in self._come(now_s).values():
            yield [*(old for old in self.now.members if old.name != member.name), member]
            return
        yield from choices(self, now_s)

    patch.setattr(Confirmation, "_choices", one)


def shrunk_below_copies_min(patch):
    """Who is silent is left out, however few remain."""

    def choices(self, now_s):
        come = self._come(now_s)
        here = self._present_of(self.now, now_s, self._limits.timeout_s)
        yield [*(one for one in here if one.name not in come), *come.values()]

    patch.setattr(Confirmation, "_choices", choices)


def gap_taken_for_whole(patch):
    """The end of what a copy has is where its last byte stands, whatever a cut left before."""

    def end(self, number):
        found = last_written(self._disk, self._fd(number), 64)
        return found + -found % 8

    patch.setattr(LogCopy, "_end", end)


def tail_cut_for_good(patch):
    """What nobody adopted is written over."""
    patch.setattr(LogCopy, "_copy_aside", lambda self, number: self._tails.pop(number))


def file_not_sent(patch):
    """A record is acknowledged without the file that it names."""
    patch.setattr(Primary, "_send_file", lambda *_: True)


def shorter_tail_adopted(patch):
    """Any candidate with enough promises leads, whoever goes furthest."""
    verdict = Promises.verdict

    def first(self, me):
        found = verdict(self, me)
        return Lead(("it",)) if isinstance(found, GiveWay) else found

    patch.setattr(Promises, "verdict", first)


def longest_segment_adopted(patch):
    """The copy whose last segment is the longest leads, of whatever epoch."""

    def verdict(self, me):
        if self.have < self.needed:
            return None
        ends = {one: end.offset for one, end in self._ends.items()}
        to = max(ends, key=lambda one: (ends[one], one == me))
        return Lead(()) if to == me else GiveWay(self._names[to])

    patch.setattr(Promises, "verdict", verdict)


def one_promise_too_few(patch):
    """A take-over with T - 1."""
    made = Promises.__init__

    def fewer(self, now):
        made(self, now)
        self.needed = max(1, self.needed - 1)

    patch.setattr(Promises, "__init__", fewer)


def copy_counted_twice(patch):
    """A promise that comes again, after a copy joined again, is another one."""
    promised = Promises.promised

    def again(self, copy_id, end, *, is_clean):
        if is_clean and copy_id in self._ends:
            self._names[copy_id + "'"] = self._names[copy_id]
            self._ends[copy_id + "'"] = end
        promised(self, copy_id, end, is_clean=is_clean)

    patch.setattr(Promises, "promised", again)


def stranger_promises(patch):
    """A copy that does not count promises: one that was removed, or a new disk."""

    def promised(self, copy_id, end, *, is_clean):
        self._names.setdefault(copy_id, copy_id)
        if is_clean:
            self._ends[copy_id] = end

    patch.setattr(Promises, "promised", promised)


def damage_taken_for_torn(patch):
    """A last record that does not verify was never written in full."""
    patch.setattr(Walk, "is_torn", lambda _self: True)


def promise_answered_before_durable(patch):
    """A Fence is answered while an older epoch is still taken."""
    promised = Follower._promised
    admit = Follower._admit

    def not_yet(self, envelope):
        if isinstance(envelope.said, Fence):
            return
        admit(self, envelope)

    patch.setattr(Follower, "_admit", not_yet)
    patch.setattr(Follower, "_promised", promised)


def not_in_sync_counted(patch):
    """A member that joined again counts with what it had acknowledged, while it lacks some."""

    def mark(self, copy_id):
        if copy_id == self._me.copy_id:
            return self.own
        peer = self._peers.get(copy_id)
        return (
            self.written if peer is not None and not peer.is_whole else (peer and peer.acked) or 0
        )

    patch.setattr(Confirmation, "_mark_of", mark)


def shrunk_to_copies_that_lack_older_epochs(patch):
    """At the beginning of a term nothing of it is confirmed: anybody has that."""

    def may_ask(self, new):
        self._is_sent = self._is_sent or self._reached(new) >= self.confirmed
        return self._is_sent

    patch.setattr(Confirmation, "may_ask", may_ask)
    patch.setattr(Confirmation, "_are_here", lambda *_: True)


def begun_by_the_machines_clock(patch):
    """Who takes over begins as at a boot: an hour ahead, all that lives for an hour expires."""
    patch.setattr(Won, "node_ms", lambda *_: None)


def time_goes_back(patch):
    """Who takes over begins where its own clock is, wherever the log is."""
    begun_by_the_machines_clock(patch)
    patch.setattr(EvenClock, "begin_at", lambda *_: None)


def asynchronous_taken_in(patch):
    """A copy that has everything counts, whatever hms.conf says of it."""
    patch.setattr(Group, "asynchronous", frozenset())


def asynchronous_confirms(patch):
    """What any copy has counts, whether it is a member or not."""

    def reached(self, rule):
        marks = [self.own, *(one.acked for one in self._peers.values() if one.is_whole)]
        return sorted(marks, reverse=True)[rule.copies - 1] if len(marks) >= rule.copies else 0

    patch.setattr(Confirmation, "_reached", reached)


def pinned_segments_removed(patch):
    """A copy that has a segment which stays, pinned, at the primary takes it for one that went."""
    keep = LogCopy._keep

    def forgetful(self, said):
        keep(self, structs.replace(said, pinned=[]))

    patch.setattr(LogCopy, "_keep", forgetful)


def pinned_not_sent(patch):
    """A copy that comes gets the log, and not the segments behind it that are needed."""
    headers = Primary._headers_now

    def without(self):
        pinned = segment_numbers(self._disk, self._folder, PINNED_SUFFIX)
        return {number: one for number, one in headers(self).items() if number not in pinned}

    patch.setattr(Primary, "_headers_now", without)


def loss_not_told(patch):
    """A client is connected to a log that lacks what was confirmed to it, and says nothing."""
    patch.setattr(Sender, "lost_of", lambda *_: None)


def loss_told_of_all(patch):
    """A client tells that a log has lost all that it remembers, not what is behind its end."""
    lost_of = Sender.lost_of
    patch.setattr(Sender, "lost_of", lambda self, log, last: lost_of(self, log, last and last - 1))


def failed_sync_tried_again(patch):
    """A sync that failed is asked for again, and finds nothing to do (P7)."""
    sync = LogCopy.sync

    def again(self):
        try:
            sync(self)
        except OSError:
            for fd in self._open.values():
                self._disk._fds[fd].is_broken = False
            sync(self)

    patch.setattr(LogCopy, "sync", again)


def older_epoch_accepted(patch):
    """A copy takes frames of an epoch that it has promised to take none of any more."""

    def accepts(self, epoch, primary, start):
        if self.role is not Role.FOLLOWING:
            return False
        self._source, self.leader = (epoch, primary, start), (primary, epoch)
        self.promised = max(self.promised, epoch)
        return True

    patch.setattr(Leadership, "accepts", accepts)


def first_record_not_waited_for(patch):
    """Who takes over serves before anything of its epoch is confirmed."""
    patch.setattr(
        Confirmation,
        "is_confirmed",
        lambda self, mark: mark <= self.confirmed or not self.confirmed,
    )


def cut_by_number_alone(patch):
    """Segments of one number are taken for the same, whoever wrote them."""
    begin = LogCopy._begin

    def by_number(theirs, ends, ours, left=MappingProxyType({}), lost_epoch=0):
        same = {number: ours.get(number, header) for number, header in theirs.items()}
        return plan(same, ends, ours, left, lost_epoch)

    def over(self, said, header):
        if self._find(said.number) is not None:
            write_all(self._disk, self._fd(said.number), [header], 0)
        begin(self, said, header)

    patch.setattr(primary, "plan", by_number)
    patch.setattr(LogCopy, "_begin", over)


def unconfirmed_applied(patch):
    """A hot standby applies all that it has."""
    step = Follower.step

    def hasty(self, pause_s):
        won = step(self, pause_s)
        if won is None:
            end, _ = self.copy.tail()
            self._applies.turn(Place(end.number, end.offset), is_idle=False)
        return won

    patch.setattr(Follower, "step", hasty)


def second_process_let_in(patch):
    """The lock of a store is not looked at."""
    patch.setattr(DirectoryLock, "_take", lambda *_: None)


def arbiter_begun_anew(patch):
    """A copy that finds no configuration begins a group of its own."""
    read = MemoryArbiter.read

    def eager(self):
        found = read(self)
        if found is None:
            self.begin(Configuration(1, LOG, members=(Member(self._me, "e" * 32),)))
            found = read(self)
        return found

    patch.setattr(MemoryArbiter, "read", eager)


def later_records_not_looked_at(patch):
    """A sector that is zero is a torn write, also where more was written behind it later."""
    patch.setattr(Walk, "is_proved_synced", lambda *_: False)


def lost_end_removed(patch):
    """The end of a last segment that has left the log goes with it."""
    patch.setattr(Primary, "_cut_first", lambda *_: None)


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
    file_not_sent,
    begun_by_the_machines_clock,
    time_goes_back,
    older_epoch_accepted,
    first_record_not_waited_for,
    cut_by_number_alone,
]

PLANTS_OF_THREE = [
    shorter_tail_adopted,
    longest_segment_adopted,
    one_promise_too_few,
    stranger_promises,
    damage_taken_for_torn,
    promise_answered_before_durable,
    not_in_sync_counted,
    confirmed_by_one_fewer,
    one_admitted_at_a_time,
    shrunk_below_copies_min,
]
"""Found in worlds of three copies."""

PLANTS_OF_FIVE = [
    copy_counted_twice,
    gap_taken_for_whole,
    shrunk_to_copies_that_lack_older_epochs,
]
"""A take-over takes three of five."""

PLANTS_OF_ALL = {
    pinned_segments_removed: (12, 2),
    pinned_not_sent: (12, 2),
    loss_not_told: (1, 2),
    loss_told_of_all: (1, 2),
    failed_sync_tried_again: (16, 2),
    unconfirmed_applied: (1, 2),
    second_process_let_in: (1, 2),
    arbiter_begun_anew: (1, 2),
    lost_end_removed: (126, 3),
}
"""Found in worlds where everything happens; seeds that are likely to find them, and how many
copies there are."""

PLANTS_OF_ZEROS = [later_records_not_looked_at]
"""Found where a sector is zeroed, as tests.sim.replicas.staged has it."""

PLANTS_WITH_ONE_FAR = [asynchronous_taken_in, asynchronous_confirms, stranger_campaigns]
"""Of two copies that count and an asynchronous one."""
