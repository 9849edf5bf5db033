"""The recorder and checker: what clients did, and whether the node kept its word.

Every send is INVOKED and then confirmed (ok), refused (fail) or unknown (info); every receipt is
noted with its redelivered flag, every acknowledgement once it was confirmed.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Verdict:
    """What the checker counts; the first four have to be zero."""

    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unflagged: list[str] = field(default_factory=list)
    recovered: int = 0
    confirmed: int = 0

    @property
    def is_clean(self):
        return not (self.lost or self.unexpected or self.duplicated or self.unflagged)


class Books:
    """One destination's books (or one durable subscription's); used from many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._invoked = set()
        self._ok = set()
        self._fail = set()
        self._received = Counter()
        self._acknowledged = set()
        self._verdict = Verdict()

    def invoke(self, bodies):
        with self._lock:
            self._invoked.update(bodies)

    def ok(self, bodies):
        with self._lock:
            self._ok.update(bodies)

    def fail(self, bodies):
        with self._lock:
            self._fail.update(bodies)

    def received(self, body, is_redelivered, count):
        with self._lock:
            if body in self._acknowledged:
                self._verdict.duplicated.append(body)
            if self._received[body] and not (is_redelivered and count > 1):
                self._verdict.unflagged.append(body)
            self._received[body] += 1

    def acknowledged(self, bodies):
        with self._lock:
            self._acknowledged.update(bodies)

    def verdict(self):
        """Call it when everything was drained."""
        with self._lock:
            verdict = self._verdict
            verdict.lost = sorted(self._ok - set(self._received))
            verdict.unexpected = sorted(
                (set(self._received) - self._invoked) | (set(self._received) & self._fail)
            )
            unknown = self._invoked - self._ok - self._fail
            verdict.recovered = len(unknown & set(self._received))
            verdict.confirmed = len(self._ok)
            return verdict
