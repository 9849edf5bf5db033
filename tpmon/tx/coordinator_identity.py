"""Whose transactions these are: a number drawn at random, once in the life of a node's log.

A node's name may be that of another system which uses the same database; taken for our own, its
branches would be rolled back. So the node keeps a random number, as a decision that is never
forgotten, and every gtrid begins with it.
"""

import os

from hms.errors.tree import HmsError
from hms.wire import branch_requests as wire
from tpmon.xa import decisions
from tpmon.xa.recovery import Asker

__all__ = ["identity_of"]


def identity_of(node: Asker) -> int:
    """The number; the first who asks draws it."""
    found = node.request(wire.AskDecision(decisions.IDENTITY))
    while found["state"] not in {"committed", "committing"}:
        _draw(node)
        found = node.request(wire.AskDecision(decisions.IDENTITY))
    return int.from_bytes(found["participants"], "big")


def _draw(node: Asker) -> None:
    try:
        node.request(wire.BeginGlobal(decisions.IDENTITY))
        node.request(wire.Decide(decisions.IDENTITY, os.urandom(8)))
    except HmsError as error:
        if error.symbol != "TPETRAN":
            raise  # else somebody else is drawing it right now
