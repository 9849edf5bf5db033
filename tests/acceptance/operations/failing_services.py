"""Services that fail at what they are given, and say nothing of it."""

import hms
from tpmon import Request, service


@service("FAIL")
def fail(request: Request) -> None:
    """An error of a call, or of a message."""
    raise ValueError("it fails")


@service("JUDGE")
def judge(request: Request) -> None:
    """A dead letter."""
    raise hms.Reject("not ours")
