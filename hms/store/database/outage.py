"""Outage: since when a database does not answer, and how long it is waited for."""

import logging
import time
from typing import Final

from hms.errors.catalogue import DatabaseLost

log = logging.getLogger("hms.store.database")

PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
PATIENCE_S: Final = 5.0
"""So long new messages only wait; after that they are refused with the reason."""


class Outage:
    """One outage after the other; `failed` for each try that failed, `over` for the first that
    did not."""

    def __init__(self, shown: str, limit_s: float) -> None:
        self._shown, self._limit_s = shown, limit_s
        self._since: float | None = None
        self._pause_s = PAUSE_FIRST_S
        self.detail: str | None = None
        """What the last try met; None while the database answers."""

    def failed(self, detail: str) -> float:
        """Seconds to wait before the next try. Raises DatabaseLost when there is to be none."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._pause_s = now, PAUSE_FIRST_S
            log.warning(
                "%s does not answer, trying for %g s: %s", self._shown, self._limit_s, detail
            )
        self.detail = detail
        if now - self._since >= self._limit_s:
            raise DatabaseLost(path=self._shown, detail=detail, limit_s=round(self._limit_s, 3))
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s

    def over(self) -> None:
        """It answered."""
        if self._since is not None:
            log.warning(
                "%s answers again after %.1f s", self._shown, time.monotonic() - self._since
            )
        self._since = self.detail = None

    def refusal(self) -> str | None:
        """Why nothing new should be taken now."""
        since, detail = self._since, self.detail
        if since is None or time.monotonic() - since < min(PATIENCE_S, self._limit_s / 2):
            return None
        return f"{self._shown} has not answered for {time.monotonic() - since:.0f} s: {detail}"
