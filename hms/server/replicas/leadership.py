"""Leadership: when a copy follows, when it campaigns, and which frames it accepts (sans-IO).

    FOLLOWING  --campaign won-->  LEADING  --a higher epoch, or no proof for lease_s-->  DEPOSED
        ^                            |
        +---- too few promises, or another copy goes further: the lease is given back

A lease decides only when to try and when to stop answering. What is confirmed is decided by epochs
and copies (confirmation): a primary that was replaced finds nobody who takes its frames. An epoch
is granted once, to one start of one copy; a copy promises an epoch, durably, before it takes the
first frame of it, and takes none of a lower one from then on.

With A copies needed of N, T = N - A + 1 promises are (promises). The owner of a group of two has
its own: the candidate was a member, so it has all that was ever confirmed.

An asynchronous copy is no member, so it follows for good. One that is a member still, or led as an
operator wanted, campaigns where nobody else counts, where it led last, or where others give way.
"""

from enum import StrEnum
from typing import NamedTuple

from hms.errors.catalogue import ArbiterWentBack, ReplicaUnknown, ReplicaWentBack
from hms.server.arbiter.interface import Configuration, Member, Standing, ended_in

__all__ = ["Campaign", "Follow", "Leadership", "Role"]


class Role(StrEnum):
    """What a copy is."""

    FOLLOWING = "FOLLOWING"
    LEADING = "LEADING"
    DEPOSED = "DEPOSED"


class Follow(NamedTuple):
    """Receive the log of this replica; why: what is waited for."""

    primary: str
    why: str


class Campaign(NamedTuple):
    """Ask for the next epoch."""

    version: int


class Leadership:
    """One copy, in one start of its process. Times are seconds of one clock of this machine."""

    def __init__(
        self,
        me: str,
        copy_id: str,
        start: int,
        promised: int,
        log: str,
        lease_s: float,
        checks_s: float = 0.0,
        *,
        is_async: bool = False,
    ) -> None:
        """checks_s: how long the primary is looked for behind a lease, before a campaign; is_async:
        it does not take over by itself."""
        self.me, self.copy_id, self.start, self.log = me, copy_id, start, log
        self.lease_s, self._checks_s = lease_s, checks_s
        self.is_async = is_async
        self.role = Role.FOLLOWING
        self.promised = promised
        """No frame of a lower epoch is accepted; durable before anything is answered."""
        self.epoch = self.seen = 0
        """The one that is led, and the highest that somebody spoke of."""
        self._source: tuple[int, str, int] | None = None
        """Epoch, replica and start whose frames are taken."""
        self._heard_s = self._begun_s = float("-inf")
        self._proved_s = float("-inf")
        self._is_known = False
        """The arbiter was read in this start: what it has of this copy may be of this start."""
        self.is_left = False
        """The primary said that it stops."""
        self._waits_until_s = float("-inf")
        """It gave a lease back: others are to try first."""
        self.is_again = False
        """It did, and has heard nobody who leads since."""
        self.leader = "", 0
        """Who leads, "" for nobody, and in which epoch, as far as it is known here."""
        self.handed_by = ""
        """Who led before and gave the lease to this copy alone; "" when it was free for all."""

    def begin(self, now_s: float) -> None:
        """The process started: the primary's silence counts from now."""
        self._begun_s = now_s

    # a copy that follows

    def is_silent(self, now_s: float) -> bool:
        """The primary has said nothing for a lease, or that it stops."""
        return self.is_left or self._silence_s(now_s) >= self.lease_s

    def _silence_s(self, now_s: float) -> float:
        return now_s - max(self._heard_s, self._begun_s)

    def _is_given_up(self, now_s: float) -> bool:
        """It is silent, and the checks behind the lease have failed: it was joined again and again
        meanwhile, and any word of it would have been heard."""
        return self.is_left or self._silence_s(now_s) >= self.lease_s + self._checks_s

    def decide(self, standing: Standing | None, now_s: float) -> Follow | Campaign:
        """What is to be done, as the arbiter stands. ReplicaUnknown, ReplicaWentBack."""
        assert self.role is Role.FOLLOWING
        if standing is None:
            raise ReplicaUnknown(replica=self.me, detail="the arbiter has no configuration of it")
        now = standing.configuration
        if now.log != self.log:
            detail = f"its log is {self.log}, that of the group {now.log}"
            raise ReplicaUnknown(replica=self.me, detail=detail)
        mine = self.member_of(now)
        known = self._known_start(now, mine)
        if self.start < known or (self.start == known and not self._is_known):
            before = self.start - (not self._is_known)  # this start is not counted yet
            raise ReplicaWentBack(replica=self.me, here=before, known=known)
        if self.promised > now.epoch:
            raise ArbiterWentBack(endpoint=self.me, now=now.epoch, seen=self.promised)
        self._is_known = True
        ended = ended_in(standing.preferred)
        if ended is not None and (self._source is None or self._source[0] <= ended):
            self.is_left = True  # whatever it has said last: its process has ended
        elif self._has_resigned(standing):
            self.is_left = True  # its good-bye may not have come
        is_led = standing.leader is not None and now.primary != self.me
        self.leader = now.primary if is_led else "", now.epoch
        if mine is None:
            who = f"{now.primary} (epoch {now.epoch}"
            if not now.primary:
                who = f"{' or '.join(one.name for one in now.members)} (which has not led yet"
            return Follow(now.primary, f"{who}, whose log it gets)")
        if standing.leader is not None:
            return Follow(now.primary, f"{now.primary} (epoch {now.epoch})")
        preferred = "" if ended is not None else standing.preferred
        return self._when_free(now, preferred, now_s)

    def _has_resigned(self, standing: Standing) -> bool:
        """The primary that is followed gave its lease to another copy, when it answered nothing
        more. Once that one leads, its name stands there for a while."""
        now, to = standing.configuration, standing.preferred
        is_given = standing.leader is None and ended_in(to) is None and to not in ("", now.primary)
        return (
            is_given
            and self._source is not None
            and self._source[:2]
            == (
                now.epoch,
                now.primary,
            )
        )

    def _when_free(self, now: Configuration, preferred: str, now_s: float) -> Follow | Campaign:
        """What a member does while nobody leads. preferred: who is to lead, "" for anyone."""
        others = [one for one in now.members if one.copy_id != self.copy_id]
        if preferred not in ("", self.me):
            return Follow(preferred, f"{preferred} (which is to take over)")
        if not preferred and now_s < self._waits_until_s:
            return Follow(now.primary, "other copies (which may take over first)")
        if self.is_async and others and self.me not in (preferred, now.primary):
            return Follow(now.primary, "another copy (this one is ASYNC and does not take over)")
        self.handed_by = now.primary if preferred else ""
        is_free = preferred or now.primary == self.me or not others or self._is_given_up(now_s)
        return Campaign(now.version) if is_free else Follow(now.primary, f"{now.primary} (silent)")

    def is_later(self, epoch: int) -> bool:
        """No frame of that epoch has been accepted yet."""
        return self._source is None or epoch > self._source[0]

    def member_of(self, now: Configuration) -> Member | None:
        """This copy among those that count; a new disk under an old name is none (H12)."""
        return next((one for one in now.members if one.copy_id == self.copy_id), None)

    def is_promoted(self, now: Configuration) -> bool:
        """An operator had this copy go on alone, and it has led in no epoch since."""
        is_alone = [one.copy_id for one in now.members] == [self.copy_id]
        return now.is_forced and is_alone and now.epoch in now.lossy[-1:]

    def _known_start(self, now: Configuration, mine: Member | None) -> int:
        known = 0 if mine is None else mine.start
        return max(known, now.start) if mine is not None and now.primary == self.me else known

    def accepts(self, epoch: int, primary: str, start: int) -> bool:
        """Whether frames of this epoch from this start are taken; what is promised anew is in
        `promised`, to be made durable before the first of them is answered (H1, H3)."""
        if self.role is not Role.FOLLOWING or epoch < max(self.promised, 1):
            return False
        source = (epoch, primary, start)
        if self._source is not None and self._source[0] == epoch and self._source != source:
            return False
        self._source, self.promised, self.leader = source, epoch, (primary, epoch)
        return True

    def may_promise(self, epoch: int, primary: str, start: int, now_s: float) -> bool:
        """A candidate is promised its epoch when the primary before it has been silent for a lease,
        or has said that it stops: until then that one may answer what needs no record."""
        return self._source == (epoch, primary, start) or self.is_silent(now_s)

    def heard(self, now_s: float) -> None:
        """A frame of the primary was accepted."""
        self._heard_s, self.is_left, self.is_again = now_s, False, False

    def left(self) -> None:
        """The primary said that it stops."""
        self.is_left = True
        self.lost()

    def lost(self) -> None:
        """Who leads is not known any more: the primary is gone, as it seems."""
        self.leader = "", self.leader[1]

    @property
    def is_undecided(self) -> bool:
        """Who leads is to be known in a moment, or this copy is about to."""
        return self.role is Role.LEADING or not self.leader[0]

    # a copy that leads

    def won(self, now: Configuration, asked_s: float) -> None:
        """The campaign was won; asked_s: when it was asked for, which is when the lease began."""
        assert self.role is Role.FOLLOWING
        assert (now.primary, now.start) == (self.me, self.start)
        assert now.epoch > self.promised
        self.role, self.epoch, self.promised = Role.LEADING, now.epoch, now.epoch
        self._proved_s = asked_s
        self.leader = self.me, now.epoch

    def gave_back(self, now_s: float) -> None:
        """The epoch was not opened, and its lease is given back: follow again. What was promised
        stays so; others may campaign first."""
        assert self.role is not Role.FOLLOWING
        self.role, self.epoch, self._source = Role.FOLLOWING, 0, None
        self.lost()
        self.is_left = self.is_again = True
        self._waits_until_s = now_s + self.lease_s

    def proved(self, asked_s: float) -> None:
        """A renewal, or enough copies, said so of a question that was asked then."""
        self._proved_s = max(self._proved_s, asked_s)

    def is_proved(self, now_s: float) -> bool:
        """What needs no record may be answered."""
        return self.role is Role.LEADING and now_s - self._proved_s < self.lease_s

    def proof_left_s(self, now_s: float) -> float:
        """For how long what was proved last holds."""
        return max(0.0, self._proved_s + self.lease_s - now_s)

    def saw(self, epoch: int) -> None:
        """Somebody knows this epoch: a higher one ends this term for good."""
        self.seen = max(self.seen, epoch)
        if self.role is Role.LEADING and epoch > self.epoch:
            self.role = Role.DEPOSED

    def depose(self) -> None:
        """Lead no more."""
        self.role = Role.DEPOSED
