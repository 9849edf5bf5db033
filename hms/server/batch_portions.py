"""Portions: how much of a connection's batch is applied under one hold of the engine's lock.

A lane hands over up to 256 frames, and one frame may carry 1,024 messages or 65,536 ranges. Applied
in one go they kept everybody else out for half a second. A portion ends once it weighs enough; it
is one turn of its lane. A SEND is never divided, as it is taken whole or refused whole; of what
settles or gives back much, a portion does a slice (hms/engine/session/partial_returns.py).
"""

from collections.abc import Iterator
from typing import Any

from hms.wire import branch_requests as tx
from hms.wire import structures as wire
from hms.wire.commands import Order
from hms.wire.frames import Envelope, Kind

__all__ = ["PORTION_WEIGHT", "Command", "Payload", "name_of", "portion_length", "portions"]

Payload = bytes | memoryview
"""A view when it is a large SEND, whose messages are copied out of it."""
Command = tuple[Envelope, Any, Payload]
"""Envelope, decoded head, and the payload that it was read from; of a SEND the pack in it."""

PORTION_WEIGHT = 1024
"""About what so many messages cost."""
_PLAIN_WEIGHT = 8
_HEAVY = (
    *(wire.Browse, wire.OpenConsumer, wire.CloseConsumer, wire.CloseSession, wire.Unsubscribe),
    *(wire.Commit, wire.Rollback, wire.Recover, Order),
    *(tx.XaPrepare, tx.XaCommit, tx.XaRollback, tx.Decide),
)
"""What one of these does grows with what waits or what was done before: it is a portion's last."""
_BYTES_PER_WEIGHT = 4096


def portion_length(commands: list[Command]) -> int:
    """How many of the commands, of which there is one at least, are applied under one hold."""
    weight = 0
    for count, command in enumerate(commands, 1):
        weight += _weight(command)
        if weight >= PORTION_WEIGHT:
            return count
    return len(commands)


def portions(commands: list[Command]) -> Iterator[list[Command]]:
    """The commands in their order, as lists of which no one weighs much."""
    while commands:
        count = portion_length(commands)
        yield commands[:count]
        commands = commands[count:]


def name_of(command: Command) -> str:
    """What it is, for the answer to why others waited."""
    envelope, head, _ = command
    if isinstance(head, Order):
        return head.command.name
    return type(head).__name__ if envelope.kind is Kind.REQUEST else envelope.kind.name


def _weight(command: Command) -> int:
    envelope, head, payload = command
    weight = _PLAIN_WEIGHT + len(payload) // _BYTES_PER_WEIGHT
    if isinstance(head, Exception):
        return weight
    if isinstance(head, _HEAVY):
        return PORTION_WEIGHT
    if envelope.kind is Kind.SEND:
        weight += int(head.message_count)
    elif envelope.kind is Kind.SETTLE:
        weight += sum(1 + len(item.ranges) for item in head)
    return weight
