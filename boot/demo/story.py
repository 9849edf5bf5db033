"""The story, act by act; every figure it prints was counted, none is assumed."""

import os
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import click

import hms
from hms.boot.config import sample
from hms.boot.demo import spark
from hms.boot.demo.books import balance, print_table
from hms.boot.demo.flights import ORIGINS, as_message, by_day, is_long_delay, read_month
from hms.boot.demo.workers import (
    Worker,
    client_acknowledged,
    durable,
    read_handled,
    transacted,
)
from hms.client.connection import Connection
from hms.services.flights import FILE_VARIABLE
from hms.testing import TestNode, node

CRASH_ON_DAY = 16
WORST_MINUTES = 180
LGA_TAKEN = 3_000
DRAIN_TIMEOUT_S = 240
LATEST_S = 60


def run() -> int:
    """Play the demonstration; 0 when the books balance."""
    began = time.monotonic()
    flights = read_month()
    click.echo(f"{len(flights):,} flights left New York in January 2013.")
    with tempfile.TemporaryDirectory(prefix="hms-demo-") as folder:
        handled_file = Path(folder) / "handled.jsonl"
        handled_file.touch()
        os.environ[FILE_VARIABLE] = str(handled_file)
        with node(store=Path(folder) / "store", config=_configuration()) as running:
            click.echo(f"A node runs at {running.address} (process {running.pid}).")
            is_good = _play(running, flights, handled_file)
    click.echo(f"Done in {time.monotonic() - began:.0f} s: ", nl=False)
    click.echo("everything balances." if is_good else "something does NOT balance.")
    return 0 if is_good else 1


def _configuration() -> dict[str, Any]:
    """The shipped configuration with the demonstration's destinations and its server."""
    shipped = tomllib.loads(sample())
    queues = [*(f"FLIGHTS.{origin}" for origin in ORIGINS), spark.REPLAY_QUEUE]
    hms_section = shipped.setdefault("hms", {})
    hms_section.setdefault("queue", {}).update({name: {} for name in queues})
    hms_section.setdefault("topic", {})["DELAYS"] = {}
    shipped["server"] = {"CARRIERS": {"module": "hms.services.flights", "MIN": 1, "MAX": 1}}
    return shipped


def _play(running: TestNode, flights: list[dict[str, str]], handled_file: Path) -> bool:
    address = running.address
    with hms.connect(address, profile="", reconnect_interval_s=0.5) as connection:
        listening = connection.session(asynchronous=True)
        listening.consumer(hms.Queue("FLIGHTS.EWR"), name="carriers", listener="CARRIER_DELAY")
        workers = {
            "FLIGHTS.JFK": Worker(address, transacted("FLIGHTS.JFK")),
            "FLIGHTS.LGA": Worker(address, client_acknowledged("FLIGHTS.LGA", LGA_TAKEN)),
        }
        worst = Worker(address, durable("DELAYS", "worst", f"dep_delay > {WORST_MINUTES}"))
        _await_subscription(connection)
        sent, windows = _send(running, connection, flights)
        _drain(connection)
        for worker in (*workers.values(), worst):
            worker.finish(LATEST_S)
        seen = {queue: worker.seen for queue, worker in workers.items()}
        seen["FLIGHTS.EWR"] = read_handled(handled_file)
        lines = balance([connection], sent, seen)
        faults = [fault for line in lines for fault in line.faults]
        faults += _check_worst(flights, worst)
        faults += spark.read_and_replay(running, connection, flights, windows[spark.REPLAYED_DAY])
        print_table(lines)
        for fault in faults:
            click.secho(fault, fg="red")
        return not faults


def _send(
    running: TestNode, connection: Connection, flights: list[dict[str, str]]
) -> tuple[dict[str, set[str]], dict[int, tuple[float, float]]]:
    """Send the month, day by day; the ids by queue, and when each day was sent."""
    session = connection.session()
    producers = {origin: session.producer(hms.Queue(f"FLIGHTS.{origin}")) for origin in ORIGINS}
    publisher = session.producer(hms.Topic("DELAYS"))
    sent: dict[str, set[str]] = {f"FLIGHTS.{origin}": set() for origin in ORIGINS}
    windows: dict[int, tuple[float, float]] = {}
    crash: threading.Thread | None = None
    with click.progressbar(length=len(flights), label="sending  ") as bar:
        for day, rows in by_day(flights):
            if day == CRASH_ON_DAY:
                crash = threading.Thread(target=_crash, args=(running,))
                crash.start()
            began = time.time()
            for origin, producer in producers.items():
                messages = [as_message(row) for row in rows if row["origin"] == origin]
                receipts = producer.send_many(messages)
                sent[f"FLIGHTS.{origin}"] |= {str(receipt.message_id) for receipt in receipts}
                bar.update(len(messages))
            publisher.send_many([as_message(row) for row in rows if is_long_delay(row)])
            windows[day] = (began, time.time())
    assert crash is not None
    crash.join()
    click.echo(f"On day {CRASH_ON_DAY} the node was killed (kill -9) and booted WARM; all went on.")
    return sent, windows


def _crash(running: TestNode) -> None:
    running.kill()
    running.boot(warm=True)


def _await_subscription(connection: Connection) -> None:
    """A topic forgets what nobody subscribed to, so begin when the subscription is there."""
    until = time.monotonic() + LATEST_S
    while not connection.administer("subscription.list"):
        assert time.monotonic() < until, "the durable subscriber does not come"
        time.sleep(0.05)


def _drain(connection: Connection) -> None:
    """Wait until the queues that are to be emptied are empty."""
    until = time.monotonic() + DRAIN_TIMEOUT_S
    left = most = _left(connection)
    with click.progressbar(length=most, label="handling ") as bar:
        while left:
            assert time.monotonic() < until, f"{left} messages are not handled"
            time.sleep(0.2)
            now = _left(connection)
            bar.update(max(0, left - now))
            left = now
        bar.update(most)


def _left(connection: Connection) -> int:
    shown = [
        connection.administer("queue.show", {"name": name})
        for name in ("FLIGHTS.EWR", "FLIGHTS.JFK")
    ]
    return sum(queue["waiting"] + queue["in_flight"] for queue in shown)


def _check_worst(flights: list[dict[str, str]], worst: Worker) -> list[str]:
    """The durable subscriber has exactly the flights that its selector describes."""
    expected = sorted(int(row["dep_delay"]) for row in flights if is_long_delay(row, WORST_MINUTES))
    got = sorted(message.get_int("dep_delay") for message in worst.messages)
    click.echo(
        f"The durable subscriber has {len(got)} flights over {WORST_MINUTES} minutes late, "
        f"the worst {got[-1] if got else 0} minutes."
    )
    if got != expected or worst.seen.unflagged:
        return [f"the durable subscriber has {len(got)} flights, expected {len(expected)}"]
    return []
