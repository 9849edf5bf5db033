"""What an arbiter is asked before it is trusted, and what its answers mean.

Each engine is asked for real: its version, its clock, how long it takes, and whether a key of the
check's own is kept, read back and compared as a lease and a configuration have to be. Nothing of
the node's is touched, and the key is gone afterwards.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Final, TypeVar

import msgspec

__all__ = [
    "CHECK_NAME",
    "Endpoint",
    "Finding",
    "Verdict",
    "clock_finding",
    "latency_findings",
    "timed",
    "verdict_of",
]

Found = TypeVar("Found")
CHECK_NAME: Final = "?check"
"""What the name of a test key begins with: no node has such a name."""
CLOCK_S: Final = 1.0
"""A larger difference is told (an alert of a node has the same limit)."""
SLOW_SHARE, LATE_SHARE = 10, 3
"""A call should end within a tenth of the lease, and is given up after a third."""


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """What one check of an endpoint found; one that is well has neither reason nor cure."""

    endpoint: str
    check: str
    verdict: Verdict
    value: str
    why: str = ""
    cure: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    """What an endpoint says of itself at a glance. fault: why it says nothing; settings: those by
    which it keeps what it has said to be so."""

    endpoint: str
    version: str = ""
    role: str = ""
    latency_ms: float = 0.0
    settings: dict[str, str] = {}
    fault: str = ""


def verdict_of(
    endpoint: str, check: str, value: str, *, is_good: bool, why: str, cure: str
) -> Finding:
    """A finding that is good, or failed."""
    if is_good:
        return Finding(endpoint, check, Verdict.OK, value)
    return Finding(endpoint, check, Verdict.FAIL, value, why, cure)


def timed(ask: Callable[[], Found]) -> tuple[Found, float]:
    """What it answers, and how many seconds it took."""
    begun = time.monotonic()
    found = ask()
    return found, time.monotonic() - begun


def clock_finding(
    endpoint: str, theirs_s: float, before_s: float, after_s: float, exact_s: float
) -> Finding:
    """The engine's clock beside this machine's, between whose two times it was read; exact_s: how
    exactly it was told. No decision compares the two, so a difference is told and refuses nothing.
    """
    off_s = max(before_s - theirs_s - exact_s, theirs_s - after_s - exact_s, 0.0)
    away_s = theirs_s - (before_s + after_s) / 2
    if off_s <= CLOCK_S:
        limit = f"at most {CLOCK_S + exact_s:g} s from this machine's"
        return Finding(endpoint, "clock", Verdict.OK, limit)
    why = "no safety depends on it, and times in logs cannot be compared"
    cure = "Have chrony or ntpd set both machines' clocks."
    value = f"{away_s:+.1f} s from this machine's"
    return Finding(endpoint, "clock", Verdict.WARN, value, why, cure)


def latency_findings(
    endpoint: str, times_s: Mapping[str, Sequence[float]], lease_s: float
) -> Iterator[Finding]:
    """How long calls took, by what they did."""
    for what, taken in times_s.items():
        middle, most = median(taken) * 1000, max(taken) * 1000
        value = f"{middle:.1f} ms, {most:.1f} ms at most, of {len(taken)}"
        if most / 1000 >= lease_s / LATE_SHARE:
            verdict, why = Verdict.FAIL, f"a call is given up after {lease_s / LATE_SHARE:g} s"
        elif most / 1000 >= lease_s / SLOW_SHARE:
            verdict, why = Verdict.WARN, f"a third of lease_s ({lease_s:g}) is all that a call has"
        else:
            verdict, why = Verdict.OK, ""
        cure = "Give it a disk of its own and a short way, or raise lease_s." if why else ""
        yield Finding(endpoint, f"latency.{what}", verdict, value, why, cure)
