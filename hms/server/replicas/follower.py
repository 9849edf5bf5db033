"""A follower: takes the primary's log as it comes, and takes over when nobody leads.

The arbiter is asked only while the primary is silent. What comes is written and synced in turns:
all that is there, one sync, one answer.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import structs

from hms.errors.catalogue import ArbiterUnavailable, ReplicaFrameBad, StoreFailed
from hms.server.arbiter.interface import Arbiter, Configuration
from hms.server.replicas.archive_marks import ArchiveMarks
from hms.server.replicas.copy_state import CopyState, write_state
from hms.server.replicas.damage import (
    check_segment,
    forget_damages,
    is_needed,
    note_damages,
    read_damages,
    tail_damage,
)
from hms.server.replicas.frames import (
    Ack,
    AppliedUpTo,
    Aside,
    AskApplied,
    Beat,
    BeatAck,
    Bye,
    Clock,
    ConfirmedUpTo,
    Cut,
    Data,
    Drop,
    Envelope,
    Fence,
    Mark,
    Promised,
    Reads,
    Rejoin,
    Resume,
    Said,
    Time,
    Whole,
    before,
    decode,
)
from hms.server.replicas.leadership import Campaign, Follow, Leadership
from hms.server.replicas.link import FollowerLink, FollowerSocket, Group, Peer, now_s
from hms.server.replicas.log_copy import NO_LIMITS, LogCopy, Told
from hms.server.replicas.take_over import TakeOver
from hms.store.journal.confirmed_place import NOTHING, ConfirmedPlace, Place
from hms.store.journal.disk import Disk
from hms.store.journal.format import FORMATS
from hms.store.journal.segment_manager import LogLimits
from hms.store.journal.segment_walk import ReadUpTo

__all__ = ["NOTHING_APPLIED", "Applies", "Follower", "Won"]

log = logging.getLogger("hms.replicas")

SILENT_BEATS: Final = 2
BEATS_PER_LEASE: Final = 5
LOOKS_PER_LEASE: Final = 20
JOINS_BEFORE: Final = 3
"""Each so many-th join that nobody answers is said as in the release before."""
LOST_S: Final = 0.25
"""So often the arbiter is asked when the connection to the primary ended."""
SOON_S: Final = 0.015
"""How often at first, when the primary has left or is lost; less and less often from then on."""
YIELDS_S: Final = 0.3
"""So long a copy that has much to apply leaves a free lease to others: one that has applied all
serves sooner."""
MUCH_BYTES: Final = 1 << 20
_IDLE: Final = threading.Event()
"""Never set: who has no link waits for the next look."""


class Won:
    """A campaign that was won. silent_since_s: since when the others are known to be silent; told:
    what the clock of the node said at the primary before, and when that was heard; took: how it
    came to that."""

    def __init__(
        self,
        configuration: Configuration,
        silent_since_s: float,
        told: tuple[int, float] | None = None,
        took: TakeOver | None = None,
    ) -> None:
        self.configuration, self.silent_since_s = configuration, silent_since_s
        self._told, self.took = told, took

    def node_ms(self, now_s: float) -> int | None:
        """What the clock of the node says now, by the time that has passed here since it was told;
        None for a copy that heard nothing of it."""
        return None if self._told is None else self._told[0] + int((now_s - self._told[1]) * 1000)


class Applies(Protocol):
    """What is made of the log while it comes."""

    def turn(self, confirmed: Place, *, is_idle: bool) -> bool:
        """After each turn. confirmed: up to where; is_idle: nothing came in it. True when there is
        more to do at once."""

    @property
    def verified(self) -> ReadUpTo | None:
        """Up to where it has read the log in this process."""

    @property
    def place(self) -> Place | None:
        """What lies before it is applied; None where nothing is applied before a take-over."""

    def hurry(self) -> None:
        """A move waits for the rest."""


class AppliesNothing:
    """The log is read at the take-over."""

    verified = place = None

    def turn(self, confirmed: Place, *, is_idle: bool) -> bool:  # noqa: ARG002 - as Applies has it
        """Nothing is done."""
        return False

    def hurry(self) -> None:
        """Nobody waits for it."""


NOTHING_APPLIED: Final = AppliesNothing()


def _no_clock() -> int | None:
    """The machine's cannot be read."""
    return None


def _tells_nobody(_said: Mapping[str, Any]) -> None:
    """Nobody wants to know."""


class Follower:
    """One copy, until it leads; one thread. waits: told what is waited for; pauses: told now and
    then that it goes on."""

    def __init__(
        self,
        group: Group,
        folder: Path,
        disk: Disk,
        arbiter: Arbiter,
        leadership: Leadership,
        state: CopyState,
        waits: Callable[[str], None],
        pauses: Callable[[], None],
        link: Callable[[Group, str], FollowerLink] = FollowerSocket,
        clock_s: Callable[[], float] = now_s,
        limits: LogLimits = NO_LIMITS,
        learn: Callable[[], Mapping[str, Peer]] = dict,
        applies: Applies = NOTHING_APPLIED,
        tells: Callable[[Mapping[str, Any]], None] = _tells_nobody,
        machine_ms: Callable[[], int | None] = _no_clock,
    ) -> None:
        """learn: the replicas as hms.conf has them now; tells: what describe() says, after each
        turn; machine_ms: the machine's own clock."""
        self._group, self._folder, self._disk, self._arbiter = group, folder, disk, arbiter
        self._leadership, self._state = leadership, state
        self._waits, self._pauses = waits, pauses
        self.copy = LogCopy(disk, folder, limits, self._verified)
        self._confirmed = ConfirmedPlace(disk, folder)
        self._marks = ArchiveMarks(disk, folder)
        self._make_link, self._clock_s, self._learn = link, clock_s, learn
        self._applies, self._has_more = applies, False
        self._link: FollowerLink | None = None
        self._heard_s = self._joined_s = self._looked_s = float("-inf")
        self._taken = self._mark = self._joins = 0
        """Frames since it joined last, and how often it did: what a primary has sent before and
        behind that in one turn may be as many."""
        self._is_resumed = self._is_whole = False
        self._tells, self._machine_ms = tells, machine_ms
        self._hears_clock = False
        """The primary that was joined tells its time, so it knows that there are clocks."""
        self._unanswered = 0
        """So many times it has joined since a primary answered."""
        self._refusal = ""
        """What is to be done, where the primary does not know this copy's key, or this one that
        of the primary."""
        self._is_lost = False
        """The connection to the primary ended, as it does when its process ends."""
        self._is_told = False
        """The replica that is followed is about to lead, and says so itself: the arbiter has no
        more news, and who asks it does not hear that one meanwhile."""
        self._alone_s: float | None = None
        """Since when nobody leads here, as far as it is known."""
        self._may_be_repaired = self._has_answer = True
        self._damaged: dict[int, int] = {}
        """Where segments are damaged, as the primary was told."""
        self.refused = 0
        self._has_all_ms: int | None = None
        """By the node's clock: what was written until then is here."""
        self.told: tuple[int, float] | None = None
        """What the node's clock said last, and when that was heard."""

    def run(self) -> Won:
        """Follow, until a campaign is won."""
        pause_s = min(self._group.lease_s / LOOKS_PER_LEASE, LOST_S)
        try:
            self.begin()
            while True:
                if (won := self.step(pause_s)) is not None:
                    return won
                self._tells(self.describe())
        except OSError as fault:
            detail = f"{self._folder}: {fault.strerror or fault}"
            raise StoreFailed(detail=detail, path=str(self._folder)) from fault
        except BaseException as fault:
            # Told to stop it says no good-bye: for that it would count no more, and it may be
            # booted again at once.
            self._is_lost = self._is_lost or not isinstance(fault, Exception)
            raise
        finally:
            self.end()

    def begin(self) -> None:
        """The process started."""
        self._confirmed.begin()
        if (found := tail_damage(self._disk, self._folder)) is not None:
            note_damages(self._disk, self._folder, [found])
        self._leadership.begin(self._clock_s())

    def step(self, pause_s: float) -> Won | None:
        """One turn: look when that is due, take what has come within the pause."""
        if self._link is not None and self._link.is_lost():
            self._is_lost, self._looked_s = True, float("-inf")
            self._leadership.lost()
        if self._is_look_due(self._clock_s()) and (won := self._look()) is not None:
            return won
        if self._alone_s is not None:
            pause_s = min(pause_s, SOON_S)
        taken = self._taken
        self._take(0 if self._has_more else pause_s)
        is_idle = self._taken == taken
        self._has_more = self._applies.turn(self._confirmed.place, is_idle=is_idle)
        return None

    def describe(self) -> dict[str, Any]:
        """What this copy knows of itself, from memory. heard_s: when its primary said something
        last, by the clock of now_s(); is_in_sync: it had all when it was told so last; has_all_ms:
        by the node's clock, until when it has what was written."""
        heard_s = self._heard_s if self._heard_s > float("-inf") else None
        segment, offset = self._confirmed.place
        return {
            "epoch": self._leadership.promised,
            "is_in_sync": self._is_whole and not self._is_lost and not self._leadership.is_left,
            "heard_s": heard_s,
            "has_all_ms": self._has_all_ms,
            "confirmed_segment": segment,
            "confirmed_offset": offset,
            "applied_lsn": self._applied_lsn,
            "refused": self.refused,
        }

    def end(self) -> None:
        """Let go of the link and the files."""
        self._hang_up()
        self.copy.close()

    def _verified(self) -> ReadUpTo | None:
        """Up to where the log was read in this process, and is confirmed: it need not be read again
        to find its end."""
        known = self._applies.verified
        if known is None or Place(known.number, known.offset) > self._confirmed.place:
            return None
        return known

    @property
    def _beats_s(self) -> float:
        return self._group.lease_s * SILENT_BEATS / BEATS_PER_LEASE

    def _is_look_due(self, at_s: float) -> bool:
        """The primary is silent; while it is the arbiter is asked several times in a lease."""
        is_there = not (self._leadership.is_left or self._is_lost)
        if is_there:
            self._alone_s = None
        elif self._alone_s is None:
            self._alone_s = at_s
        if is_there and at_s - self._heard_s < self._beats_s:
            return False
        pause_s = self._group.lease_s / BEATS_PER_LEASE / SILENT_BEATS
        if self._alone_s is not None:
            soon_s = LOST_S if self._is_told else max(SOON_S, (at_s - self._alone_s) / 8)
            pause_s = min(pause_s, LOST_S, soon_s)
        return at_s - self._looked_s >= pause_s

    def _look(self) -> Won | None:
        at_s = self._looked_s = self._clock_s()
        self._pauses()
        try:
            standing = self._arbiter.read()
            action = self._leadership.decide(standing, at_s)
            if self._state.starts != self._leadership.start:
                self._keep(starts=self._leadership.start)
            if isinstance(action, Campaign):
                assert standing is not None
                if self._leadership.is_promoted(standing.configuration):
                    self._accept_end()
                damage, yields = self._damage_of_log(), self._yields(standing.configuration, at_s)
                if not (damage or yields):
                    return self._campaign(action, standing.configuration.primary)
                why = f"a copy that is whole: {damage}" if damage else "one that has applied more"
                self._waits(why)
                action = Follow(standing.configuration.primary, why)
        except ArbiterUnavailable as fault:
            self._waits("an arbiter that does not answer")
            if self._has_answer:  # once, until it answers again
                log.warning("%s", fault)
            self._has_answer = False
            return None
        self._has_answer = True
        assert standing is not None
        now, is_led = standing.configuration, standing.leader is not None
        is_new = is_led and self._leadership.is_later(now.epoch)
        self._is_told = is_new or action.primary != now.primary
        if action.primary != self._group.me:  # else its own lease, of a life before, is to end
            self._waits(self._refusal or action.why)
        self._follow(action.primary)
        return None

    def _yields(self, now: Configuration, at_s: float) -> bool:
        """Whether another copy is to try first, as it may serve sooner."""
        me, applied, confirmed = self._leadership, self._applies.place, self._confirmed.place
        if applied is None or self._alone_s is None or me.handed_by:
            return False
        is_near = Place(confirmed.segment, confirmed.offset - MUCH_BYTES) <= applied
        others = [one for one in now.members if one.name not in (me.me, now.primary)]
        return bool(others) and not is_near and at_s - self._alone_s < YIELDS_S

    def _damage_of_log(self) -> str:
        """Why this copy must not lead, as it lacks what it had answered for; "" when it may."""
        if self._may_be_repaired:
            self._may_be_repaired = False
            self._forget_repaired()
        known = read_damages(self._disk, self._folder).values()
        needed = [one for one in known if is_needed(self._disk, self._folder, one.segment)]
        texts = [f"segment {one.segment} is damaged at {one.offset}" for one in needed]
        return ", ".join(texts)

    def _forget_repaired(self) -> None:
        """A primary may have repaired this copy and gone before that was looked at."""
        self.copy.sync()
        newest = self.copy.newest_now()
        older = [n for n in read_damages(self._disk, self._folder) if n < newest]
        if good := [n for n in older if check_segment(self._disk, self._folder, n) is None]:
            forget_damages(self._disk, self._folder, good)

    def _accept_end(self) -> None:
        """An operator knows where this copy ends, and that more was confirmed (--lossy)."""
        self._confirmed.lower(NOTHING)
        newest = self.copy.newest_now()
        known = read_damages(self._disk, self._folder)
        if behind := [number for number in known if number >= newest]:
            log.warning("what is lost behind segment %d is accepted by an operator", newest)
            if (damage := known.get(newest)) is not None:  # else found again at a start
                self.copy.end_at(newest, damage.offset)
            forget_damages(self._disk, self._folder, behind)
        self.copy.open_end()

    def _campaign(self, action: Campaign, before: str) -> Won | None:
        self.copy.sync()  # it may have been a copy that catches up
        asked_s, me = self._clock_s(), self._leadership
        since_s = float("-inf") if me.is_silent(asked_s) else asked_s
        cause = self._cause
        won = self._arbiter.campaign(action.version, me.me, me.start)
        if won is None:
            return None
        log.warning("%s leads %s from epoch %d on", me.me, self._group.node, won.epoch)
        me.won(won, asked_s)
        self._promise()
        heard_s = None if cause == "BOOT" else self._heard_s
        return Won(won, since_s, self.told, TakeOver(before, cause, heard_s, self._clock_s()))

    @property
    def _cause(self) -> str:
        """Why it is this copy's turn, as TakeOver has it."""
        if self._heard_s == float("-inf"):
            return "BOOT"
        if self._leadership.handed_by:
            return "HANDED_OVER"
        if self._leadership.is_again:
            return "AGAIN"
        if self._leadership.is_left:
            return "LEFT"
        return "LOST" if self._is_lost else "SILENT"

    def _keep(self, **changes: int) -> None:
        """Durable, before anything that depends on it is said."""
        self._state = structs.replace(self._state, **changes)
        write_state(self._disk, self._folder, self._state)

    def _promise(self) -> None:
        self._keep(promised=self._leadership.promised)

    # the link

    def _follow(self, primary: str) -> None:
        """Connect and join, again while nothing comes."""
        if primary == self._group.me or not self._knows(primary):
            return
        is_same = self._link is not None and self._link.primary == primary
        since_s = self._joined_s
        if not self._is_lost and self._alone_s is not None:
            since_s = max(since_s, self._alone_s)  # it has left, and says when its lease is free
        if is_same and self._clock_s() - since_s < self._beats_s:
            return
        self._refusal = self._key_fault(self._link) if self._link is not None and is_same else ""
        if self._refusal:
            self._waits(self._refusal)
        self._hang_up()
        self._link = self._make_link(self._group, primary)
        self._join()

    def _key_fault(self, link: FollowerLink) -> str:
        """What is to be done where one of the two machines knows another key than the other one
        shows; "" where it is not that."""
        me, primary = self._group.me, link.primary
        if link.refuses_key():
            return f"{primary} to know the key of {me}: [replica.{me}] there has another one"
        if link.shows_other_key():
            return f"the key of {primary}, which hangs up: [replica.{primary}] here has another one"
        return ""

    def _knows(self, primary: str) -> bool:
        """Where it is; one that was added while this copy ran is looked for in hms.conf."""
        if primary and primary not in self._group.peers:
            self._group = structs.replace(self._group, peers={**self._group.peers, **self._learn()})
            if primary not in self._group.peers:
                self._waits(f"[replica.{primary}], which hms.conf here does not have")
        return primary in self._group.peers

    def _join(self) -> None:
        self._joined_s, self._is_resumed, self._is_whole = self._clock_s(), False, False
        self._taken = self._mark = 0
        self._joins += 1
        self._hears_clock = False
        self._marks.again()
        self._may_be_repaired = True
        self._forget_repaired()  # a candidate counts no copy that says it is damaged
        known = read_damages(self._disk, self._folder)
        self._damaged = {one.segment: one.offset for one in known.values()}
        joins = self.copy.joins(self._state.copy_id, self._leadership.promised, self._damaged)
        self._unanswered += 1  # a primary of a release before does not read what it does not know
        self._say(joins if self._unanswered % JOINS_BEFORE else before(joins))

    def _hang_up(self) -> None:
        if self._link is not None:
            if not (self._leadership.is_left or self._is_lost):  # else it would wait to be heard
                with suppress(OSError):
                    self._say(Bye())
            self._link.close()
            self._link = None

    def _say(self, said: Said) -> None:
        assert self._link is not None
        me = self._leadership
        self._link.say(me.log, me.me, me.start, said)

    def _take(self, timeout_s: float) -> None:
        """All that is there; synced, and said so, once. A copy that does not count yet says only
        how much it took: what it took is synced by and by, and all of it before it counts."""
        link = self._link
        if link is None:
            _IDLE.wait(timeout_s)
            return
        link.wait(timeout_s)
        taken, answers = (self._joins, self._taken), []
        for parts in link.received():
            try:
                answer = self._receive(parts)
            except ReplicaFrameBad as fault:
                self.refused += 1
                log.warning("a frame of the primary is refused: %s", fault)
                self._hang_up()
                self._looked_s = float("-inf")
                return
            if answer is not None:
                answers.append(answer)
            if self._link is None:
                return
        is_same = (self._joins, self._taken) == taken
        if self._is_whole or is_same:
            self.copy.sync()
        if not is_same:
            self._say(Ack(self._mark, self._taken))
        for answer in answers:
            self._say(answer)

    def _receive(self, parts: list[Data]) -> Said | None:
        """What is to be answered at once, if anything."""
        envelope, data = decode(parts)
        said, who = envelope.said, (envelope.epoch, envelope.replica, envelope.start)
        if isinstance(said, Fence) and not self._leadership.may_promise(*who, self._clock_s()):
            return None  # it asks again
        self._admit(envelope)
        if isinstance(said, Told):
            self._next(said, data)
            return None
        match said:
            case Beat():
                return self._beat(said)
            case Bye():
                self._leadership.left()
                self._looked_s = float("-inf")
            case Fence():
                return self._promised(envelope.epoch)
            case Rejoin():
                self._unanswered = 0
                self._join()
            case Resume():
                self._is_resumed, self._unanswered = True, 0
                self._taken += 1
                self._say(Reads(list(FORMATS)))  # before what it has is counted
                self._say_applied()
            case Whole():
                self._mark = max(self._mark, said.mark)
                self._taken += 1
                self.copy.sync()
                self.copy.is_whole()
                self._is_whole = True
                self._has_all_ms = self._has_all_ms if self.told is None else self.told[0]
                self._waits(f"{envelope.replica} (epoch {envelope.epoch}, in sync)")
            case _:
                self._read_by_others(said)
        return None

    def _read_by_others(self, said: Said) -> None:
        """What those want to know who read this copy or lead next, and what nobody says to one that
        follows."""
        match said:
            case Time():
                self.told, self._hears_clock = (said.at_ms, self._heard_s), True
                self._has_all_ms = said.at_ms if self._is_whole else self._has_all_ms
            case Mark():
                self._marks.take(said.mark)
            case AskApplied():
                if said.hurries:
                    self._applies.hurry()
                self._say_applied()
            case ConfirmedUpTo():
                self.copy.sync()  # a log that ends before that place is damaged, not torn
                self._confirmed.tell(Place(said.number, said.offset))
            case _:
                raise ReplicaFrameBad(detail=f"a primary does not say {type(said).__name__}")

    def _say_applied(self) -> None:
        if (place := self._applies.place) is not None:
            self._say(AppliedUpTo(*place, self._applied_lsn or 0))

    @property
    def _applied_lsn(self) -> int | None:
        """The last sequence number that is applied; None where nothing is."""
        at = self._applies.verified
        return None if at is None else at.lsn - 1

    def _beat(self, said: Beat) -> BeatAck:
        if mark := self._marks.news():
            self._say(Mark(mark))
        self._look_at_damage()
        if self._hears_clock and (at_ms := self._machine_ms()) is not None and at_ms >= 0:
            self._say(Clock(said.at_s, at_ms))
        return BeatAck(said.at_s)

    def _look_at_damage(self) -> None:
        """What came anew is looked at; for what was found meanwhile this copy joins again, as one
        that lacks it."""
        renewed = [number for number in self.copy.taken_anew() if number in self._damaged]
        good = [number for number in renewed if self._is_good(number)]
        if renewed:
            forget_damages(self._disk, self._folder, good)
        for number in set(renewed) - set(good):
            log.error("segment %d is damaged at the primary, too", number)
        known = read_damages(self._disk, self._folder)
        if any(self._damaged.get(n, one.offset + 1) > one.offset for n, one in known.items()):
            self._join()

    def _is_good(self, number: int) -> bool:
        if number == self.copy.newest:
            return tail_damage(self._disk, self._folder, is_live=True) is None
        return check_segment(self._disk, self._folder, number) is None

    def _admit(self, envelope: Envelope) -> None:
        """ReplicaFrameBad for one that is not the primary; a promise is durable before more."""
        me, promised = self._leadership, self._leadership.promised
        if envelope.log != me.log:
            raise ReplicaFrameBad(detail=f"it is of log {envelope.log[:40]}")
        if not me.accepts(envelope.epoch, envelope.replica, envelope.start):
            raise ReplicaFrameBad(detail=f"its epoch {envelope.epoch} is below {me.promised}")
        if me.promised != promised:
            self._promise()
        self._heard_s, self._is_lost, self._refusal = self._clock_s(), False, ""
        me.heard(self._heard_s)

    def _promised(self, epoch: int) -> Promised:
        """What was promised is durable by now, and so is what this copy says that it has."""
        self.copy.sync()
        end, is_clean = self.copy.tail()
        is_clean = is_clean and not self._damage_of_log()
        self._waits(f"{self._leadership.leader[0]} (epoch {epoch}, which begins)")
        return Promised(self._state.copy_id, epoch, end, is_clean)

    def _next(self, said: Told, data: Data) -> None:
        if not self._is_resumed and not isinstance(said, Cut | Drop | Aside):
            return  # it joins anew
        if isinstance(said, Cut) and not self._is_resumed and not self.copy.has(said.number):
            return  # asked twice, and dropped since
        if isinstance(said, Cut) and self.copy.ends_there(said):
            self._confirmed.lower(Place(said.number, said.end))
        elif isinstance(said, Aside) and said.segments:
            self._confirmed.lower(self.copy.end_before(min(said.segments)))
        self.copy.take(said, data)
        self._taken += 1
        self._mark = max(self._mark, getattr(said, "mark", 0))
