"""The services of the tests under kills: each call or message is written down before it ends."""

import os
from pathlib import Path

from tpmon import service

_BOOK = os.open(
    Path(os.environ["HMS_BOOK"], f"{os.getpid()}.book"),
    os.O_WRONLY | os.O_APPEND | os.O_CREAT,
)


@service("DOUBLE")
def double(request):
    """The number that it was sent, and twice that."""
    return {"number": request.data["number"], "double": 2 * request.data["number"]}


@service("KEEP")
def keep(request):
    """Writes a message down; poison it cannot take."""
    message = request.message
    line = f"{message.body.decode()} {message.delivery_count} {int(message.redelivered)}\n"
    os.write(_BOOK, line.encode())
    if message.body.startswith(b"poison"):
        raise ValueError("poison")
