"""The services of the tests of transactions that work with queues only."""

import hms
from tpmon import service


@service("PUT", transaction="mandatory")
def put(request):
    """Send what it is given, in the caller's transaction."""
    hms.rm("hms").producer(hms.Queue("put")).send(request.data["body"].encode())


@service("LOOK")
def look(request):
    """Do nothing that belongs to a transaction."""
    return {"saw": request.data}


@service("TAKE", transaction="mandatory")
def take(request):
    """Receive a message, in the caller's transaction."""
    with hms.rm("hms").consumer(hms.Queue("taken"), prefetch=1) as consumer:
        return {"body": consumer.receive(request.data["timeout_s"]).body.decode()}
