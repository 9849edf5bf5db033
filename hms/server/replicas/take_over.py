"""What a copy knows of how it came to lead: whom it followed, why that one leads no more, and since
when it was not heard. For operators; nothing is decided by it."""

from typing import Any

__all__ = ["TakeOver"]


class TakeOver:
    """before: who led; cause: BOOT (this process has followed nobody), HANDED_OVER (by that one),
    LEFT (it stopped cleanly, or its process ended and its lease with it), LOST (the connection to
    it ended), SILENT, or AGAIN (an epoch was won before, and not opened); heard_s: when that one
    was heard last, None for a BOOT; won_s: when the campaign was won."""

    def __init__(self, before: str, cause: str, heard_s: float | None, won_s: float) -> None:
        self._before, self.cause = before, cause
        self._heard_s, self._won_s = heard_s, won_s
        self._confirmed_s: float | None = None
        self._confirmed_ms: int | None = None

    def confirmed(self, at_s: float, at_ms: int | None) -> None:
        """Records of the epoch are; the first call counts. at_ms: by the clock of the node."""
        if self._confirmed_s is None:
            self._confirmed_s, self._confirmed_ms = at_s, at_ms

    @property
    def is_over(self) -> bool:
        """Some are confirmed."""
        return self._confirmed_s is not None

    def describe(self, to: str) -> dict[str, Any]:
        """For the status; None for what is not known, or not yet."""
        return {
            "at_ms": self._confirmed_ms,
            "from": self._before,
            "to": to,
            "cause": self.cause,
            "detection_s": self._since_heard(self._won_s),
            "total_s": self._since_heard(self._confirmed_s),
        }

    def _since_heard(self, at_s: float | None) -> float | None:
        if at_s is None or self._heard_s is None:
            return None
        return round(at_s - self._heard_s, 3)
