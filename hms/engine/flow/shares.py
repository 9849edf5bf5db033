"""Shares: what clients take of the limits of a node, all together and each by itself.

One client may have three quarters of a limit, so that something is left for others. It is known by
its client id or, without one, by its own number over reconnects. What is nobody's, such as what the
configuration has or what the log had, is counted, and refused to nobody for whose it is.

What clients have open, and what they define to stay, takes memory beside their messages. Each of
the two may take MEMORY_BYTES_FREE and a part of max_memory_bytes; what is above the former counts
in the quota of the node like waiting messages. They are apart so that who opens a consumer, to
receive or to end what was defined, is not refused for what the log had.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hms.engine.settings import EngineSettings
from hms.errors.catalogue import ConsumerLimit, OpenMemoryLimit

__all__ = ["NO_OWNER", "Owner", "Share", "Shares", "Taken"]

Owner = int | str
NO_OWNER: Owner = 0
MEMORY_BYTES_FREE = 8 << 20
"""So much of each fits beside the quota; see docs/how-to/operate-a-node.md."""
OPENED_PART, DEFINED_PART = 4, 8
"""A quarter of the memory, and an eighth."""


class Share:
    """One limit: how much of it is used, and by whom."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.limit_of_one = limit - limit // 4
        self.used = 0
        self._own: dict[Owner, int] = {}

    def used_by(self, owner: Owner) -> int:
        """What one client has of it."""
        return self._own.get(owner, 0)

    def is_over(self, more: int) -> bool:
        """Whether so much more would be too much for all of them."""
        return self.used + more > self.limit

    def is_over_alone(self, owner: Owner, more: int) -> bool:
        """Whether so much more would be too much for this one."""
        return owner != NO_OWNER and self.used_by(owner) + more > self.limit_of_one

    def take(self, owner: Owner, count: int) -> None:
        """So much more, or less, is used."""
        self.used += count
        if owner == NO_OWNER:
            return
        own = self._own.get(owner, 0) + count
        if own:
            self._own[owner] = own
        else:
            self._own.pop(owner, None)


class Taken(NamedTuple):
    """Whose share a place takes; bytes of its definition, and of memory."""

    owner: Owner
    definition_bytes: int
    memory_bytes: int


class Shares:
    """Of one node. acting: on whose behalf the command is that is applied now."""

    def __init__(self, settings: EngineSettings) -> None:
        self.topics = Share(settings.topics_max)
        self.definitions = Share(settings.definitions_bytes_max)
        memory = settings.memory_bytes_max
        self.opened = Share(MEMORY_BYTES_FREE + memory // OPENED_PART)
        self.defined = Share(MEMORY_BYTES_FREE + memory // DEFINED_PART)
        self._group_bytes = self.quota_bytes = 0
        """What counts in the quota of the node. A store that had more than is allowed now still
        leaves most of it to messages."""
        self.acting: Owner = NO_OWNER
        self._taken: dict[tuple[int, str], Taken] = {}
        """By each destination and durable subscription, by its number and name."""

    def begin(self, number: int, name: str, taken: Taken) -> None:
        """A place begins to exist."""
        self._taken[number, name] = taken
        self.definitions.take(taken.owner, taken.definition_bytes)
        self.take_memory(taken.owner, taken.memory_bytes, is_defined=True)

    def end(self, number: int, name: str) -> Owner:
        """It exists no more; whose it was."""
        taken = self._taken.pop((number, name))
        self.definitions.take(taken.owner, -taken.definition_bytes)
        self.take_memory(taken.owner, -taken.memory_bytes, is_defined=True)
        return taken.owner

    def take_memory(self, owner: Owner, count: int, *, is_defined: bool = False) -> None:
        """So many bytes more, or less, are in use. What is nobody's was not opened by clients."""
        share = self.defined if is_defined or owner == NO_OWNER else self.opened
        share.take(owner, count)
        counted = [
            max(0, min(s.used, s.limit) - MEMORY_BYTES_FREE) for s in (self.opened, self.defined)
        ]
        self.quota_bytes = sum(counted) + self._group_bytes

    def take_groups(self, count: int) -> None:
        """What groups and orders of messages take, beside these: all of it counts in the quota."""
        self._group_bytes += count
        self.quota_bytes += count

    def memory_fault(self, more: int, *, is_defined: bool = False) -> OpenMemoryLimit | None:
        """Why so many bytes more would be too many."""
        share, words = self.opened, "open"
        if is_defined:
            share, words = self.defined, "defined"
        owner = self.acting
        if share.is_over_alone(owner, more):
            what, used = f"what this client has {words}", share.used_by(owner)
            return OpenMemoryLimit(what=what, used=used + more, limit=share.limit_of_one)
        if owner != NO_OWNER and share.is_over(more):
            what = f"what all clients have {words}"
            return OpenMemoryLimit(what=what, used=share.used + more, limit=share.limit)
        return None

    def check_memory(self, more: int, *, is_defined: bool = False) -> None:
        """OpenMemoryLimit when so many bytes more would be too many."""
        fault = self.memory_fault(more, is_defined=is_defined)
        if fault is not None:
            raise fault

    @contextmanager
    def acting_for(self, owner: Owner) -> Iterator[None]:
        """What is made in the block is this client's."""
        before, self.acting = self.acting, owner
        try:
            yield
        finally:
            self.acting = before

    def check_definitions(self, more: int) -> None:
        """ConsumerLimit when so many bytes more would be too many in each segment's dictionary."""
        share, owner = self.definitions, self.acting
        what = "bytes of definitions"
        if share.is_over(more):
            raise ConsumerLimit(what=what, count=share.used + more, limit=share.limit)
        if share.is_over_alone(owner, more):
            count, limit = share.used_by(owner) + more, share.limit_of_one
            raise ConsumerLimit(what=f"{what} of one client", count=count, limit=limit)
