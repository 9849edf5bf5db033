"""What a fault costs a client that sends one message after the other, of any system, and whether
each of its messages is there once at the end."""

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import NamedTuple

from bench.ha_machines import WAIT_S, wait_for
from hms.boot.bench.client_pool import BenchFailed

__all__ = ["FILLING", "Books", "Gaps", "Sender"]

BODY_BYTES = 256
FILLING = b"x" * 1024
"""What waits there already."""
Send = Callable[[bytes], object]


class Books:
    """Of numbered messages. A sender has one confirmed before it begins the next one."""

    def __init__(self) -> None:
        self.confirmed = 0

    @property
    def body(self) -> bytes:
        """Of the message that is sent now."""
        return b"%d" % self.confirmed + b" " * (BODY_BYTES - len(str(self.confirmed)))

    def settle(self, there: Iterable[bytes]) -> tuple[int, int]:
        """How many confirmed ones are not there, and how many are there more than once."""
        known = [int(one) for one in there if not one.startswith(FILLING[:1])]
        return self.confirmed - len(set(known) & {*range(self.confirmed)}), (
            len(known) - len(set(known))
        )


class Gaps(NamedTuple):
    """What one fault cost, in seconds, each time; messages of the client while it was made."""

    fault: str
    seconds: tuple[float, ...]
    system: str = "hms, 3 copies"
    confirmed: int = 0
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        known = sorted(self.seconds)
        p99 = known[-(len(known) // 100) - 1]
        return (
            f"{self.system:18} {self.fault:6} {len(known):4} times   "
            f"p50 {statistics.median(known):6.3f} s   "
            f"p99 {p99:6.3f} s   longest {known[-1]:6.3f} s   "
            f"of {self.confirmed:,} lost {self.lost}, doubled {self.doubled}"
        )


class Sender(threading.Thread):
    """Sends one message after the other, and knows when each was confirmed. client: a context in
    which its value sends one, and returns when that is confirmed."""

    def __init__(self, client: AbstractContextManager[Send], books: Books) -> None:
        super().__init__(daemon=True)
        self._client, self._books = client, books
        self.times: list[float] = []
        self.fault: BaseException | None = None
        self._is_over = False
        self.start()

    def run(self) -> None:
        """Until it is to end."""
        try:
            with self._client as send:
                while not self._is_over:
                    send(self._books.body)
                    self._books.confirmed += 1
                    self.times.append(time.monotonic())
        except BaseException as fault:  # noqa: BLE001 - told where it is waited for
            self.fault = fault

    def await_sends(self, count: int) -> None:
        """Until so many are confirmed."""
        self._await(lambda: len(self.times) >= count)

    def first_after(self, at_s: float) -> float:
        """When the first send was confirmed behind that time."""
        self._await(lambda: self.times[-1:] > [at_s])
        return next(one for one in self.times if one > at_s)

    def _await(self, is_so: Callable[[], bool]) -> None:
        wait_for(lambda: self.fault or is_so(), "a confirmed send")
        if self.fault is not None:
            raise BenchFailed(f"a client got {self.fault!r}")

    def longest_since(self, at_s: float) -> float:
        """The longest time between two confirmations from then on."""
        known: Iterable[float] = [one for one in self.times if one >= at_s]
        return max((b - a for a, b in pairwise(known)), default=0.0)

    def stood_still(self, at_s: float) -> float:
        """The longest time without a confirmation since then; until one comes now."""
        self.first_after(time.monotonic())
        return max(self.first_after(at_s) - at_s, self.longest_since(at_s))

    def end(self) -> None:
        """Stop, and close."""
        self._is_over = True
        self.join(WAIT_S)
