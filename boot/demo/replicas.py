"""The story on several machines that have one log: the one that leads is killed in the middle.

Each copy has a process and a folder of its own. Clients are given all addresses; when the primary
is killed (kill -9) another copy takes over, and the one that was killed comes back as a standby.
"""

import os
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import hms
from hms.boot.config import load, sample
from hms.boot.counts import counted
from hms.boot.demo.arbiter import arbiter
from hms.boot.demo.books import balance, print_table
from hms.boot.demo.flights import ORIGINS, as_message, by_day, read_month
from hms.boot.demo.spark import count_at_each
from hms.boot.demo.workers import Worker, client_acknowledged, transacted
from hms.boot.replicating import begin_replicas
from hms.client.connection import Connection
from hms.errors.catalogue import InvalidArgument
from hms.store.journal.confirmed_place import confirmed_place
from hms.testing import TestNode
from hms.testing.ports import free_port

__all__ = ["check_replicas", "run"]

REPLICAS_MAX = 7
LEFT_AT = "FLIGHTS.LGA"
"""The queue of which a part is left waiting."""
LATEST_S = 240
LEASE_S = 3
DAYS = 31


def check_replicas(count: int) -> None:
    """InvalidArgument for a number of copies that no node has."""
    if not 2 <= count <= REPLICAS_MAX:  # noqa: PLR2004 - one is no copy
        detail = f"{counted(count, 'replica')}; a node has 2 to {REPLICAS_MAX}"
        raise InvalidArgument(what="--replicas", detail=detail)


def run(count: int, given: str | None = None, days: int = DAYS) -> int:
    """Play the demonstration with so many copies and the flights of so many days; given: an etcd,
    else one of its own; 0 when the books balance. InvalidArgument, ArbiterUnavailable."""
    check_replicas(count)
    began = time.monotonic()
    flights = [row for row in read_month() if int(row["day"]) <= days]
    click.echo(f"{len(flights):,} flights left New York in the first {days} days of January 2013.")
    with (
        tempfile.TemporaryDirectory(prefix="hms-demo-") as name,
        arbiter(Path(name), given) as endpoint,
        _machines(Path(name), count, endpoint) as machines,
    ):
        for one in machines:
            click.echo(f"Replica {one.folder.name} is at {one.address} (process {one.pid}).")
        is_good = _play(machines, flights, days)
    click.echo(f"Done in {time.monotonic() - began:.0f} s: ", nl=False)
    click.echo("everything balances." if is_good else "something does NOT balance.")
    return 0 if is_good else 1


@contextmanager
def _machines(folder: Path, count: int, endpoint: str) -> Iterator[list[TestNode]]:
    """So many copies of one node, all of which count."""
    names = "abcdefg"[:count]
    shipped = tomllib.loads(sample())
    title, pattern = next(iter(shipped["node"].items()))
    domain = {**shipped.get("domain", {}), "name": f"demo{os.getpid()}"}
    replicas = {name: {"address": f"tcp://127.0.0.1:{free_port()}"} for name in names}
    queues: dict[str, Any] = {f"FLIGHTS.{origin}": {} for origin in ORIGINS}
    made: list[TestNode] = []
    for name in names:
        (folder / name).mkdir()
        config: dict[str, Any] = {
            **shipped,
            "domain": domain,
            "node": {title: {**pattern, "replica": name}},
            "arbiter": {"kind": "etcd", "endpoints": [endpoint], "lease_s": LEASE_S},
            "replica": replicas,
            "hms": {**shipped.get("hms", {}), "queue": queues},
        }
        made.append(TestNode(folder / name, folder / name / "store", config, (), (), ()))
    first = load(made[0].config_file)
    begin_replicas(first, first.node())
    try:
        for one in made:
            one.boot()
        _await_all(made)
        yield made
    finally:
        for one in made:
            if one.is_running:
                one.kill()


def _connected(machines: Sequence[TestNode]) -> Connection:
    addresses = [one.address for one in machines]
    return hms.connect(addresses, profile="", reconnect_interval_s=0.2, connect_timeout_s=LATEST_S)


def _copies(machines: Sequence[TestNode]) -> dict[str, Any]:
    with _connected(machines) as connection:
        found: dict[str, Any] = connection.administer("status")["replication"]
        return found


def _await_all(machines: Sequence[TestNode]) -> dict[str, Any]:
    """Until every copy counts."""
    until = time.monotonic() + LATEST_S
    while len((found := _copies(machines))["members"]) < len(machines):
        assert time.monotonic() < until, f"waited {LATEST_S} s in vain for all copies"
        time.sleep(0.1)
    return found


def _play(machines: Sequence[TestNode], flights: list[dict[str, str]], days: int) -> bool:
    part = sum(f"FLIGHTS.{row['origin']}" == LEFT_AT for row in flights) // 3
    addresses = [one.address for one in machines]
    workers = {
        queue: Worker(
            addresses, client_acknowledged(queue, part) if queue == LEFT_AT else transacted(queue)
        )
        for queue in (f"FLIGHTS.{origin}" for origin in ORIGINS)
    }
    with _connected(machines) as connection:
        sent = _send(machines, connection, flights, days)
        workers[LEFT_AT].finish(LATEST_S)
        for worker in workers.values():
            worker.finish(LATEST_S)
        now = _await_all(machines)
        lines = balance([connection], sent, {q: worker.seen for q, worker in workers.items()})
        faults = _count(machines, now["replica"], sum(map(len, sent.values())))
    names = ", ".join(sorted(now["members"]))
    click.echo(f"{now['replica']} leads in epoch {now['epoch']}; copies that count: {names}.")
    print_table(lines)
    faults += [fault for line in lines for fault in line.faults]
    for fault in faults:
        click.secho(fault, fg="red")
    return not faults


def _count(machines: Sequence[TestNode], primary: str, sent: int) -> list[str]:
    """Spark reads the copy that leads and one that follows, when the latter may be read as far."""
    if find_spec("pyspark") is None:
        click.echo("Spark is not installed here: nobody counts at a standby.")
        return []
    leader = next(one for one in machines if one.folder.name == primary)
    standby = next(one for one in machines if one is not leader)
    until = time.monotonic() + LATEST_S
    while confirmed_place(standby.store) != confirmed_place(leader.store):
        assert time.monotonic() < until, f"waited {LATEST_S} s in vain for a standby"
        time.sleep(0.1)
    click.echo("Spark reads the history at the copy that leads, and at a standby ...")
    stores = {one.folder.name: one.store for one in (leader, standby)}
    counted_at = count_at_each(stores)
    for name, count in counted_at.items():
        click.echo(f"  {name}{' (leads)' if name == primary else ''}: {count:,} sent flights")
    return [
        f"the history at {name} has {count} sent flights, {sent} were sent"
        for name, count in counted_at.items()
        if count != sent
    ]


def _send(
    machines: Sequence[TestNode], connection: Connection, flights: list[dict[str, str]], days: int
) -> dict[str, set[str]]:
    """Day by day; the ids by queue. In the middle the copy that leads is killed."""
    session = connection.session()
    producers = {o: session.producer(hms.Queue(f"FLIGHTS.{o}")) for o in ORIGINS}
    sent: dict[str, set[str]] = {f"FLIGHTS.{origin}": set() for origin in ORIGINS}
    led = _copies(machines)
    primary = next(one for one in machines if one.folder.name == led["replica"])
    crash = threading.Thread(target=primary.kill)
    crash_on = days // 2 + 1
    with click.progressbar(length=len(flights), label="sending  ") as bar:
        for day, rows in by_day(flights):
            if day == crash_on:
                crash.start()
            for origin, producer in producers.items():
                messages = [as_message(row) for row in rows if row["origin"] == origin]
                receipts = producer.send_many(messages)
                sent[f"FLIGHTS.{origin}"] |= {str(receipt.message_id) for receipt in receipts}
                bar.update(len(messages))
    crash.join()
    now = _copies(machines)
    click.echo(
        f"On day {crash_on} {led['replica']}, which led, was killed (kill -9): {now['replica']} "
        f"took over in epoch {now['epoch']}, and all went on."
    )
    primary.boot()
    return sent
