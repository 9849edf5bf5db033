"""Members: who of the cluster is there. Sans-IO; times are milliseconds of any even clock.

Theory of operation. A node is told by its index, name and key, and by its life: when its store came
to be, and how often that was booted (its incarnation). It is UP when it was heard within the
heartbeat time, is known in its newest life, and has said that it hears this node in this one's
newest life; so a link that works in one direction only counts as cut on both sides. Silence makes
it FAILED at once. What an older life says is refused: it may be a frame that was long under way, or
a node on an old copy of its store. Of one store the incarnation tells which life is older, for each
boot counts one more in its log. When a store came to be is told by a clock, which may have been
behind when a disk was replaced: a store that seems to be older is a new one when nobody is there
any more who speaks from the other, unless it was replaced before.

A node that takes another one for gone begins the link anew: its own epoch with that node is one
more, and it is UP again only after the other one has said that it hears this epoch. The other one,
when it hears of the new epoch while it is UP, takes the link for cut and begins anew too. So both
begin together, and what was said and lost is said again by both. A connection that broke without
anybody's noticing shows as a hello through another pipe. Frames of an older epoch, or through an
older pipe, are refused.

    ABSENT --hello--> HEARD --hears us--> UP --silence--> FAILED --hello--> HEARD
    any --newer life or epoch--> HEARD (one that was UP goes DOWN first)
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hms.errors.catalogue import MemberRefused


class Presence(enum.StrEnum):
    """How a node of the cluster is seen."""

    ABSENT = "absent"
    HEARD = "heard"
    UP = "up"
    FAILED = "failed"


class Incarnation(NamedTuple):
    """A run of a node: its store, and how often that was booted. (0, 0): none is known."""

    store: int
    incarnation: int


NOBODY = Incarnation(0, 0)
REPLACED_MAX = 64
DEAF_MS = 10_000
"""Longer than a connection and its handshakes take, over any distance."""


class PeerState(NamedTuple):
    """A node as another one hears it: its run; epoch: the how many-th beginning of the link."""

    life: Incarnation
    epoch: int


NOT_HEARD = PeerState(NOBODY, 0)


class Hello(NamedTuple):
    """Who a node says it is; node: its index. key_name: whose key it has, "" without keys."""

    cluster: str
    name: str
    node: int
    life: Incarnation
    version: int
    key_name: str = ""
    epoch: int = 1

    @property
    def state(self) -> PeerState:
        """As what it speaks."""
        return PeerState(self.life, self.epoch)


class Change(NamedTuple):
    """A node came (is_up) or went."""

    node: int
    life: Incarnation
    is_up: bool
    reason: str = ""


@dataclass(slots=True)
class Member:
    """Another node of the cluster. pipe: what it speaks through; own_epoch: that of this node."""

    index: int
    name: str
    presence: Presence = Presence.ABSENT
    life: Incarnation = NOBODY
    epoch: int = 0
    own_epoch: int = 1
    pipe: bytes = b""
    heard_ms: int = 0
    deaf_ms: int = 0
    """Since when it is not up, or was told to be deaf."""
    reason: str = "not heard yet"
    refused: int = 0
    last_error: str = ""
    replaced: list[int] = field(default_factory=list)
    """Stores that it had before."""

    def is_older(self, life: Incarnation) -> bool:
        """Whether a life is over: another one came after it."""
        if life.store == self.life.store:
            return life.incarnation < self.life.incarnation
        seems_older = self.is_there and life.store < self.life.store
        return seems_older or life.store in self.replaced

    @property
    def is_there(self) -> bool:
        """Whether it is heard."""
        return self.presence in (Presence.HEARD, Presence.UP)

    @property
    def state(self) -> PeerState:
        """As what it spoke last; NOT_HEARD when it is not there."""
        return PeerState(self.life, self.epoch) if self.is_there else NOT_HEARD


class Members:
    """The other nodes; what is wrong with one raises MemberRefused and changes nothing but its
    count of refusals."""

    def __init__(self, own: Hello, peers: Iterable[tuple[int, str]], silence_ms: int) -> None:
        self.own = own
        self._silence_ms = silence_ms
        self.members = {index: Member(index, name) for index, name in peers}

    def hello(self, said: Hello, pipe: bytes, now_ms: int) -> list[Change]:
        """A node says who it is, and speaks through this pipe from now on."""
        member = self.members.get(said.node)
        try:
            member = self._check(said, member)
        except MemberRefused as fault:
            if member is not None:
                member.refused += 1
                member.last_error = str(fault)
            raise
        member.heard_ms = now_ms
        if said.state == member.state and pipe == member.pipe:
            return []
        changes: list[Change] = []
        if said.life != member.life:
            changes = self._go(member, "it was booted again")
        elif said.epoch != member.epoch:
            changes = self._follow(member, "it began the link anew")
        elif pipe != member.pipe:  # what was under way may be lost, and it does not know
            changes = self._go(member, "its connection broke and was made again")
        if said.life.store != member.life.store != NOBODY.store:
            member.replaced = [*member.replaced, member.life.store][-REPLACED_MAX:]
        member.life, member.epoch, member.pipe = said.life, said.epoch, pipe
        member.presence, member.reason = Presence.HEARD, ""
        return changes

    def heard(self, index: int, state: PeerState, hears: PeerState, now_ms: int) -> list[Change]:
        """A frame of a node that known() lets speak; hears: this node as it hears it."""
        member = self.members[index]
        member.heard_ms = now_ms
        hears_us = hears == PeerState(self.own.life, member.own_epoch)
        if member.presence is Presence.HEARD and hears_us:
            member.presence, member.reason = Presence.UP, ""
            return [Change(index, state.life, is_up=True)]
        if member.presence is Presence.UP and not hears_us:
            changes = self._go(member, "it does not hear this node")
            member.presence = Presence.HEARD
            return changes
        return []

    def is_welcome(self, index: int, life: Incarnation) -> bool:
        """Whether what this life of the node says counts."""
        member = self.members.get(index)
        return member is not None and member.life == life and member.presence is Presence.UP

    def tick(self, now_ms: int) -> list[Change]:
        """Fail those that are silent."""
        changes: list[Change] = []
        for member in self.members.values():
            if member.is_there and now_ms - member.heard_ms > self._silence_ms:
                silence_ms = now_ms - member.heard_ms
                changes += self._go(member, f"nothing was heard for {silence_ms / 1000:.3g} s")
                member.presence = Presence.FAILED
        return changes

    def deaf(self, now_ms: int) -> list[int]:
        """Nodes that have not been up for long, as far as this one can tell because they do not
        hear it: what leads to them may be a dead connection. Each is told once in that time."""
        found: list[int] = []
        for member in self.members.values():
            if member.presence is Presence.UP or not member.deaf_ms:
                member.deaf_ms = now_ms
            elif now_ms - member.deaf_ms > DEAF_MS:
                member.deaf_ms = now_ms
                found.append(member.index)
        return found

    def paused(self, for_ms: int) -> None:
        """This node itself stood still so long: nobody was silent meanwhile."""
        for member in self.members.values():
            member.heard_ms += for_ms
            member.deaf_ms += for_ms

    def gone(self, index: int, reason: str) -> list[Change]:
        """A node said good-bye, or its link broke."""
        member = self.members[index]
        changes = self._go(member, reason)
        if member.presence is not Presence.ABSENT:
            member.presence = Presence.FAILED
        member.pipe = b""
        return changes

    def known(self, index: int, state: PeerState, pipe: bytes) -> Member:
        """Whose frame this is; MemberRefused unless it said hello like that and through there."""
        member = self.members.get(index)
        if member is None:
            raise MemberRefused(node=f"index {index}", detail="it is no node of this cluster")
        if pipe != member.pipe:
            detail = "it speaks before its HELLO"
        elif state != member.state:
            detail = f"it speaks as {tuple(state)}, and {tuple(member.state)} said hello"
        else:
            return member
        member.refused += 1
        raise MemberRefused(node=member.name, detail=detail)

    def _go(self, member: Member, reason: str) -> list[Change]:
        """This node takes it for gone: the link begins anew, also when it was only heard, as it may
        have been told so, count this node as up and have said something since."""
        if member.presence is Presence.HEARD:
            member.own_epoch += 1
        return self._follow(member, reason)

    @staticmethod
    def _follow(member: Member, reason: str) -> list[Change]:
        """The other node began anew, and so does this one, in case its own connection is dead; not
        if it was only heard: then what it would begin has begun already, and they would go on."""
        was_up = member.presence is Presence.UP
        if was_up:
            member.own_epoch += 1
        member.reason = reason
        change = Change(member.index, member.life, is_up=False, reason=reason)
        return [change] if was_up else []

    def _check(self, said: Hello, member: Member | None) -> Member:
        """The member that says hello, or why it is none."""
        own = self.own
        if said.version != own.version:
            detail = f"it speaks version {said.version} of the links, this node {own.version}"
        elif said.cluster != own.cluster:
            detail = f"it belongs to the domain {said.cluster}, this node to {own.cluster}"
        elif said.key_name not in ("", said.name):
            detail = f"its key is that of {said.key_name}"
        elif said.node == own.node or said.name == own.name:
            detail = f"it has the name {said.name} and HMSINDEX {said.node}; one is this node's own"
        elif member is None or member.name != said.name:
            known = "nobody" if member is None else member.name
            detail = f"HMSINDEX {said.node} belongs to {known} in this node's hms.conf"
        elif member.is_older(said.life):
            detail = f"its life {said.life} is older than {member.life}: an old frame or store"
        elif said.life == member.life and said.epoch < member.epoch:
            detail = f"its epoch {said.epoch} is older than {member.epoch}: an old frame"
        else:
            return member
        raise MemberRefused(node=said.name or f"index {said.node}", detail=detail)
