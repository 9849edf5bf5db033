"""Control: what an operator sets on a queue or topic, and may change while the node runs.

The limits of a topic hold at each of its subscriptions: every line of messages has its own room.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from hms.records import Definition

Value = str | int | float | bool


class LimitBehavior(enum.StrEnum):
    """What happens to a message for which there is no room (F-C11)."""

    FLOW_CONTROL = "FLOW_CONTROL"
    REMOVE_OLDEST = "REMOVE_OLDEST"
    REJECT_NEWEST = "REJECT_NEWEST"
    REMOVE_LOW_PRIORITY = "REMOVE_LOW_PRIORITY"

    @property
    def removes(self) -> bool:
        """Whether messages that wait make room for new ones."""
        return self in (LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a destination or node takes; 0: no limit. active_max, backups_max: of consumers."""

    messages_max: int = 0
    bytes_max: int = 0
    message_bytes_max: int = 0
    producers_max: int = 0
    active_max: int = 0
    backups_max: int = 0
    behavior: LimitBehavior = LimitBehavior.REJECT_NEWEST


NO_LIMITS: Final = Limits()


class Lifetime(enum.StrEnum):
    """Where a destination came from, and so how long it lives (F-C3 to F-C6)."""

    CONFIGURED = ""
    CREATED = "CREATED"
    """By an operator; until it is deleted."""
    DYNAMIC = "DYNAMIC"
    """By create_queue() of a client; until the node stops."""
    AUTOMATIC = "AUTOMATIC"
    """By its first use; until it was idle and empty for a while."""
    TEMPORARY = "TEMPORARY"
    """By a connection for itself; until that ends."""


class Control:
    """Limits, pauses and names of one queue or topic. is_guarded: whether a send has to look."""

    __slots__ = (
        "altered",
        "export_name",
        "is_gone",
        "is_guarded",
        "is_receiving_paused",
        "is_sending_paused",
        "life",
        "limits",
        "owner",
        "used_ms",
    )

    def __init__(self) -> None:
        self.limits = NO_LIMITS
        self.is_sending_paused = False
        self.is_receiving_paused = False
        self.is_guarded = False
        self.is_gone = False
        self.life = Lifetime.CONFIGURED
        self.export_name = ""
        """"" is its own name."""
        self.altered: Mapping[str, Value] = {}
        """What was set while the node ran, under the names of hms.conf; it outlives the node."""
        self.owner = 0
        """The client, by its uid, that made a temporary one."""
        self.used_ms = 0
        """When an automatic one was last seen in use; when the owner of a temporary one was lost,
        0 while it is there."""

    def set_limits(self, limits: Limits) -> None:
        """New limits hold for what comes now."""
        self.limits = limits
        self._guard()

    def pause(self, *, sending: bool, receiving: bool) -> None:
        """What is paused from now on."""
        self.is_sending_paused, self.is_receiving_paused = sending, receiving
        self._guard()

    def define(self, definition: Definition) -> Definition:
        """The same with what was set here while the node ran."""
        altered, paused = dict(self.altered), self.paused
        if not (altered or paused or self.life):
            return definition
        made, owner = self.life.value, self.owner
        return replace(definition, altered=altered, paused=paused, made=made, client_uid=owner)

    def end(self) -> None:
        """The destination is gone: clients that still have it open are told at the next send."""
        self.is_gone = self.is_guarded = True

    def go_on(self) -> None:
        """It does not end after all."""
        self.is_gone = False
        self._guard()

    @property
    def paused(self) -> str:
        """How the log and operators say it."""
        if self.is_sending_paused and self.is_receiving_paused:
            return "BOTH"
        if self.is_sending_paused:
            return "PRODUCTION"
        return "CONSUMPTION" if self.is_receiving_paused else ""

    def _guard(self) -> None:
        limits = self.limits
        has_limit = limits.messages_max or limits.bytes_max or limits.message_bytes_max
        self.is_guarded = self.is_sending_paused or bool(has_limit)
