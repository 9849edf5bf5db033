"""The service of the drain test: it writes down which message it was called with."""

import os

from tpmon import service

_BOOK = os.open(os.environ["HMS_DRAIN_BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@service("DRAIN")
def drain(request):
    """Its cell and its number, in one write."""
    message = request.message
    os.write(_BOOK, f"{message.property('cell')} {message.property('n')}\n".encode())
