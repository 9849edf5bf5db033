"""Whether services that fail log what they were given: as configured, and otherwise for a while."""

import logging
import time
from collections.abc import Callable
from typing import Any

from hms.wire import operations as ops

__all__ = ["LogPayloads"]

log = logging.getLogger("hms.alerts")

WORDS = {True: "logged", False: "not logged"}


class LogPayloads:
    """Told under the engine's lock; tick() in one thread, which tells the server processes: tell
    is asked each time, and knows which of them have heard it."""

    def __init__(
        self,
        is_configured: bool,
        tell: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_configured, self._tell, self._clock = is_configured, tell, clock
        self.is_on = is_configured
        self._until: float | None = None

    def change(self, asked: ops.SetLogPayloads) -> dict[str, Any]:
        """What holds from now on; for so many seconds, or until the node ends."""
        self.is_on = asked.is_on
        self._until = self._clock() + asked.seconds if asked.seconds else None
        log.warning("payloads at which services fail are %s", WORDS[asked.is_on])
        return {"is_on": asked.is_on, "seconds": asked.seconds}

    def tick(self) -> None:
        """What was set for a time that is over goes back."""
        until = self._until
        if until is not None and self._clock() >= until:
            self._until, self.is_on = None, self._is_configured
            log.warning("payloads at which services fail are %s again", WORDS[self.is_on])
        self._tell(self.is_on)
