"""Confirmation: what enough copies have, and which copies count (sans-IO).

Marks number what the primary has written, in order. A copy that has synced everything up to a mark
says so; a mark is confirmed when `copies` members have it, the primary among them. While the
outcome of a change of the configuration is unknown the old rule and the new one both hold, so each
confirmed record is durable at enough members of whatever configuration the arbiter has (H4, H5).

An asynchronous copy gets the log like the others, and is never taken in. One that is a member when
hms.conf makes it one is taken out by a change like any other, and counts until the arbiter has it;
so does the one that leads, as an operator promoted it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import structs

from hms.server.arbiter.interface import Configuration, Member
from hms.server.replicas.promises import promises_needed

__all__ = ["Confirmation", "Limits", "copies_needed"]

CURE: Final = "in hms.conf of each machine, then `hms replica add` it"


def copies_needed(members: int, *, is_all: bool = False) -> int:
    """A majority, which of two is both; is_all: every one."""
    return members if is_all else members // 2 + 1


class Limits(NamedTuple):
    """copies_min: with fewer members nothing is confirmed; timeout_s: silence that blocks a
    confirmation for so long ends a membership, lost_s: any silence; is_all: a confirmation takes
    every member, not the majority."""

    copies_min: int = 1
    timeout_s: float = 2.0
    lost_s: float = 60.0
    is_all: bool = False


class _Peer:
    """Another copy, as the primary knows it."""

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start = name, start
        self.acked = 0
        self.whole_at: int | None = None
        """From this mark on it gets all that is written; None: it gets older bytes first."""
        self.heard_s = self.joined_s = self.beat_s = float("-inf")
        self.even_s = float("-inf")
        """All that was written by then it has."""
        self.even_bytes = 0
        """So much of what was written in this term it has, at least."""
        self._checked = 0, float("-inf"), 0
        """A mark that was the last one written, when that was, and the bytes up to it."""

    def took(self, mark: int, written: int, size: int) -> None:
        """It has all up to the mark; written, size: the last mark, and the bytes up to it, now. A
        copy far away never has all that is written: what it has is looked at mark by mark."""
        self.acked = max(self.acked, mark)
        checked, at_s, had = self._checked
        if self.acked >= checked:
            self.even_s, self.even_bytes = max(self.even_s, at_s), max(self.even_bytes, had)
            self._checked = written, self.heard_s, size
        if self.acked == written:
            self.even_s, self.even_bytes = self.heard_s, size

    @property
    def is_whole(self) -> bool:
        return self.whole_at is not None and self.acked >= self.whole_at


class Confirmation:
    """The primary's view of its group, in one epoch."""

    def __init__(
        self,
        now: Configuration,
        me: Member,
        limits: Limits,
        since_s: float,
        begun_s: float,
        asynchronous: frozenset[str] = frozenset(),
    ) -> None:
        """since_s: since when the others are silent, if none comes, for a confirmation that waits
        for them; begun_s: when this term began; asynchronous: names of replicas that never
        count."""
        self.now, self._me, self._limits = now, me, limits
        self._since_s, self._begun_s = since_s, begun_s
        self.asynchronous = asynchronous
        self.asked: Configuration | None = None
        """A change that is prepared, or whose outcome is not known yet: both rules hold."""
        self._is_sent = False
        self._wished: tuple[str, ...] | None = None
        """Names that an operator wants removed, until the arbiter has them."""
        self.successor = ""
        """Who is to lead when this one stops; "" for anyone. It stays a member."""
        self.written = self.own = 0
        self.confirmed = 0
        self.written_bytes = 0
        """Of the log, in this term."""
        self._peers: dict[str, _Peer] = {}

    def begins(self, now_s: float) -> None:
        """The log was read: only from now on do the others come."""
        self._begun_s = now_s

    # what copies have

    def joined(self, member: Member, now_s: float) -> None:
        """A copy came, and gets what it lacks; what it had acknowledged before does not count."""
        before = self._peers.get(member.copy_id)
        peer = self._peers[member.copy_id] = _Peer(member.name, member.start)
        peer.heard_s = peer.joined_s = now_s
        if before is not None:
            peer.even_s, peer.even_bytes = before.even_s, before.even_bytes

    def whole(self, copy_id: str, mark: int) -> None:
        """It was sent all that was written up to the mark, and gets all that follows."""
        self._peers[copy_id].whole_at = mark

    def behind(self, copy_id: str) -> None:
        """It gets older bytes first, again."""
        self._peers[copy_id].whole_at = None

    def heard(self, copy_id: str, now_s: float) -> None:
        """It lives."""
        if (peer := self._peers.get(copy_id)) is not None:
            peer.heard_s = now_s

    def is_heard(self, copy_id: str, now_s: float) -> bool:
        """It said something lately."""
        peer = self._peers.get(copy_id)
        return peer is not None and now_s - peer.heard_s < self._limits.timeout_s

    def left(self, copy_id: str) -> None:
        """It is gone."""
        if (peer := self._peers.get(copy_id)) is not None:
            peer.heard_s, peer.whole_at = float("-inf"), None

    def beat(self, copy_id: str, at_s: float) -> None:
        """A copy answers a beat that was sent then."""
        if (peer := self._peers.get(copy_id)) is not None:
            peer.beat_s = max(peer.beat_s, at_s)

    def proof_s(self, now_s: float) -> float:
        """When as many members as a confirmation takes were last asked, and have answered."""
        times = [
            now_s if one.copy_id == self._me.copy_id else self._beat_of(one.copy_id)
            for one in self.now.members
        ]
        return sorted(times, reverse=True)[self.now.copies - 1]

    def _beat_of(self, copy_id: str) -> float:
        peer = self._peers.get(copy_id)
        return float("-inf") if peer is None else peer.beat_s

    def acked(self, copy_id: str, mark: int) -> None:
        """A copy has synced everything up to a mark."""
        peer = self._peers.get(copy_id)
        if peer is not None and peer.whole_at is not None and mark <= self.written:
            peer.took(mark, self.written, self.written_bytes)
            self._advance()

    def synced(self, mark: int) -> None:
        """So has the primary."""
        self.own = max(self.own, mark)
        self._advance()

    def is_confirmed(self, mark: int) -> bool:
        """Enough copies have it."""
        return mark <= self.confirmed

    def _advance(self) -> None:
        """The highest mark that the rule, or both rules, give."""
        found = [self._reached(rule) for rule in (self.now, self.asked) if rule is not None]
        self.confirmed = max(self.confirmed, min(found))

    def _reached(self, rule: Configuration) -> int:
        if len(rule.members) < self._limits.copies_min and not rule.is_forced:
            return 0
        have = sorted((self._mark_of(one.copy_id) for one in rule.members), reverse=True)
        return have[rule.copies - 1] if len(have) >= rule.copies else 0

    def _mark_of(self, copy_id: str) -> int:
        if copy_id == self._me.copy_id:
            return self.own
        peer = self._peers.get(copy_id)
        return peer.acked if peer is not None and peer.is_whole else 0

    # which copies count

    def wanted(self, now_s: float) -> Configuration | None:
        """The next change of the configuration, or None: asking() is called, the arbiter is asked
        when may_ask() says so, and settled() is told what it has."""
        if self.asked is not None and (self._is_sent or self._are_here(self.asked, now_s)):
            return self.asked
        if self.asked is not None:
            self.asked = None
            self._advance()
        for members in self._choices(now_s):
            new = self._with(members)
            is_other = {*members} != {*self.now.members} or new.copies != self.now.copies
            if (is_other or self._wished is not None) and self._are_here(new, now_s):
                return new
        return None

    def _with(self, members: list[Member]) -> Configuration:
        return structs.replace(
            self.now,
            version=self.now.version + 1,
            members=tuple(members),
            copies=copies_needed(len(members), is_all=self._limits.is_all),
            removed=self._removed,
            is_forced=self.now.is_forced and len(members) < self._limits.copies_min,
        )

    @property
    def _removed(self) -> tuple[str, ...]:
        return self.now.removed if self._wished is None else self._wished

    def _choices(self, now_s: float) -> Iterator[list[Member]]:
        """Members as they may be next, the best first; also the same ones, for which hms.conf may
        say another rule by now. Who came and who is silent change in one, as neither alone may
        leave enough whole copies. A silent one is left out sooner when a confirmation waits for
        it, as the others are too few; never below copies_min. An asynchronous one is left out as
        soon as the others are enough."""
        come = self._come(now_s)
        gone = {*come, *self._removed}
        stay = [one for one in self.now.members if one.name not in gone]
        for silent_s in (self._limits.lost_s, self._limits.timeout_s):
            here = self._present_of(self.now, now_s, silent_s)
            kept = [one for one in stay if one in here or one.name == self.successor]
            less = [one for one in kept if not self._never_counts(one)]
            if less != kept and len(less) + len(come) >= self._limits.copies_min:
                yield [*less, *come.values()]
            is_enough = len(kept) + len(come) >= self._limits.copies_min
            yield [*(kept if is_enough else stay), *come.values()]
            if not self.is_blocked(now_s):
                return

    def _never_counts(self, one: Member) -> bool:
        """The one that leads does, whatever it is: an operator had it lead; and the one that is to
        lead in a moment."""
        is_led = one.copy_id == self._me.copy_id or one.name == self.successor
        return one.name in self.asynchronous and not is_led

    def is_blocked(self, now_s: float) -> bool:
        """What is synced here waits for members that are silent."""
        here = self._present_of(self.now, now_s, self._limits.timeout_s)
        return self.own > self.confirmed and len(here) < self.now.copies

    def _come(self, now_s: float) -> dict[str, Member]:
        """Copies that have all, alone or in place of one of their name; or that began again. Of a
        name only the one that joined last: the other may still be heard, and would take its place
        back."""
        found: dict[str, Member] = {}
        in_order = self._in_order_of_joins()
        last = {
            peer.name: copy_id for copy_id, peer in in_order if peer.name not in self.asynchronous
        }
        for name, copy_id in last.items():
            peer = self._peers[copy_id]
            member = Member(name, copy_id, peer.start)
            is_here = peer.is_whole and self.is_heard(copy_id, now_s)
            if is_here and member not in self.now.members and name not in self._removed:
                found[name] = member
        return found

    def _present_of(self, rule: Configuration, now_s: float, silent_s: float) -> list[Member]:
        """Its members that are not away, this one among them."""
        mine = self._me.copy_id
        return [
            one
            for one in rule.members
            if one.copy_id == mine or not self._is_away(one, now_s, silent_s)
        ]

    def _is_away(self, one: Member, now_s: float, silent_s: float) -> bool:
        peer = self._peers.get(one.copy_id)
        if peer is None:
            is_lost = silent_s >= self._limits.lost_s
            return now_s - (self._begun_s if is_lost else self._since_s) >= silent_s
        begun_s = peer.heard_s if peer.is_whole else min(peer.heard_s, peer.joined_s)
        return now_s - begun_s >= silent_s

    def _are_here(self, rule: Configuration, now_s: float) -> bool:
        """Of those that a prepared change counts as many as it takes are whole, and are heard; and
        all that it adds."""
        here = {
            one
            for one in self._present_of(rule, now_s, self._limits.timeout_s)
            if self._mark_of(one.copy_id) or one.copy_id == self._me.copy_id
        }
        return len(here) >= rule.copies and {*rule.members} - {*self.now.members} <= here

    def asking(self, new: Configuration) -> None:
        """A change is prepared: from here on both rules hold, until it is known what the arbiter
        has. So what is confirmed waits for a new copy, and that one comes up with it."""
        self.asked = new

    def may_ask(self, new: Configuration) -> bool:
        """All that is confirmed is durable at enough of the new members (H5), also what was before
        this term: they are whole. Then the arbiter is asked, and the change is not taken back."""
        if not self._is_sent:
            mine = self._me.copy_id
            whole = sum(
                one.copy_id == mine or bool(self._mark_of(one.copy_id)) for one in new.members
            )
            self._is_sent = whole >= new.copies and self._reached(new) >= self.confirmed
        return self._is_sent

    def settled(self, now: Configuration) -> None:
        """What the arbiter has, after it was asked."""
        self.now, self.asked, self._is_sent = now, None, False
        if self._wished == now.removed:
            self._wished = None
        self._advance()

    def in_sync(self, now_s: float) -> list[Member]:
        """Members that have all, and are heard; this one among them."""
        return [
            one
            for one in self._present_of(self.now, now_s, self._limits.timeout_s)
            if one.copy_id == self._me.copy_id
            or ((peer := self._peers.get(one.copy_id)) is not None and peer.is_whole)
        ]

    def lacking(self, now_s: float) -> tuple[int, int, str]:
        """Copies that are in sync, how many a confirmation takes, and their names."""
        here = [one.name for one in self.in_sync(now_s)]
        least = 1 if self.now.is_forced else self._limits.copies_min
        return len(here), max(self.now.copies, least), ", ".join(here)

    def failures_survived(self, now_s: float) -> int:
        """How many copies may be lost now, with their disks, so that nothing confirmed is lost and
        another one takes over by itself."""
        have = len(self.in_sync(now_s))
        return max(0, min(self.now.copies - 1, have - promises_needed(self.now)))

    # what an operator wants

    def remove(self, name: str, now_s: float) -> str:
        """Have a replica count no more, until it is added; why not, "" when it is asked for."""
        if name == self._me.name:
            return "it leads: hms switchover first"
        if name == self.successor:
            return "it is to lead in a moment"
        left = [one for one in self.now.members if one.name != name]
        needed = copies_needed(len(left), is_all=self._limits.is_all)
        have = sum(one.name != name for one in self.in_sync(now_s))
        if len(left) < min(self._limits.copies_min, len(self.now.members)):
            return f"{_copies(len(left))} would be left, copies_min is {self._limits.copies_min}"
        if have < needed:
            return f"{needed} of the {len(left)} that are left would confirm, {have} are in sync"
        self._wished = (*(one for one in self._removed if one != name), name)
        return ""

    def add(self, name: str, *, is_async: bool = False) -> None:
        """Have a replica that was removed count again, when it has the whole log; is_async: or get
        the log and never count, also when it did."""
        self.asynchronous = self.asynchronous - {name} | ({name} if is_async else frozenset())
        if name in self._removed:
            self._wished = tuple(one for one in self._removed if one != name)

    def last_heard_s(self, name: str) -> float:
        """When a replica said something last."""
        times = [one.heard_s for one in self._peers.values() if one.name == name]
        return max(times, default=float("-inf"))

    def lacks(self, name: str, now_s: float) -> str:
        """Why a replica could not lead at once with everything; "" when it could."""
        if why := self._left_out(name):
            return why
        here = {copy_id: one for copy_id, one in self._peers.items() if one.name == name}
        if not here:
            return f"it has not come since {self._me.name} leads: boot it"
        if not any(self.is_heard(copy_id, now_s) for copy_id in here):
            silent_s = self._limits.timeout_s
            return f"it has been silent for {silent_s:g} s and more: look whether it runs"
        ids = [one.copy_id for one in self.now.members if one.name == name]
        peer = here.get(ids[0]) if ids else None
        if peer is None or not peer.is_whole:
            return "it lacks a part of the log, and gets it now: wait until it is IN_SYNC"
        if self.asked is not None and name not in (one.name for one in self.asked.members):
            return "it was silent, and the others go on without it: wait until it is IN_SYNC"
        return ""

    def _left_out(self, name: str) -> str:
        """Why it does not count, as an operator wants it; "" when it is to."""
        if name in self._removed:
            return f"it was removed, and counts again after `hms replica add {name}`"
        return f'it is ASYNC: mode = "SYNC" {CURE}' if name in self.asynchronous else ""

    def hand_over(self, name: str, now_s: float) -> str:
        """Keep a replica a member from here on, as it is to lead; why not, "" when it is so."""
        if not (detail := self.lacks(name, now_s)):
            self.successor = name
        return detail

    def give_up_silent(self, now_s: float, silent_s: float) -> str:
        """The successor that left, or was silent for so long, is none any more: else what is
        written would wait for it for ever. Its name, "" for none."""
        name = self.successor
        if not name or now_s - self.last_heard_s(name) < silent_s:
            return ""
        self.successor = ""
        return name

    # for operators

    def describe(self, now_s: float) -> list[dict[str, object]]:
        """Each copy, without those that count no more and that another one of their machine has
        followed: a disk was replaced."""
        ids = {one.copy_id for one in self.now.members}
        newest = {peer.name: copy_id for copy_id, peer in self._in_order_of_joins()}
        rows: list[dict[str, object]] = []
        for copy_id, peer in self._peers.items():
            is_here = self.is_heard(copy_id, now_s)
            if not is_here and copy_id not in ids and copy_id != newest[peer.name]:
                continue
            is_whole = peer.is_whole and is_here
            rows.append(
                {
                    "replica": peer.name,
                    "copy": copy_id,
                    "mode": self._mode_of(peer.name),
                    "is_member": copy_id in ids,
                    "is_in_sync": is_whole,
                    "is_heard": is_here,
                    "state": self._state_of(peer, is_here=is_here),
                    "lag_s": self._lag_s(peer, now_s),
                }
            )
        came = {self._me.name, *(peer.name for peer in self._peers.values())}
        rows += [self._absent(name, now_s) for name in sorted(self.asynchronous - came)]
        return rows

    def _in_order_of_joins(self) -> list[tuple[str, _Peer]]:
        return sorted(self._peers.items(), key=lambda item: item[1].joined_s)

    def _absent(self, name: str, now_s: float) -> dict[str, object]:
        """An asynchronous copy that has not come since this one leads; of one that counts its
        membership tells."""
        told = {"replica": name, "copy": "", "mode": self._mode_of(name), "is_member": False}
        state = "REMOVED" if name in self._removed else "AWAY"
        lag_s = round(now_s - self._begun_s, 1)
        return {**told, "is_in_sync": False, "is_heard": False, "state": state, "lag_s": lag_s}

    def _mode_of(self, name: str) -> str:
        return "ASYNC" if name in self.asynchronous else "SYNC"

    def lag_bytes(self, copy_id: str) -> int:
        """At most how much a copy lacks of what was written in this term."""
        peer = self._peers.get(copy_id)
        return self.written_bytes - (0 if peer is None else peer.even_bytes)

    def _state_of(self, peer: _Peer, *, is_here: bool) -> str:
        if peer.name in self._removed:
            return "REMOVED"
        if not is_here:
            return "AWAY"
        return "IN_SYNC" if peer.is_whole else "CATCHING_UP"

    def _lag_s(self, peer: _Peer, now_s: float) -> float:
        """For how long it has not had all that was written."""
        if peer.acked == self.written and peer.is_whole:
            return 0.0
        is_known = peer.even_s > float("-inf")
        since_s = peer.even_s if is_known else max(peer.joined_s, self._begun_s)
        return round(now_s - since_s, 1)


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"
