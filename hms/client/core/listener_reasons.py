"""Why a listener gives its message back: what a dead letter tells of it."""

from hms.client.core.listener_outcomes import Reject, Retry

__all__ = ["TEXT_MAX", "reason_of"]

TEXT_MAX = 1000


def reason_of(fault: BaseException | None) -> tuple[str, str]:
    """The reason, where it names one, and the text that an exception gives."""
    if fault is None:
        return "", ""
    if isinstance(fault, Reject | Retry):
        return getattr(fault, "dead_reason", ""), str(fault.fields["detail"])
    try:
        said = str(fault)
    except Exception as another:  # noqa: BLE001 - its own __str__ may fail in any way
        said = f"({type(another).__name__} while it was asked)"
    kind = type(fault).__name__
    return "", (f"{kind}: {said}" if said else kind)[:TEXT_MAX]
