"""The services of the acceptance tests of the tp functions; a server process loads this module."""

import os
import signal
from pathlib import Path

import hms
import tpmon
from tpmon import service


@service("WHO")
def who(request):
    """Which process it is, and which one started it with what."""
    return {"pid": os.getpid(), "name": request.name, "mood": os.environ.get("MOOD", "")}


@service("CALLER")
def caller(request):
    """Who called."""
    return request.user


@service("PASS")
def pass_on(request):
    """Hands its call on to CALLER."""
    return tpmon.tpforward("CALLER", request.data)


@service("ECHO")
def echo(request):
    """The same data."""
    return request.data


@service("TEXT", takes="STRING")
def text(request):
    """Takes texts only."""
    return request.data.upper()


@service("FIRST")
def first(request):
    """Hands its call on."""
    return tpmon.tpforward("SECOND", request.data + " first")


@service("SECOND")
def second(request):
    """Answers for FIRST."""
    return tpmon.tpreturn(tpmon.TPSUCCESS, 7, request.data + " second")


@service("CIRCLE")
def circle(request):
    """Hands its call on to itself, for ever."""
    return tpmon.tpforward("CIRCLE", request.data)


@service("FAIL")
def fail(request):
    """The application's own failure, with data."""
    return tpmon.tpreturn(tpmon.TPFAIL, 42, "sold out")


@service("GARBAGE")
def garbage(request):
    """What nobody can send."""
    return object()


@service("DIE")
def die(request):
    """A crash."""
    os.kill(os.getpid(), signal.SIGKILL)


@service("MEET")
def meet(request):
    """Waits until the other end of a pipe is opened."""
    with Path(request.data).open() as pipe:
        return pipe.read()


@service("NESTED")
def nested(request):
    """Calls another service on its server's own connection."""
    return tpmon.tpcall("SECOND", "nested").data


@service("TELL")
def tell(request):
    """Tells its caller something before it answers."""
    tpmon.tpnotify(request.cltid, "soon")
    return "done"


@service("SUM")
def total(request):
    """A conversation: adds up what it is told, and says the sum when it is asked."""
    amount, answer = 0, None
    while True:
        said = yield answer
        amount += said["add"]
        answer = {"sum": amount} if said["ask"] else None


@service("COUNTDOWN")
def countdown(request):
    """A conversation with the tp functions: speaks first, and ends with TPSUCCESS."""
    for number in range(request.data["from"], 0, -1):
        tpmon.tpsend(request.cd, {"number": number})
    return tpmon.tpreturn(tpmon.TPSUCCESS, 5, "liftoff")


@service("CHATDIE")
def chat_die(request):
    """A conversation whose server crashes in the middle."""
    yield
    os.kill(os.getpid(), signal.SIGKILL)


@service("WATCH")
def watch(request):
    """A conversation that writes into a file how it ended for it."""
    try:
        while True:
            yield
    except hms.HmsError as error:
        Path(request.data).write_text(type(error).__name__)
        raise


@service("JUDGE")
def judge(request):
    """A listener; the message says what is to become of it."""
    if request.data == b"reject":
        raise hms.Reject("never")
    if request.data == b"retry" and request.message.delivery_count < 2:
        raise hms.Retry(delay_s=0.2)
