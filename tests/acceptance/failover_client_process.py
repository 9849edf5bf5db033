"""A client in a process of its own, which a test suspends, kills, or whose clock it sets.

    python failover_client_process.py SHELL TASK ADDRESS…

It says "ready", waits for a line, does its task, and says what came of it as JSON.
"""

import json
import os
import sys

from failover_shells import SHELLS, WAIT_S

import hms

TTL_S = 600
COUNT = 40


def main(shell, task, *addresses):
    """Say what came of it."""
    client = SHELLS[shell]()
    options = {"request_timeout_s": WAIT_S, "reconnect_interval_s": 0.1}
    options["connect_timeout_s"] = WAIT_S
    connection = client.do(lambda: client.connect(list(addresses), **options))
    TASKS[task](client, connection)
    client.do(connection.close)
    client.close()


def wait_for_line():
    """Until the test lets it go on."""
    say("ready")
    sys.stdin.readline()


def say(told):
    print(json.dumps(told), flush=True)


def send_and_commit(client, connection):
    """A send and a commit are under way when it is suspended."""
    session = client.do(connection.session)
    work = client.do(lambda: connection.session(transacted=True))
    producer = client.do(lambda: session.producer("orders"))
    other = client.do(lambda: work.producer("other"))
    client.do(lambda: other.send(b"work"))
    client.do(lambda: connection.administer("queue.list"))  # the node has it
    wait_for_line()
    sent = client.begin(lambda: producer.send(b"once"))
    committed = client.begin(work.commit)
    committed.result(2 * WAIT_S)
    say(sent.result(2 * WAIT_S).message_id)


def send_and_receive(client, connection):
    """With a time to live, while the clock of this process is set."""
    session = client.do(connection.session)
    producer = client.do(lambda: session.producer("orders", ttl_s=TTL_S))
    consumer = client.do(lambda: session.consumer("orders"))
    wait_for_line()
    found = []
    for number in range(COUNT):
        client.do(lambda number=number: producer.send(b"%d" % number))
        found.append(received(client, consumer, found))
        if number % 10 == 9:
            wait_for_line()
    say(found)


def received(client, consumer, found):
    """The next one; what was acknowledged when the node was killed may come again, flagged."""
    while True:
        message = client.do(lambda: consumer.receive(WAIT_S))
        body = bytes(message.body).decode()
        if not (message.redelivered and body in found):
            return body


def fork(client, connection):
    """What is a parent's is of no use to its child, and goes on in the parent."""
    session = client.do(connection.session)
    producer = client.do(lambda: session.producer("orders"))
    client.do(lambda: producer.send(b"parent"))
    child = os.fork()
    if not child:
        os._exit(refusals(client, connection, session, producer))
    refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.do(lambda: producer.send(b"parent"))
    say(refused)


def refusals(client, connection, session, producer):
    """In the child: how many of four calls were refused. Its parent's loop runs in no thread of it,
    so what asyncio is asked is begun here."""
    calls = (lambda: producer.send(b"child"), session.close, connection.session, connection.close)
    return sum(is_refused(client, call) for call in calls)


def is_refused(client, call):
    try:
        found = call()
        if hasattr(found, "send"):  # a coroutine: its first step raises
            found.send(None)
        elif hasattr(found, "__await__"):
            next(iter(found.__await__()))
    except hms.ConnectionForked as error:
        return error.own == os.getpid()
    return False


TASKS = {"send_and_commit": send_and_commit, "send_and_receive": send_and_receive, "fork": fork}

if __name__ == "__main__":
    main(*sys.argv[1:])
