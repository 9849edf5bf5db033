"""What became of a send or commit in doubt: its token, and the answer of the node that knows."""

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from hms.wire.outcome_tokens import Token, seal
from hms.wire.structures import Welcome

__all__ = ["KeyRing", "Outcome", "OutcomeState", "outcome_of"]

LOGS_KEPT = 16


class OutcomeState(enum.StrEnum):
    """What the log says."""

    STORED = "STORED"
    """The messages were stored; Outcome.message_ids has their ids."""
    WITHDRAWN = "WITHDRAWN"
    """They were not, and never will be."""
    COMMITTED = "COMMITTED"
    """All of the transaction took effect."""
    ROLLED_BACK = "ROLLED_BACK"
    """Nothing of it did, and nothing will."""
    FORGOTTEN = "FORGOTTEN"
    """The node does not remember: too many other clients have worked since, or the messages were
    not persistent."""


class Outcome(NamedTuple):
    """message_ids: of what was stored, in the order of sending; empty otherwise."""

    state: OutcomeState
    message_ids: tuple[str, ...] = ()


def outcome_of(said: Mapping[str, Any]) -> Outcome:
    """The answer of a node."""
    first, count = int(said.get("first", 0)), int(said.get("count", 0))
    ids = tuple(f"{first + place:012x}" for place in range(count))
    return Outcome(OutcomeState(said["outcome"]), ids)


class KeyRing:
    """The keys that logs gave to this client, to sign its tokens with."""

    def __init__(self) -> None:
        self._keys: dict[bytes, tuple[bytes, str]] = {}

    def learn(self, welcome: Welcome) -> None:
        """A node let the client in."""
        self._keys.pop(welcome.log, None)
        self._keys[welcome.log] = welcome.outcome_key, welcome.user if welcome.is_secured else ""
        if len(self._keys) > LOGS_KEPT:
            del self._keys[next(iter(self._keys))]

    def token(
        self,
        log: bytes | None,
        client_uid: int,
        handle: int,
        number: int,
        frame: tuple[int, int, int, bool] | None = None,
    ) -> str:
        """The token of a commit, or of messages of a frame: (offset, count, messages of the frame,
        whether the log has them if they were taken). "" when its log has given no key."""
        if log is None or log not in self._keys:
            return ""
        key, user = self._keys[log]
        return seal(Token(log, client_uid, user, frame is None, handle, number, *frame or ()), key)
