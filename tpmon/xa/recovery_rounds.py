"""Watch: the rounds of recovery over one resource manager, one after the other."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from hms.errors.catalogue import XaError
from hms.errors.tree import HmsError
from tpmon.xa.recovery import Recovery, Round, Waiting
from tpmon.xa.resource import ResourceManager

__all__ = ["Watch"]

FIRST_PAUSE_S = 0.2

log = logging.getLogger("hms.recovery")


class Watch:
    """The rounds of one resource manager, one after the other, until stop is set.

    One that is down is tried again after a pause that doubles, but never waits longer than the
    interval: what is left over must end within two of them.
    """

    def __init__(
        self,
        recovery: Recovery,
        name: str,
        opened: Callable[[], ResourceManager],
        interval_s: float,
    ) -> None:
        self.name = name
        self._recovery = recovery
        self._open = opened
        self._interval_s = interval_s
        self._pause_s = min(FIRST_PAUSE_S, interval_s)
        self.waiting: list[Waiting] = []
        self.reason = "not reached yet"
        self._is_told = False
        self.since = time.time()
        self.done = [0, 0]
        self.foreign = 0

    def run(self, stop: threading.Event) -> None:
        """Until stop is set."""
        while not stop.is_set():
            stop.wait(self.step())

    def step(self) -> float:
        """One round; how long to wait for the next."""
        try:
            did = self._recovery.round(self._open())
        except HmsError as error:
            self._down(error.fields.get("reason") if isinstance(error, XaError) else error)
            pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, self._interval_s)
            return pause_s
        self._up(did)
        self._pause_s = min(FIRST_PAUSE_S, self._interval_s)
        self.waiting, self.foreign = did.waiting, did.foreign
        return self._pause_s if did.waiting else self._interval_s

    def _up(self, did: Round) -> None:
        if self.reason:
            self.reason, self.since = "", time.time()
            log.info("resource manager %s is reached", self.name)
        if did.committed or did.rolled_back:
            told = (self.name, did.committed, did.rolled_back)
            log.info("%s: %d left-over branches committed, %d rolled back", *told)
        self.done = [self.done[0] + did.committed, self.done[1] + did.rolled_back]

    def _down(self, error: object) -> None:
        if not self.reason or not self._is_told:
            self.since = time.time()
            log.warning("resource manager %s is down: %s", self.name, error)
        self._is_told = True
        self.reason = str(error) or type(error).__name__

    def describe(self) -> dict[str, Any]:
        """For operators."""
        return {
            "name": self.name,
            "state": "down" if self.reason else "up",
            "reason": self.reason,
            "since": round(self.since, 3),
            "committed": self.done[0],
            "rolled_back": self.done[1],
            "foreign": self.foreign,
        }
