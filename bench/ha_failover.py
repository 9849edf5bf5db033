"""Failover, timed: how long a client waits when the node that it sends to is lost, or moves.

crash   kill -9 of the process that leads
loss    its namespace is cut, then all that runs there is killed: nobody is told
move    hms switchover
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import hms
from bench.ha_machines import WAIT_S, Group, group, wait_for
from hms.boot.bench.client_pool import BenchFailed
from tests.acceptance.netns_rig import Lab

__all__ = ["Gaps", "failover", "filled"]

QUEUE = "bench"
FILL_AT_ONCE = 20_000


class Gaps(NamedTuple):
    """What one fault cost, in seconds, each time."""

    fault: str
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        known = sorted(self.seconds)
        p99 = known[-(len(known) // 100) - 1]
        return (
            f"{self.fault:6} {len(known):4} times   p50 {statistics.median(known):6.3f} s   "
            f"p99 {p99:6.3f} s   longest {known[-1]:6.3f} s"
        )


class _Sender(threading.Thread):
    """Sends one message after the other, and knows when each was confirmed."""

    def __init__(self, machines: Group) -> None:
        super().__init__(daemon=True)
        self._connection = machines.connect(request_timeout_s=WAIT_S)
        self.times: list[float] = []
        self.fault: BaseException | None = None
        self._is_over = False
        self.start()

    def run(self) -> None:
        try:
            with self._connection.session() as session:
                producer = session.producer(QUEUE)
                while not self._is_over:
                    producer.send(b"x" * 256)
                    self.times.append(time.monotonic())
        except BaseException as fault:  # noqa: BLE001 - told where it is waited for
            self.fault = fault

    def first_after(self, at_s: float) -> float:
        """When the first send was confirmed behind that time."""
        wait_for(lambda: self.fault or self.times[-1:] > [at_s], "a confirmed send")
        if self.fault is not None:
            raise BenchFailed(f"a client got {self.fault}")
        return next(one for one in self.times if one > at_s)

    def longest_since(self, at_s: float) -> float:
        """The longest time between two confirmations from then on."""
        known = [one for one in self.times if one >= at_s]
        return max(b - a for a, b in pairwise(known))

    def end(self) -> None:
        """Stop, and close."""
        self._is_over = True
        self.join(WAIT_S)
        self._connection.close()


def filled(machines: Group, waiting: int, size: int = 1024) -> None:
    """So many messages wait there."""
    with machines.connect(request_timeout_s=WAIT_S) as connection, connection.session() as session:
        producer = session.producer("waiting")
        for begin in range(0, waiting, FILL_AT_ONCE):
            producer.send_many([b"w" * size] * min(FILL_AT_ONCE, waiting - begin))


def failover(
    folder: Path,
    faults: Sequence[str],
    times: int,
    waiting: int,
    lease_s: float,
    said: Callable[[str], object],
) -> list[Gaps]:
    """Each fault so many times; of three copies, with so many messages waiting."""
    found = []
    for fault in faults:
        lab = Lab(4) if fault == "loss" else None
        config: dict[str, Any] = {"hms": {"queue": {QUEUE: {}, "waiting": {}}}}
        node = {"replica_timeout_s": 1, "max_memory_bytes": "4 GiB", "segment_bytes": "64 MiB"}
        try:
            place = folder / fault
            with group(place, 3, config, lab=lab, lease_s=lease_s, node=node) as machines:
                filled(machines, waiting)
                gaps = [_once(machines, fault) for _ in range(times)]
            found.append(Gaps(fault, tuple(gaps)))
            said(str(found[-1]))
        finally:
            if lab is not None:
                lab.close()
    return found


def _once(machines: Group, fault: str) -> float:
    sender = _Sender(machines)
    wait_for(lambda: len(sender.times) >= 20 or sender.fault, "the sender")
    leader = machines.leader
    begun_s = time.monotonic()
    if fault == "move":
        wait_for(lambda: _is_ordered(machines, leader), "the order to move")
        moved_s = sender.first_after(time.monotonic())
        wait_for(lambda: _leads_another(machines, leader), "the move")
        sender.first_after(max(moved_s, time.monotonic()))
        gap_s = sender.longest_since(begun_s)
    else:
        machines.lose(leader) if fault == "loss" else leader.kill()
        gap_s = sender.first_after(time.monotonic()) - begun_s
    sender.end()
    machines.heal()
    machines.boot()
    return gap_s


def _is_ordered(machines: Group, leader: Any) -> bool:
    """Whether the move was; it is refused where the other machine stands still just then."""
    with machines.connect() as operator:
        try:
            operator.administer("replica.switchover", {"to": _other(machines, leader)})
        except hms.SwitchoverRefused:
            return False
        except hms.ConnectionLost:  # the machine may end before its answer is read
            return _leads_another(machines, leader)
    return True


def _other(machines: Group, leader: Any) -> str:
    names = [one.folder.name for one in machines.machines]
    return names[(names.index(leader.folder.name) + 1) % len(names)]


def _leads_another(machines: Group, before: Any) -> bool:
    with suppress(hms.HmsError):
        return machines.leader is not before
    return False
