"""When and where to connect again. No socket, thread or clock; times are seconds of one clock."""

from collections.abc import Sequence

_EARLY_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""The first pauses: a node that was only booted anew is found soon."""
_NEXT_S = 0.1
"""Until the next address of a round: with three copies of a log one of them leads."""
_STAY_S, _STAYS_MAX = 0.02, 10
"""So soon again, and so often in an outage, at a replica that is about to lead, or to listen."""
_STAYS = 3
"""So often in a row, while nobody listens there."""
MEMBERS_AFTER_S = 30.0
_PATIENCE_S = 1.0, 2.0, 5.0
"""How long an address may say nothing, round by round: a machine that stands still or is lost keeps
nobody from the others, and one that is only slow is waited for later. One alone has the longest."""


class Attempts:
    """The attempts to connect, first or again: round by round over the addresses, more and more
    slowly.

    interval_s: the longest pause, between two rounds; period_s: give up after so many seconds, 0
    for never.
    """

    def __init__(self, addresses: Sequence[str], interval_s: float, period_s: float) -> None:
        self._given = self._addresses = tuple(addresses)
        self._members: tuple[str, ...] = ()
        self._replicas: tuple[str, ...] = ()
        self._interval_s = interval_s
        self._period_s = period_s
        self._turn = 0
        self._failed = self._goes_at = self._dialled = 0
        self._stays, self._stays_left = 0, _STAYS_MAX
        self._begun_at = 0.0
        self.due_at = float("inf")

    @property
    def address(self) -> str:
        """Where the next attempt goes."""
        return self._addresses[self._turn % len(self._addresses)]

    @property
    def patience_s(self) -> float:
        """How long that one may say nothing."""
        if len(self._addresses) == 1:
            return _PATIENCE_S[-1]
        return _PATIENCE_S[min(self._failed // len(self._addresses), len(_PATIENCE_S) - 1)]

    def learn(self, members: Sequence[str]) -> None:
        """Other nodes of the cluster, to be tried when none that was given answers for long: a
        node that is only booted anew knows what of this client it has, another one does not."""
        self._members = tuple(one for one in members if one not in self._given)

    def learn_replicas(self, replicas: Sequence[str]) -> None:
        """Where else the same log may be found: tried in turn with those that were given."""
        self._replicas = tuple(one for one in replicas if one not in self._given)
        self._take((*self._given, *self._replicas))

    def go_to(self, addresses: Sequence[str], now: float) -> None:
        """A replica that follows names its primary's addresses: one that is known is next, and
        soon. In one round only once, so that none is passed over while the primary that it names
        is gone."""
        wanted = [one for one in addresses if one in self._addresses]
        if wanted and self._failed >= self._goes_at:
            self._goes_at = self._failed + len(self._addresses)
            self._turn = self._addresses.index(wanted[0])
            self.due_by(now + _NEXT_S)

    def stay(self, now: float) -> None:
        """The replica that answered last is to lead in a moment: there again."""
        if self._stays_left:
            self._stays_left -= 1
            self._stays = _STAYS
            self._turn = self._dialled
            self.due_by(now + _STAY_S)

    def pass_over(self) -> None:
        """Nobody is to be expected at the address that is next: the one behind it is next."""
        self._turn += 1

    def _take(self, addresses: tuple[str, ...]) -> None:
        """Those from now on; the next one stays the next one."""
        at = self.address
        self._addresses = addresses
        self._turn = addresses.index(at) if at in addresses else 0

    def begin(self, now: float) -> None:
        """The connection is lost: the first attempt is due at once, at the same address."""
        self._failed = self._goes_at = 0
        self._stays, self._stays_left = 0, _STAYS_MAX
        self._begun_at = now
        self.due_at = now

    def started(self) -> None:
        """An attempt is under way; none is due until it failed."""
        self._dialled = self._turn
        self.due_at = float("inf")

    def failed(self, now: float) -> None:
        """The attempt led to nothing: the next one is due at the next address."""
        if self._stays:
            self._stays -= 1
            self.due_at = now + _STAY_S
            return
        self._turn += 1
        self._failed += 1
        if self._members and now - self._begun_at >= MEMBERS_AFTER_S:
            self._take((*self._given, *self._replicas, *self._members))
        rounds, tried = divmod(self._failed, len(self._addresses))
        if tried:
            pause = _NEXT_S
        else:
            pause = _EARLY_S[rounds] if rounds < len(_EARLY_S) else self._interval_s
        self.due_at = now + min(pause, self._interval_s)

    def due_by(self, at: float) -> None:
        """Make the next attempt no later than that."""
        self.due_at = min(self.due_at, at)

    def is_over(self, now: float) -> bool:
        """Whether it is time to give up."""
        return self._period_s > 0 and now - self._begun_at >= self._period_s
