"""A client that repeats as a mistake would have it, of those that the simulator plants:
PYTHON wrong_client.py MISTAKE COUNT ADDRESS…; "none" for none.

Its first message is confirmed alone, then it says "ready"; at the next line it sends that many
numbers, none of which waits for the one before, and says of each "ok" or "doubt". "reconnected"
comes in between, whatever node it is.
"""

import sys

import hms
from tests.acceptance.wrong_replica import Patch
from tests.sim import test_two_logs

WAIT_S = 120


def say(*words):
    """A line, which is read at once."""
    print(*words, flush=True)


def main(mistake, count, *addresses):
    """Send, and say what became of it."""
    if mistake != "none":
        getattr(test_two_logs, mistake)(Patch)
    with hms.connect(
        addresses,
        reconnect_interval_s=0.1,
        connect_timeout_s=WAIT_S,
        request_timeout_s=WAIT_S,
        event_listener=lambda event: say(event.kind),
    ) as connection:
        producer = connection.session().producer("orders")
        producer.send(b"first")
        say("ready")
        sys.stdin.readline()
        sends = [(n, producer.send_async(b"%d" % n)) for n in range(int(count))]
        for number, one in sends:
            fault = one.exception(WAIT_S)
            if fault is not None and not isinstance(fault, hms.SendInDoubt):
                raise fault
            say("ok" if fault is None else "doubt", number)


if __name__ == "__main__":
    main(*sys.argv[1:])
