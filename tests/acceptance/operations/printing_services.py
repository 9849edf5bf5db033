"""A service that prints numbered lines."""

import sys

from tpmon import Request, service

PADDING = "x" * 60


@service("PRINT")
def say(request: Request) -> dict[str, int]:
    """FIRST and COUNT of the lines; what is printed is flushed line by line."""
    first, count = request.data["first"], request.data["count"]
    for number in range(first, first + count):
        sys.stdout.write(f"printed {number} {PADDING}\n")
    return {"next": first + count}
