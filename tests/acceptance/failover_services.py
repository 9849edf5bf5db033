"""Services of the tests of take-overs: each run writes itself down, and the first never ends."""

import os
import threading
from pathlib import Path

from tpmon import service

BOOK = Path(os.environ["HMS_BOOK"], "runs")


def run(request):
    """Its data, unless it is the first with that: then its node is killed while it waits."""
    line = f"{request.data}\n"
    is_first = not BOOK.exists() or line not in BOOK.read_text()
    with BOOK.open("a") as book:
        book.write(line)
    if is_first:
        threading.Event().wait(600)
    return request.data


@service("ONCE")
def once(request):
    """May not run twice."""
    return run(request)


@service("AGAIN")
def again(request):
    """May."""
    return run(request)
