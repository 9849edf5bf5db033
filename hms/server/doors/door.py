"""What a door is, and what it is given to say beside the engine's effects."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from hms.engine.effects import Browsed, Confirm, Deliver, Ready, Refusal, Reply
from hms.engine.messages import StoredMessage
from hms.server.batch_portions import Command, Payload
from hms.wire.frames import Envelope, Kind

__all__ = ["Door", "Frame", "PayloadsOf", "Receivers", "Said", "Words"]

Frame = list[bytes]
"""What a listener sends at once: an envelope, which may be empty, and a payload."""
PayloadsOf = Callable[[Sequence[StoredMessage]], Sequence[bytes]]
"""Reads head and body of messages whose bodies have left memory."""
Receivers = Sequence[tuple[int, int]]
"""Consumers of one connection, each with its epoch."""


class Words(msgspec.Struct, frozen=True, gc=False):
    """What the node itself has to say: WELCOME, CHALLENGE, ERROR, GOODBYE, EVENT, NOTICE, INVOKE,
    TALK, ANSWER. content: a structure of hms/wire/structures.py, or an error; data: what goes with
    it unseen."""

    kind: Kind
    content: Any
    correlation: int = 0
    data: bytes | None = None


Said = Browsed | Confirm | Ready | Refusal | Reply | Words


class Door(Protocol):
    """One protocol; of one that keeps something of a connection, one for each peer.

    A command is an envelope (its kind, and the correlation by which its answer is known), a decoded
    head and, of a SEND, the pack of its messages.
    """

    def decode(self, envelope: Envelope, payload: Payload) -> Command:
        """The command in what a listener took from a peer. What cannot be read is a command whose
        head is the error."""

    def encode(self, effect: Said, payloads_of: PayloadsOf | None) -> Frame:
        """What a peer is told."""

    def deliver(self, effect: Deliver, to: Receivers, payloads_of: PayloadsOf | None) -> Frame:
        """Messages for one or more consumers of a connection, who get the very same."""

    def forget(self) -> None:
        """Now and then: give up what is kept only to be faster."""
