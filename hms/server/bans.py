"""Bans: clients that an operator keeps out, until a time or until somebody ends it.

A ban is of a user, a client id, a client name, or of an address or network. It is asked at the
HELLO, behind the login. They are kept in a file, as a node that is started anew must not let in
whom it was told to keep out.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from hms.errors.catalogue import BanNotFound, ClientBanned, InvalidArgument
from hms.wire import operations as ops

__all__ = ["Ban", "Banned", "Bans"]

BANS_MAX = 1000
KINDS = ("user", "client_id", "client_name", "address")


class Keeper(Protocol):
    """Keeps what is given over the life of the node."""

    def load(self) -> list[dict[str, Any]]:
        """What was kept."""

    def save(self, bans: list[dict[str, Any]]) -> None:
        """Keep this instead."""


class Jobs(Protocol):
    """Runs what would wait for a disk."""

    def submit(self, job: Callable[[], None]) -> bool:
        """In a thread of its own."""


@dataclass(frozen=True, slots=True)
class Banned:
    """Who a client is."""

    user: str
    client_id: str
    client_name: str
    address: str


@dataclass(frozen=True, slots=True)
class Ban:
    """until_ms 0: until it is ended."""

    by: str
    value: str
    since_ms: int
    until_ms: int
    reason: str

    def meets(self, who: Banned) -> bool:
        """Whether it is of that client."""
        if self.by != "address":
            return bool(getattr(who, self.by) == self.value)
        try:
            return ipaddress.ip_address(who.address) in ipaddress.ip_network(self.value)
        except ValueError:  # a local process has no address
            return False

    def error(self) -> ClientBanned:
        """What its client is told."""
        return ClientBanned(
            what=f"the {self.by.replace('_', ' ')} {self.value}",
            until=_time(self.until_ms),
            reason=self.reason or "no reason given",
        )

    def plain(self) -> dict[str, Any]:
        """For a list and for the file."""
        return {
            "by": self.by,
            "value": self.value,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "reason": self.reason,
        }


def _time(at_ms: int) -> str:
    if not at_ms:
        return "it is ended"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


class Bans:
    """Asked and changed under the engine's lock."""

    def __init__(self) -> None:
        self._bans: dict[tuple[str, str], Ban] = {}
        self._keeper: Keeper | None = None
        self._jobs: Jobs | None = None

    def __bool__(self) -> bool:
        return bool(self._bans)

    def keep_in(self, keeper: Keeper, jobs: Jobs) -> None:
        """Take what was kept, and keep what comes."""
        for one in keeper.load():
            self._bans[one["by"], one["value"]] = Ban(**one)
        self._keeper, self._jobs = keeper, jobs

    def made(self, asked: ops.BanClient, now_ms: int) -> Ban:
        """The ban that is asked for; InvalidArgument when there can be none."""
        if asked.by not in KINDS:
            raise InvalidArgument(what="by", detail=f"it is one of {', '.join(KINDS)}")
        if not asked.value:
            raise InvalidArgument(what="value", detail="whom to ban is needed")
        if asked.by == "address":
            try:
                ipaddress.ip_network(asked.value)
            except ValueError as fault:
                raise InvalidArgument(what="value", detail=str(fault)) from fault
        if len(self._bans) >= BANS_MAX and (asked.by, asked.value) not in self._bans:
            raise InvalidArgument(what="value", detail=f"there are {BANS_MAX} bans already")
        until_ms = now_ms + asked.seconds * 1000 if asked.seconds else 0
        return Ban(asked.by, asked.value, now_ms, until_ms, asked.reason)

    def add(self, ban: Ban) -> None:
        """From now on; one of the same client is replaced."""
        self._bans[ban.by, ban.value] = ban
        self._keep()

    def end(self, by: str, value: str) -> None:
        """It may come again."""
        if self._bans.pop((by, value), None) is None:
            raise BanNotFound(by=by, value=value)
        self._keep()

    def check(self, who: Banned, now_ms: int) -> None:
        """ClientBanned for one that is kept out."""
        self._age(now_ms)
        for ban in self._bans.values():
            if ban.meets(who):
                raise ban.error()

    def describe(self, now_ms: int) -> list[dict[str, Any]]:
        """Those that hold."""
        self._age(now_ms)
        return [ban.plain() for ban in self._bans.values()]

    def _age(self, now_ms: int) -> None:
        over = [key for key, ban in self._bans.items() if 0 < ban.until_ms <= now_ms]
        for key in over:
            del self._bans[key]
        if over:
            self._keep()

    def _keep(self) -> None:
        if self._keeper is not None and self._jobs is not None:
            keeper, bans = self._keeper, self._bans
            # As they are when it runs: of two jobs the last one must not write what the first saw.
            self._jobs.submit(lambda: keeper.save([ban.plain() for ban in list(bans.values())]))
