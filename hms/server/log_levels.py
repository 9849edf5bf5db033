"""Levels of the node's log at run time, which go back to what is configured by themselves."""

import logging
import time
from collections.abc import Callable
from typing import Any

from hms.errors.catalogue import InvalidArgument
from hms.wire import operations as ops

__all__ = ["LogLevels"]

log = logging.getLogger("hms.alerts")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
SET_MAX = 100


class LogLevels:
    """Told under the engine's lock; tick() in any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._before: dict[str, int] = {}

    def change(self, asked: ops.SetLogLevel) -> dict[str, Any]:
        """Set one; what holds now."""
        level, name = asked.level.upper(), asked.name
        if level not in LEVELS:
            raise InvalidArgument(what="level", detail=f"it is one of {', '.join(LEVELS)}")
        if name and name != "hms" and not name.startswith("hms."):
            raise InvalidArgument(what="name", detail='parts of the node begin with "hms."')
        if name not in self._before and len(self._before) >= SET_MAX:
            raise InvalidArgument(what="name", detail=f"{SET_MAX} levels are set already")
        logger = logging.getLogger(name)
        self._before.setdefault(name, logger.level)
        logger.setLevel(level)
        log.warning("the level of %s is %s", name or "the node", level)
        self._until.pop(name, None)
        if asked.seconds:
            self._until[name] = self._clock() + asked.seconds
        return {"name": name, "level": level, "seconds": asked.seconds}

    def tick(self) -> None:
        """What was set for a time that is over goes back."""
        now = self._clock()
        for name, until in list(self._until.items()):
            if now >= until:
                self._until.pop(name, None)
                logging.getLogger(name).setLevel(self._before.pop(name, logging.NOTSET))
                log.warning("the level of %s is as configured again", name or "the node")
