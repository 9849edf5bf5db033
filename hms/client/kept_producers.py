"""Kept producers: those that session.send() made, one for each destination, for the next send."""

from collections.abc import Callable
from typing import Generic, TypeVar

from hms.client.destinations import Destination, Place, place_of
from hms.client.producer_steps import ProducerSteps

KEPT_MAX = 64
_P = TypeVar("_P", bound=ProducerSteps)


class KeptProducers(Generic[_P]):
    """Of one session; the one that was used last stands last."""

    def __init__(self) -> None:
        self._kept: dict[Place, _P] = {}

    def find(self, destination: Destination, make: Callable[[], _P]) -> _P:
        """The one for that destination; made when there is none, or when it is of no use."""
        place = place_of(destination)
        found = self._kept.pop(place, None)
        if found is None or found.is_over:
            found = make()
        self._kept[place] = found
        return found

    def surplus(self) -> _P | None:
        """One that is to be closed, as there are too many: the idle one that was not used for
        longest."""
        if len(self._kept) <= KEPT_MAX:
            return None
        for place, one in self._kept.items():
            if one.is_idle:
                return self._kept.pop(place)
        return None
