"""Verdicts: what a listener raises to say what becomes of its message."""

from hms.errors.catalogue import ServiceFailed

__all__ = ["Reject", "Retry"]

REASON_CHARACTERS_MAX = 1000
CODE_CHARACTERS_MAX = 64


class Reject(ServiceFailed):
    """The message will never be taken: it goes to the dead letter queue at once.

    Of a call, which has no message, it is a failure like any other. dead_reason: the $DeadReason of
    the letter, such as DECODE_ERROR, where it is not REJECTED; the reason is its $DeadText.
    """

    def __init__(self, reason: str = "rejected", dead_reason: str = "") -> None:
        super().__init__(detail=str(reason)[:REASON_CHARACTERS_MAX])
        self.dead_reason = str(dead_reason)[:CODE_CHARACTERS_MAX]

    def __reduce__(self) -> tuple[type["Reject"], tuple[str, str]]:
        return type(self), (str(self.fields["detail"]), self.dead_reason)


class Retry(ServiceFailed):
    """The message is tried again after delay_s seconds, whatever delay its destination has; it
    counts as a failed attempt, so that it ends (F-C9)."""

    def __init__(self, reason: str = "to be tried again", *, delay_s: float = 0) -> None:
        super().__init__(detail=str(reason)[:REASON_CHARACTERS_MAX], delay_s=max(0.0, delay_s))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_retry, (str(self.fields["detail"]), self.fields["delay_s"])


def _rebuild_retry(reason: str, delay_s: float) -> Retry:
    return Retry(reason, delay_s=delay_s)
