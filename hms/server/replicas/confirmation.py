"""Confirmation: what enough copies have, and which copies count (sans-IO).

Marks number what the primary has written, in order. A copy that has synced everything up to a mark
says so; a mark is confirmed when `copies` members have it, the primary among them. While the
outcome of a change of the configuration is unknown the old rule and the new one both hold, so each
confirmed record is durable at enough members of whatever configuration the arbiter has (H4, H5).
"""

from typing import NamedTuple

from msgspec import structs

from hms.server.arbiter.interface import Configuration, Member

__all__ = ["Confirmation", "Limits", "copies_needed"]


def copies_needed(members: int) -> int:
    """A majority, which of two is both."""
    return members // 2 + 1


class Limits(NamedTuple):
    """copies_min: with fewer members nothing is confirmed; timeout_s: silence that blocks a
    confirmation for so long ends a membership, lost_s: any silence."""

    copies_min: int = 1
    timeout_s: float = 2.0
    lost_s: float = 60.0


class _Peer:
    """Another copy, as the primary knows it."""

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start = name, start
        self.acked = 0
        self.whole_at: int | None = None
        """From this mark on it gets all that is written; None: it gets older bytes first."""
        self.heard_s = self.joined_s = self.beat_s = float("-inf")

    @property
    def is_whole(self) -> bool:
        return self.whole_at is not None and self.acked >= self.whole_at


class Confirmation:
    """The primary's view of its group, in one epoch."""

    def __init__(self, now: Configuration, me: Member, limits: Limits, since_s: float) -> None:
        """since_s: since when the others are silent, if none comes."""
        self.now, self._me, self._limits, self._since_s = now, me, limits, since_s
        self.asked: Configuration | None = None
        """A change that is prepared, or whose outcome is not known yet: both rules hold."""
        self._is_sent = False
        self.written = self.own = 0
        self.confirmed = 0
        self._peers: dict[str, _Peer] = {}

    # what copies have

    def joined(self, member: Member, now_s: float) -> None:
        """A copy came, and gets what it lacks; what it had acknowledged before does not count."""
        peer = self._peers[member.copy_id] = _Peer(member.name, member.start)
        peer.heard_s = peer.joined_s = now_s

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
            peer.acked = max(peer.acked, mark)
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
        if len(rule.members) < self._limits.copies_min:
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
        admitted = self._admitted(now_s)
        kept = admitted if admitted is not None else self._kept(now_s)
        if kept is None:
            return None
        return structs.replace(
            self.now,
            version=self.now.version + 1,
            members=tuple(kept),
            copies=copies_needed(len(kept)),
        )

    def _admitted(self, now_s: float) -> list[Member] | None:
        """A copy that has all, alone or in place of one of its name; or one that began again."""
        for copy_id, peer in self._peers.items():
            member = Member(peer.name, copy_id, peer.start)
            is_here = peer.is_whole and self.is_heard(copy_id, now_s)
            if is_here and member not in self.now.members:
                return [*(one for one in self.now.members if one.name != peer.name), member]
        return None

    def _kept(self, now_s: float) -> list[Member] | None:
        """Without one that is silent, or not whole for as long."""
        is_blocked = self.own > self.confirmed
        silent_s = self._limits.timeout_s if is_blocked else self._limits.lost_s
        for one in self.now.members:
            if one.copy_id == self._me.copy_id or not self._is_away(one, now_s, silent_s):
                continue
            kept = [other for other in self.now.members if other is not one]
            if len(kept) >= self._limits.copies_min:
                return kept
        return None

    def _is_away(self, one: Member, now_s: float, silent_s: float) -> bool:
        peer = self._peers.get(one.copy_id)
        if peer is None:
            return now_s - self._since_s >= silent_s
        begun_s = peer.heard_s if peer.is_whole else min(peer.heard_s, peer.joined_s)
        return now_s - begun_s >= silent_s

    def _are_here(self, rule: Configuration, now_s: float) -> bool:
        """Those that a prepared change counts are whole, and are heard."""
        others = (one for one in rule.members if one.copy_id != self._me.copy_id)
        return all(
            self._mark_of(one.copy_id) and not self._is_away(one, now_s, self._limits.timeout_s)
            for one in others
        )

    def asking(self, new: Configuration) -> None:
        """A change is prepared: from here on both rules hold, until it is known what the arbiter
        has. So what is confirmed waits for a new copy, and that one comes up with it."""
        self.asked = new

    def may_ask(self, new: Configuration) -> bool:
        """All that is confirmed is durable at enough of the new members (H5); then the arbiter is
        asked, and the change is not taken back."""
        if not self._is_sent:
            self._is_sent = self._reached(new) >= self.confirmed
        return self._is_sent

    def settled(self, now: Configuration) -> None:
        """What the arbiter has, after it was asked."""
        self.now, self.asked, self._is_sent = now, None, False
        self._advance()

    def lacks(self, name: str, now_s: float) -> str:
        """Why a replica could not lead at once with everything; "" when it could."""
        peer = next((one for one in self._peers.values() if one.name == name), None)
        ids = [one.copy_id for one in self.now.members if one.name == name]
        if peer is None or not ids or self._peers.get(ids[0]) is not peer:
            return "it is no copy that counts"
        if not self.is_heard(ids[0], now_s):
            return f"it has been silent for {self._limits.timeout_s:g} s and more"
        return "" if peer.is_whole else "it lacks a part of the log"

    # for operators

    def describe(self, now_s: float) -> list[dict[str, object]]:
        """Each copy."""
        ids = {one.copy_id for one in self.now.members}
        rows: list[dict[str, object]] = []
        for copy_id, peer in self._peers.items():
            is_here = self.is_heard(copy_id, now_s)
            is_whole = peer.is_whole and is_here
            rows.append(
                {
                    "replica": peer.name,
                    "copy": copy_id,
                    "is_member": copy_id in ids,
                    "is_in_sync": is_whole,
                    "is_heard": is_here,
                }
            )
        return rows
