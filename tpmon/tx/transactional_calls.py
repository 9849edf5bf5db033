"""A service call in a transaction: what its answer brings back."""

from collections.abc import Callable, Iterable

from hms.client.core.pending_requests import Pending
from hms.errors.tree import HmsError
from hms.wire.structures import ResultHead, decode_with_body, make_error
from tpmon.constants import TPSUCCESS

__all__ = ["CarriedCall"]

_NEVER_RAN = frozenset(("TPENOENT", "TPEBLOCK", "TPEINVAL", "TPELIMIT"))
"""Errors of calls that reached no service, and so did nothing."""


class CarriedCall:
    """Is called with the answer, whichever way it comes; a call without one is a veto."""

    __slots__ = ("_answered", "_is_over", "_then")

    def __init__(
        self,
        answered: Callable[[Iterable[bytes], str], None],
        then: Callable[[Pending], object],
    ) -> None:
        self._answered = answered
        self._then = then
        self._is_over = False

    def __call__(self, pending: Pending) -> None:
        """The answer is here, or there will be none."""
        error = pending.error
        if error is not None:
            self._end((), "" if error.symbol in _NEVER_RAN else str(error))
        else:
            self._read(pending)
        self._then(pending)

    def _read(self, pending: Pending) -> None:
        try:
            head, _ = decode_with_body(pending.payload, ResultHead)
        except HmsError as error:
            self._end((), str(error))
            return
        veto = ""
        if head.error_number:
            veto = str(make_error(head.error_number, head.error_fields))
        elif head.rval != TPSUCCESS:
            veto = f"service {pending.what} failed"
        self._end(head.branches, veto)

    def given_up(self, reason: str) -> None:
        """Nobody waits for the answer: what the service does is not known."""
        self._end((), reason)

    def _end(self, branches: tuple[bytes, ...], veto: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._answered(branches, veto)
