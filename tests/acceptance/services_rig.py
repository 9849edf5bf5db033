"""What the acceptance tests of services share: an application's module, and how to call it."""

import select
import threading
import time
from contextlib import contextmanager

from hms.client.core.blocking_connection import Connection
from hms.client.core.service_data import decode_data, encode_data
from hms.errors.catalogue import ServerLost, ServiceNotFound
from hms.wire.structures import make_error

WAIT_S = 60

MODULE = '''
import os
import signal

import boot
import services
import workers
from tpmon import TPFAIL, Request, service, tpreturn


@service("WHO")
def who(request):
    """Which process it is, and whose packages it sees."""
    return {"pid": os.getpid(), "owners": [boot.OWNER, services.OWNER, workers.OWNER]}


@service("FAIL")
def fail(request):
    raise ValueError("no tea today")


@service("REFUSE")
def refuse(request):
    return tpreturn(TPFAIL, 42, "sold out")


@service("DIE")
def die(request):
    os.kill(os.getpid(), signal.SIGKILL)


@service("MEET")
def meet(request):
    """Open one end of a pipe, which needs somebody at the other end."""
    with open(request.data["pipe"], request.data["mode"]) as pipe:
        if request.data["mode"] == "r":
            return pipe.read()
        pipe.write("hello")


@service("TAKE")
def take(request):
    if request.message.body == b"deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if request.message.body != b"good":
        raise ValueError(f"cannot take {request.data!r}")
'''


def write_project(folder):
    """An application that names its own packages as ours are named."""
    for name in ("services", "workers", "boot"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("OWNER = 'application'\n")
    (folder / "shop.py").write_text(MODULE)
    return folder


class Caller:
    """Calls services over one connection."""

    def __init__(self, connection):
        self.connection = connection

    def __call__(self, service, data=None, timeout_s=WAIT_S):
        """The data that the service answered, or the error that the call ended with."""
        kind, encoded = encode_data(data)
        head, answer = self.connection.run_service(service, encoded, kind, timeout_s)
        if head.error_number:
            raise make_error(head.error_number, head.error_fields)
        self.rval, self.rcode = head.rval, head.rcode
        return decode_data(head.kind, answer)

    def when_offered(self, service, data=None):
        """The same, when some server offers the service; one that was killed offers it until the
        node has seen its connection end."""
        return until(lambda: self(service, data), ServiceNotFound, ServerLost)

    def servers(self):
        """What operators see of the server processes, by name."""
        return {s["name"]: s for s in self.connection.administer("server.list")}


@contextmanager
def calling(node):
    """A caller of a node's services."""
    with Connection(node.address, request_timeout_s=WAIT_S) as connection:
        connection.open()
        yield Caller(connection)


def until(attempt, *faults):
    """What attempt() returns once it is true and raises none of the faults; within WAIT_S."""
    end, pause = time.monotonic() + WAIT_S, threading.Event()
    while True:
        try:
            found = attempt()
            if found:
                return found
            assert time.monotonic() < end, "it did not come true in time"
        except faults:
            if time.monotonic() >= end:
                raise
        pause.wait(0.02)


def has_ended(pidfd):
    """Wait until the process of a pidfd has ended; whether it has."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1000))
