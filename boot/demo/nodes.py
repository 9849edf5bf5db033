"""The story on several nodes: producers and consumers apart, and one node killed in between.

What is sent at one node is consumed at the next one, so most flights move. The second node, which
sends and consumes, is killed (kill -9) in the middle and booted again.
"""

import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

import hms
from hms.boot.config import sample
from hms.boot.counts import counted
from hms.boot.demo.books import balance, print_table
from hms.boot.demo.flights import ORIGINS, as_message, by_day, read_month
from hms.boot.demo.workers import Worker, client_acknowledged, transacted
from hms.client.connection import Connection
from hms.client.producer import Producer
from hms.errors.catalogue import InvalidArgument
from hms.history.scan import plan, read_part
from hms.history.scope import parse_scope
from hms.testing import TestNode, node

NODES_MAX = 10
LEFT_AT = "FLIGHTS.LGA"
"""The queue of which a part is left waiting."""
LATEST_S = 240
DAYS = 31


def check_nodes(count: int, least: int = 1) -> None:
    """InvalidArgument for a number of nodes that one machine cannot show."""
    if not least <= count <= NODES_MAX:
        detail = f"{counted(count, 'node')}; {least} to {NODES_MAX} show the story on one machine"
        raise InvalidArgument(what="--nodes", detail=detail)


def run(count: int, days: int = DAYS) -> int:
    """Play the demonstration on so many nodes with the flights of so many days; 0 when the books
    balance."""
    check_nodes(count, least=2)
    began = time.monotonic()
    flights = [row for row in read_month() if int(row["day"]) <= days]
    click.echo(f"{len(flights):,} flights left New York in the first {days} days of January 2013.")
    with (
        tempfile.TemporaryDirectory(prefix="hms-demo-") as folder,
        node(store=Path(folder) / "store", config=_configuration(count), nodes=count) as first,
    ):
        for one in first.nodes:
            click.echo(f"{one.name} runs at {one.address} (process {one.pid}).")
        is_good = _play(first.nodes, flights, days)
    click.echo(f"Done in {time.monotonic() - began:.0f} s: ", nl=False)
    click.echo("everything balances." if is_good else "something does NOT balance.")
    return 0 if is_good else 1


def _configuration(count: int) -> dict[str, Any]:
    """The shipped configuration with so many nodes and a global queue for each airport."""
    shipped = tomllib.loads(sample())
    pattern = next(iter(shipped["node"].values()))
    for number in range(1, count + 1):
        shipped["node"].setdefault(f"NODE{number}", dict(pattern))
    queues = shipped.setdefault("hms", {}).setdefault("queue", {})
    queues.update({f"FLIGHTS.{origin}": {"GLOBAL": "Y"} for origin in ORIGINS})
    return shipped


def _play(nodes: Sequence[TestNode], flights: list[dict[str, str]], days: int) -> bool:
    with _connected(nodes) as connections:
        _await_cluster(connections)
        workers = _workers(nodes, flights)
        sent = _send(nodes, connections, flights, days)
        workers[LEFT_AT].finish(LATEST_S)
        _drain(connections, [name for name in sent if name != LEFT_AT])
        for worker in workers.values():
            worker.finish(LATEST_S)
        _await_decided(connections)
        moves = [_moves(one) for one in nodes]
        seen = {queue: worker.seen for queue, worker in workers.items()}
        moved = Counter[str]()
        for left, _ in moves:
            moved += left
        lines = balance(connections, sent, seen, moved)
    faults = [fault for line in lines for fault in line.faults]
    faults += _compare(nodes, moves)
    print_table(lines)
    for fault in faults:
        click.secho(fault, fg="red")
    return not faults


@contextmanager
def _connected(nodes: Sequence[TestNode]) -> Iterator[list[Connection]]:
    """A connection to each node, which comes back when its node does."""
    with ExitStack() as stack:
        made = [hms.connect(one.address, profile="", reconnect_interval_s=0.5) for one in nodes]
        yield [stack.enter_context(connection) for connection in made]


def _workers(nodes: Sequence[TestNode], flights: list[dict[str, str]]) -> dict[str, Worker]:
    """The consumers of each airport, at the node behind the one where its flights are sent."""
    part = sum(f"FLIGHTS.{row['origin']}" == LEFT_AT for row in flights) // 3
    workers = {}
    for i, origin in enumerate(ORIGINS):
        queue = f"FLIGHTS.{origin}"
        work = client_acknowledged(queue, part) if queue == LEFT_AT else transacted(queue)
        workers[queue] = Worker(nodes[(i + 1) % len(nodes)].address, work)
    return workers


def _send(
    nodes: Sequence[TestNode],
    connections: Sequence[Connection],
    flights: list[dict[str, str]],
    days: int,
) -> dict[str, set[str]]:
    """Send day by day, each airport's flights at a node of its own; the ids by queue."""
    producers = _producers(connections)
    sent: dict[str, set[str]] = {f"FLIGHTS.{origin}": set() for origin in ORIGINS}
    crash = threading.Thread(target=_crash, args=(nodes[1],))
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
    assert nodes[1].is_running, "the node that was killed does not boot"
    who = f"On day {crash_on} {nodes[1].name}"
    click.echo(f"{who} was killed (kill -9) and booted WARM; all went on.")
    return sent


def _producers(connections: Sequence[Connection]) -> dict[str, Producer]:
    return {
        origin: connections[i % len(connections)].session().producer(hms.Queue(f"FLIGHTS.{origin}"))
        for i, origin in enumerate(ORIGINS)
    }


def _crash(one: TestNode) -> None:
    one.kill()
    one.boot(warm=True)


# ---- waiting


def _await_cluster(connections: Sequence[Connection]) -> None:
    """Until every node hears all others."""
    _await(lambda: all(m["is_up"] for c in connections for m in _status(c)["members"]), "all nodes")


def _drain(connections: Sequence[Connection], queues: Sequence[str]) -> None:
    """Wait until the queues that are to be emptied are empty at all nodes."""
    _await(lambda: not sum(_left(c, q) for c in connections for q in queues), "empty queues")


def _left(connection: Connection, queue: str) -> int:
    shown = connection.administer("queue.show", {"name": queue})
    return int(shown["waiting"]) + int(shown["in_flight"])


def _await_decided(connections: Sequence[Connection]) -> None:
    """Until no message is on its way from node to node."""
    _await(lambda: not any(_status(c)["undecided"] for c in connections), "moves that are decided")


def _status(connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = connection.administer("cluster.status")
    return found


def _await(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LATEST_S
    while not is_so():
        assert time.monotonic() < until, f"waited {LATEST_S} s in vain for {what}"
        time.sleep(0.1)


# ---- moves, as the histories of the nodes tell them

Moves = tuple[Counter[str], Counter[str]]
"""By queue: how many messages left a node for another one, and how many came."""


def _moves(one: TestNode) -> Moves:
    scope = parse_scope({"events": "moved,forwarded", "destination": "FLIGHTS.*"})
    left, came = Counter[str](), Counter[str]()
    for part in plan(one.store, scope):
        for batch in read_part(part, scope, ("event", "destination", "cause")):
            for event in batch:
                if event.cause == "moved":
                    found = left if event.event == "moved" else came
                    found[str(event.destination)] += 1
    return left, came


def _compare(nodes: Sequence[TestNode], moves: Sequence[Moves]) -> list[str]:
    """What left one node has come to another."""
    total_left, total_came = Counter[str](), Counter[str]()
    for one, (left, came) in zip(nodes, moves, strict=True):
        click.echo(
            f"History of {one.name}: {left.total():,} flights moved out, {came.total():,} moved in."
        )
        total_left += left
        total_came += came
    return [
        f"{queue}: {total_left[queue]} moved out, {total_came[queue]} moved in"
        for queue in sorted(total_left | total_came)
        if total_left[queue] != total_came[queue]
    ]
