"""The decision log: what makes a global transaction's outcome survive its coordinator.

The node alone may say "committed" (presumed abort): a transaction that it knows neither as active
nor as decided was rolled back. It is active as long as the connection that began it lives; so a
branch that recovery finds prepared, of a transaction that is neither, can be rolled back safely:
nobody can decide for it any more.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hms.errors.catalogue import DecisionRefused, TxFatal
from hms.errors.tree import HmsError
from hms.wire import branch_requests as wire
from tpmon.xa import decisions

__all__ = ["DecisionLog", "NodeLog"]

_IN_DOUBT = ("TPECLOSE", "TPETIME", "TPESYSTEM")
"""Errors after which nobody here knows whether the node has heard."""


class DecisionLog(Protocol):
    """What a coordinator needs of it."""

    @property
    def node_uid(self) -> int:
        """The node that decides."""

    @property
    def log_id(self) -> bytes | None:
        """By which links know it; None for none in particular."""

    def begin(self, gtrid: bytes, timeout_ms: int) -> Callable[[], object]:
        """The transaction is active, as long as this connection lives, once the returned function
        has been called; what it fails with, that raises."""

    def decide(self, gtrid: bytes, participants: bytes, branches: Sequence[bytes]) -> None:
        """Committed, durable when this returns, and with it those branches of the node itself.

        TransactionRolledBack: it is not active any more. TxFatal: nobody here knows.
        """

    def note(self, gtrid: bytes, participants: bytes) -> None:
        """What became of its participants; durable."""

    def forget(self, gtrid: bytes) -> None:
        """All of it is done."""

    def end(self, gtrid: bytes) -> None:
        """It is active no more: it was rolled back, or recovery goes on with it."""

    def state(self, gtrid: bytes) -> str:
        """Whose it is to carry out: this connection's while it is "committing", recovery's when it
        is "committed", nobody's any more when it is "unknown"."""


class Node(Protocol):
    """What is asked of the node."""

    @property
    def log_id(self) -> bytes | None:
        """The log of the node that answered last."""

    def request(self, request: Any) -> Any:
        """The reply's data."""

    def request_of(self, log_id: bytes | None, request: Any) -> Any:
        """The same, of the node that writes that log and of no other."""

    def tell(self, request: Any) -> None:
        """Ask without waiting for the answer."""

    def tell_later(self, request: Any) -> None:
        """The same, with what is asked next."""

    def ask_ahead(self, log_id: bytes | None, request: Any) -> Callable[[], object]:
        """Ask the node that writes that log now, and wait for the answer when the returned function
        is called."""


class NodeLog:
    """The log of a node. log_id: by which links know it. Another node of the connection's addresses
    must not decide what was begun here: recovery asks this one, which would know nothing of it."""

    def __init__(self, node: Node, node_uid: int, log_id: bytes | None = None) -> None:
        self._node = node
        self._ask = node.request
        self.node_uid = node_uid
        self.log_id = log_id

    def begin(self, gtrid: bytes, timeout_ms: int) -> Callable[[], object]:
        """The transaction is active, as long as this connection lives, once the returned function
        has been called."""
        return self._node.ask_ahead(self.log_id, wire.BeginGlobal(gtrid, timeout_ms))

    def decide(self, gtrid: bytes, participants: bytes, branches: Sequence[bytes]) -> None:
        """Committed, durable when this returns."""
        name = decisions.printed(gtrid)
        if self._node.log_id != self.log_id:
            raise DecisionRefused(gtrid=name, reason="the connection goes on at another node")
        try:
            self._node.request_of(self.log_id, wire.Decide(gtrid, participants, list(branches)))
        except HmsError as error:
            if error.symbol not in _IN_DOUBT:
                raise
            raise TxFatal(what="tx_commit()", gtrid=name, detail=str(error)) from error

    def note(self, gtrid: bytes, participants: bytes) -> None:
        """What became of its participants; durable."""
        self._ask(wire.NoteDecision(gtrid, participants))

    def forget(self, gtrid: bytes) -> None:
        """All of it is done; what the node does not hear of, recovery finds done and forgets."""
        self._node.tell_later(wire.ForgetDecision(gtrid))

    def end(self, gtrid: bytes) -> None:
        """It is active no more; the end of the connection says the same."""
        self._node.tell(wire.EndGlobal(gtrid))

    def state(self, gtrid: bytes) -> str:
        """Whose it is to carry out."""
        return str(self._ask(wire.AskDecision(gtrid))["state"])
