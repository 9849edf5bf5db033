"""A listener service that says what it was given, and goes on when it is told how."""

import os
from pathlib import Path

import hms
from tpmon import service


@service("HELD")
def held(request):
    """The body is where its two pipes are; what comes through the second one is how it ends."""
    message = request.message
    place = request.data.decode()
    said = f"{message.delivery_count} {int(message.redelivered)}\n"
    Path(f"{place}.given").write_text(said)
    going = os.open(f"{place}.go", os.O_RDONLY)
    word = os.read(going, 1)
    os.close(going)
    if word == b"x":
        raise ValueError("it was told to fail")
    if word == b"r":
        raise hms.Reject("it was told to")
