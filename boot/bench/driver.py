"""What a client of any system does while it is measured."""

from collections.abc import Iterable
from typing import Protocol

from hms.boot.bench.load import Load, Sink

__all__ = ["Driver"]


class Driver(Protocol):
    """One connection, or what comes nearest. All of open_… happens before the clock runs.

    A send that is_durable counts when the system has said that it has the message; what that is
    worth, the system tells (systems.py).
    """

    def __init__(self, address: str, options: dict[str, str]) -> None:
        """Where the system listens, and what it needs to know besides."""

    def open_sender(self, load: Load) -> None:
        """Connect and be ready to send."""

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Send one after the other, waiting for each."""

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """Send with up to the load's window unconfirmed; returns when all are confirmed."""

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Send each when it is given; returns when all are confirmed."""

    def open_receiver(self, load: Load) -> None:
        """Connect, and open the load's number of receivers."""

    def receive(self, sink: Sink) -> None:
        """Receive and acknowledge until the sink is full or nothing comes for the load's time."""

    def open_caller(self, load: Load) -> None:
        """Connect and be ready to call the service echo."""

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Call one after the other."""

    def close(self) -> None:
        """Disconnect."""
