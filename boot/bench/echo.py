"""The service that is measured: it answers what it is given."""

from tpmon import Request, service

__all__ = ["echo"]


@service("ECHO")
def echo(request: Request) -> bytes:
    """What came."""
    data: bytes = request.data
    return data
