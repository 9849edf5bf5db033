"""Flags of the tp functions: which are allowed, and how long they let a call wait."""

from hms.client.core.arguments import check_number
from hms.errors.catalogue import InvalidArgument
from tpmon.constants import TPNOTIME
from tpmon.context import Context

ENDLESS_S = 10_000_000.0
FLAGS_MAX = (1 << 63) - 1


def check_flags(what: str, flags: int, allowed: int) -> None:
    """InvalidArgument for flags that mean nothing here."""
    if flags.__class__ is int and not flags & ~allowed:
        return
    strange = check_number("flags", flags, -FLAGS_MAX, FLAGS_MAX) & ~allowed
    if strange:
        raise InvalidArgument(what=what, detail=f"flags {strange:#x} do not belong there")


def patience_s(context: Context, flags: int) -> float | None:
    """How long a call waits; None: as service or node have it."""
    return ENDLESS_S if flags & TPNOTIME else context.block_time_s or None
