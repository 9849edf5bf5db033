"""hms store probe kill: a node on that disk is killed again and again, and its books are balanced.

What was confirmed is received once: a number that is missing was lost, one that is received again
after the commit that took it was doubled. What was not confirmed, or whose commit was in doubt,
may be there or not.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hms
from hms.boot.doctor.disk_probe import folder_of
from hms.errors.tree import HmsError

__all__ = ["Books", "kill"]

QUEUE = "probe"
BATCH = 10
MORE = (20, 300)
WAIT_S = 60.0
IDLE_S = 0.5
CONFIG: dict[str, Any] = {"hms": {"queue": {QUEUE: {"redelivery_limit": -1}}}}


@dataclass(slots=True)
class Books:
    """Numbers by what happened to them."""

    attempted: int = 0
    confirmed: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)

    def received(self, number: int) -> None:
        """A message came."""
        self.seen.add(number)
        if number in self.committed:
            self.doubled.add(number)

    def balance(self) -> dict[str, Any]:
        """The faults, and what they are faults of."""
        lost = self.confirmed - self.seen
        unexpected = {number for number in self.seen if not 0 < number <= self.attempted}
        is_good = not (lost or self.doubled or unexpected)
        return {
            "sent": self.attempted,
            "confirmed": len(self.confirmed),
            "received": len(self.seen),
            "lost": len(lost),
            "doubled": len(self.doubled),
            "unexpected": len(unexpected),
            "verdict": "the books are balanced" if is_good else "the books are not balanced",
        }


def kill(path: Path, runs: int, seed: int | None = None) -> tuple[dict[str, Any], bool]:
    """The balance after so many kills, and whether it is good."""
    from hms.testing import node as booted  # noqa: PLC0415 - no other probe boots a node

    chosen, books = random.Random(seed), Books()  # noqa: S311 - no secret
    with folder_of(path) as folder, booted(store=folder / "store", config=CONFIG) as node:
        for _ in range(runs):
            wanted = len(books.confirmed) + chosen.randint(*MORE)
            with _traffic(node.address, books):
                _await(lambda wanted=wanted: len(books.confirmed) >= wanted)  # type: ignore[misc]
                node.kill()
            node.boot(warm=True)
        _drain(node.address, books)
        node.stop()
    said = {"kills": runs, **books.balance()}
    return said, not (said["lost"] or said["doubled"] or said["unexpected"])


def _await(is_there: Callable[[], bool]) -> None:
    """Until enough is confirmed; a disk that is too slow for that is killed as it is."""
    until_s = time.monotonic() + WAIT_S
    while not is_there() and time.monotonic() < until_s:
        time.sleep(0.001)


@contextlib.contextmanager
def _traffic(address: str, books: Books) -> Any:
    """A producer and a consumer, until the node is gone."""
    threads = [
        threading.Thread(target=_until_lost, args=(work, address, books))
        for work in (_send, _receive)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(WAIT_S)


def _until_lost(
    work: Callable[["hms.Connection", Books], None], address: str, books: Books
) -> None:
    with (
        contextlib.suppress(HmsError),
        hms.connect(address, profile="", reconnect=False, request_timeout_s=WAIT_S) as connection,
    ):
        work(connection, books)


def _send(connection: "hms.Connection", books: Books) -> None:
    producer = connection.session().producer(QUEUE)
    while True:
        books.attempted += 1
        number = books.attempted
        producer.send(number.to_bytes(8, "big") * (1 + number % 50))
        books.confirmed.add(number)


def _receive(connection: "hms.Connection", books: Books) -> None:
    session = connection.session(transacted=True)
    consumer = session.consumer(QUEUE, prefetch=BATCH)
    while True:
        _take(session, consumer, books)


def _take(session: Any, consumer: Any, books: Books) -> int:
    """One transaction; how many messages it took."""
    numbers: list[int] = []
    while len(numbers) < BATCH and (message := consumer.receive(IDLE_S)) is not None:
        number = int.from_bytes(bytes(message.body)[:8], "big")
        books.received(number)
        numbers.append(number)
    session.commit()
    books.committed.update(numbers)
    return len(numbers)


def _drain(address: str, books: Books) -> None:
    with hms.connect(address, profile="") as connection:
        session = connection.session(transacted=True)
        consumer = session.consumer(QUEUE, prefetch=BATCH)
        while _take(session, consumer, books) or _waiting(connection):
            pass


def _waiting(connection: "hms.Connection") -> int:
    return int(connection.administer("queue.show", {"name": QUEUE})["waiting"])
