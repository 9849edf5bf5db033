"""What becomes of a message: every event, at every door, in every acknowledgement mode.

A cell of the product is one message and one event while an application has it. Its outcome follows
from the rules below: it is done with, or it comes back, and then the redelivered flag, the delivery
count and the moment at which it becomes a dead letter are exact.
"""

import itertools
from pathlib import Path

import pytest
from settlement_rig import LIMIT, MODES, WAIT_S, Pipes, Story

import hms
from hms.testing import node
from tests.support.waiting import wait_until

CONFIG = """
[server.held]
module = "settlement_services"
MIN = 3
MAX = 3
restart_delay_s = 0
"""
DOORS = ("receive", "listener", "service", "aio receive", "aio listener", "aio service")
ACKNOWLEDGING = ("ack one", "ack all")
CLOSING = ("close consumer", "close session", "close connection")
LATER = ("close consumer, ack one", "close consumer, ack all", "close consumer, commit")
EVENTS = (
    "recover", "raise", "commit", "rollback", "ack one", "ack all", "timeout", "return",
    *CLOSING, *LATER,
)  # fmt: skip

DONE, FAILED, RETURNED = "done with", "a failed attempt", "given back, not an attempt"


def makes_sense(event, door, mode):
    """Which cells there are: those for which every rule holds."""
    where, is_local = door.split()[-1], mode == "transacted"
    return all(
        (
            # an asynchronous session acknowledges by itself
            where != "service" or mode not in ("CLIENT", "transacted"),
            event not in CLOSING or where != "service",
            not event.endswith(("commit", "rollback")) or is_local,
            event != "recover" or not is_local,
            not event.endswith(ACKNOWLEDGING) or (mode == "CLIENT" and where != "service"),
            event != "raise" or where != "receive",
            event != "timeout" or where == "receive",
        )
    )


def outcome(event, door, mode):
    """What becomes of the message."""
    is_received = door.endswith("receive")
    if mode == "NONE" or event.endswith(("commit", *ACKNOWLEDGING)):
        return DONE
    if event in ("recover", "raise", "rollback"):
        is_done = is_received and mode in ("AUTO", "DUPS_OK")  # as receive() returned it
        return DONE if is_done else FAILED
    return RETURNED if mode in ("CLIENT", "transacted") else DONE


CELLS = [cell for cell in itertools.product(EVENTS, DOORS, MODES) if makes_sense(*cell)]


@pytest.fixture(scope="module")
def conn():
    with (
        node(config=CONFIG, python_path=[Path(__file__).parent]) as started,
        hms.connect(started.address, request_timeout_s=WAIT_S) as connection,
    ):
        yield connection


@pytest.mark.parametrize(("event", "door", "mode"), CELLS)
def test_a_message_has_the_outcome_that_the_rules_give(conn, tmp_path, event, door, mode):
    """Flag, count and dead letter are exact, and nothing that is done with comes again."""
    wanted = outcome(event, door, mode)
    rounds = {DONE: 1, FAILED: LIMIT, RETURNED: LIMIT + 1}[wanted]
    with conn.session() as session, Given(session, tmp_path) as given:
        story = Story(
            conn.addresses[0], given.queue.name, event, mode, is_aio=door.startswith("aio")
        )
        if door.endswith("service"):
            story.told(story.serve(rounds, given.send, given.pipes))
        elif door.endswith("listener"):
            story.told(story.listen(rounds, given.send))
        else:
            story.told(story.receive(rounds, given.send))

        assert story.seen == [(turn + 1, turn > 0) for turn in range(rounds)]
        given.check(wanted, rounds)


class Given:
    """A queue of its own, and the message in it."""

    numbers = itertools.count()

    def __init__(self, session, folder):
        name = f"cell{next(self.numbers)}"
        self.session = session
        self.queue = session.create_queue(f"{name}?redelivery-limit={LIMIT}")
        self.pipes = Pipes(folder / name, lambda: not self.shown()["in_flight"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipes.close()

    def send(self):
        """Send the message."""
        self.session.producer(self.queue).send(self.pipes.place.encode())

    def shown(self):
        """The queue's figures."""
        return self.session.connection.administer("queue.show", {"name": self.queue.name})

    def check(self, wanted, rounds):
        """Where the message is now, and what it knows of its past."""
        wait_until(self.pipes.is_settled)
        left = self.shown()
        assert left["delivered"] == 1 or wanted is not DONE  # else prefetched ones count too
        assert left["waiting"] == (1 if wanted is RETURNED else 0)
        assert left["dead_lettered"] == (1 if wanted is FAILED else 0)
        letters = self.session.consumer(hms.Queue("HMS.DLQ"))
        letter = letters.receive(WAIT_S if wanted is FAILED else 0)
        letters.close()
        assert (letter is not None) == (wanted is FAILED)
        if letter is not None:
            assert letter.property("$DeadCount") == LIMIT
            assert letter.property("$DeadOrigin") == f"queue:{self.queue.name}"
        if wanted is RETURNED:
            message = self.session.consumer(self.queue).receive(WAIT_S)
            assert (message.delivery_count, message.redelivered) == (rounds + 1, True)
