"""Failover, timed: how long a client waits when the node that it sends to is lost, or moves.

crash   kill -9 of the process that leads
loss    its namespace is cut, then all that runs there is killed: nobody is told
stall   SIGSTOP of the process that leads, for 10 s, then it goes on
move    hms switchover
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hms
from bench.ha_gaps import FILLING, Books, Gaps, Sender
from bench.ha_machines import WAIT_S, Group, group, wait_for
from tests.acceptance.netns_rig import Lab

__all__ = ["STALL_S", "failover", "filled"]

QUEUE = "bench"
FILL_AT_ONCE = 20_000
STALL_S = 10.0
RECEIVE_S = 5.0
"""Behind the last message."""


@contextmanager
def _client(machines: Group) -> Iterator[Callable[[bytes], object]]:
    """One that knows all machines."""
    with machines.connect(request_timeout_s=WAIT_S) as connection, connection.session() as session:
        producer = session.producer(QUEUE)
        yield producer.send


def filled(machines: Group, waiting: int) -> None:
    """So many messages wait there."""
    with machines.connect(request_timeout_s=WAIT_S) as connection, connection.session() as session:
        producer = session.producer("waiting")
        for begin in range(0, waiting, FILL_AT_ONCE):
            producer.send_many([FILLING] * min(FILL_AT_ONCE, waiting - begin))


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
                books = Books()
                gaps = tuple(_once(machines, fault, books) for _ in range(times))
                lost, doubled = books.settle(_received(machines))
            found.append(Gaps(fault, gaps, "hms, 3 copies", books.confirmed, lost, doubled))
            said(str(found[-1]))
        finally:
            if lab is not None:
                lab.close()
    return found


def _received(machines: Group) -> Iterator[bytes]:
    with machines.connect(request_timeout_s=WAIT_S) as connection, connection.session() as session:
        consumer = session.consumer(QUEUE)
        while (message := consumer.receive(RECEIVE_S)) is not None:
            yield bytes(message.body)


def _once(machines: Group, fault: str, books: Books) -> float:
    sender = Sender(_client(machines), books)
    sender.await_sends(20)
    leader = machines.leader
    begun_s = time.monotonic()
    if fault == "move":
        wait_for(lambda: _is_ordered(machines, leader), "the order to move")
        moved_s = sender.first_after(time.monotonic())
        wait_for(lambda: _leads_another(machines, leader), "the move")
        sender.first_after(max(moved_s, time.monotonic()))
        gap_s = sender.longest_since(begun_s)
    elif fault == "stall":
        leader.pause()
        time.sleep(STALL_S)
        leader.resume()
        gap_s = sender.stood_still(begun_s)
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
